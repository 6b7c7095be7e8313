import os
import sqlite3
import stat
from contextlib import closing
from datetime import date

import numpy as np
import pytest
import structlog
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import event, text
from sqlalchemy.exc import StatementError

from protos.chunks import ChunkList
from protos.messages import Place, Tensor
from silo_agent.core.bonds import SurvivorsError
from silo_agent.storage import state as state_module
from silo_agent.storage.durable import write_whole
from silo_agent.storage.errors import StateError, StateFileError
from silo_agent.storage.state import Ending
from support.states import DIGESTS, keyed

STUDY, OTHER = "5" * 64, "6" * 64
PLACE = Place(STUDY, 2, 3)
INTEGERS = np.array([5, -7, 2**30], np.int64)
LABEL = "a" * 64
DAY = date(2026, 3, 1)


class Crash(BaseException):
    """The power fails."""


@pytest.fixture
def state(tmp_path):
    state = keyed(tmp_path / "state")
    yield state
    state.close()


def reopened(state):
    state.close()
    return keyed(state.folder)


def keep(state, integers=INTEGERS, place=PLACE, attempt=3):
    state.keep_release(place, Tensor.HEADS, attempt, integers, LABEL)


def files(state):
    return sorted(p for p in state.folder.rglob("*") if p.is_file() and "sqlite" not in p.name)


# --- studies ----------------------------------------------------------------------------------------------------------
def test_studies_outlive_the_process(state):
    assert (state.canonical(STUDY), state.committed(STUDY)) == (None, -1)
    state.add_study(STUDY, b"{}")
    state.add_study(STUDY, b"another text changes nothing")
    state.add_study(OTHER, b"{1}")
    state.commit(STUDY, 4)
    state.finish(OTHER, "ended: enough", DAY)
    state = reopened(state)
    assert state.canonical(STUDY) == b"{}"
    assert sorted(state.studies()) == [(STUDY, 4, ""), (OTHER, -1, "ended: enough")]


def test_an_end_is_for_ever_and_its_first_day_stays(state):
    state.add_study(STUDY, b"{}")
    state.add_study(OTHER, b"{1}")
    assert (state.is_over(STUDY), state.endings()) == (False, [])
    state.finish(STUDY, "finished: done", DAY)
    state = reopened(state)
    state.finish(STUDY, "finished: done", DAY.replace(year=2030))
    assert (state.is_over(STUDY), state.is_over(OTHER)) == (True, False)
    assert state.endings() == [Ending(STUDY, DAY)]
    later = Ending(STUDY, DAY, noticed=DAY.replace(day=9))
    state.keep_ending(later)
    assert reopened(state).endings() == [later]


def test_an_end_of_a_version_that_kept_no_day_is_known(state):
    state.add_study(STUDY, b"{}")
    state.finish(STUDY, "ended: enough", DAY)
    state.close()
    with closing(sqlite3.connect(state.folder / "state.sqlite3")) as database:
        database.execute("DROP TABLE endings")
    assert keyed(state.folder).endings() == [Ending(STUDY, None)]


def test_a_removal_leaves_what_was_used_up_and_no_digest_of_integers(state):
    """Of few integers the digest would tell them: whoever guesses them can compare."""
    state.add_study(STUDY, b"{}")
    keep(state)
    keep(state, place=Place(OTHER, 2, 3))
    state.keep_sealed(PLACE, LABEL, [b"sealed"])
    state.promises.sign(PLACE, Tensor.HEADS, ("north", "west"))
    state.keep_attempt(STUDY, "where it stood")
    digest = DIGESTS.keyed("release", ChunkList.of(next(state.folder.rglob("*.i64"))).digest)
    with closing(sqlite3.connect(state.folder / "state.sqlite3")) as database:
        database.execute("UPDATE releases SET sha256 = ? WHERE study = ?", ("f" * 64, OTHER))
        database.commit()
    state.finish(STUDY, "ended: enough", DAY)
    assert digest.encode() in (state.folder / "state.sqlite3").read_bytes()
    state.begin_removal(Ending(STUDY, DAY, removed=DAY))
    state = reopened(state)
    assert digest.encode() not in (state.folder / "state.sqlite3").read_bytes()
    assert (state.removed(STUDY), state.removed(OTHER)) == (DAY, None)
    assert state.attempt(STUDY) is None
    with pytest.raises(StateError):
        keep(state)
    with pytest.raises(StateError):
        state.release(PLACE, Tensor.HEADS, 3)
    with pytest.raises(StateError):
        state.keep_sealed(PLACE, LABEL, [b"sealed"])
    with pytest.raises(SurvivorsError):
        state.promises.sign(PLACE, Tensor.HEADS, ("north", "south"))


def test_the_folder_and_its_files_are_the_owners_alone(state):
    keep(state)
    state.keep_sealed(PLACE, LABEL, [b"sealed"])
    folders = {path.parent for path in files(state)} | {state.folder}
    assert {stat.S_IMODE(path.stat().st_mode) for path in files(state)} == {0o600}
    assert stat.S_IMODE(state.folder.stat().st_mode) == 0o700
    assert all(stat.S_IMODE(folder.stat().st_mode) & 0o077 == 0 for folder in folders)


def test_a_folder_that_others_could_read_is_closed_to_them(tmp_path):
    (tmp_path / "state").mkdir()
    (tmp_path / "state").chmod(0o755)
    (tmp_path / "state" / "state.sqlite3").touch(mode=0o644)
    with structlog.testing.capture_logs() as logs:
        keyed(tmp_path / "state").close()
    paths = [tmp_path / "state", tmp_path / "state" / "state.sqlite3"]
    assert [stat.S_IMODE(path.stat().st_mode) for path in paths] == [0o700, 0o600]
    assert [entry["path"] for entry in logs] == [str(path) for path in paths]


# --- releases ---------------------------------------------------------------------------------------------------------
@settings(max_examples=15, deadline=None)
@given(values=st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=20))
def test_a_release_comes_back_as_the_same_integers(tmp_path_factory, values):
    state = keyed(tmp_path_factory.mktemp("state"))
    keep(state, np.array(values, np.int64))
    state = reopened(state)
    release = state.release(PLACE, Tensor.HEADS, 3)
    assert release.integers.tolist() == values
    assert release.label == LABEL
    state.close()


def test_another_tensor_attempt_round_or_study_has_no_release(state):
    keep(state)
    assert state.release(PLACE, Tensor.ENCODER, 3) is None
    assert state.release(PLACE, Tensor.HEADS, 2) is None
    assert state.release(Place(STUDY, 1, 3), Tensor.HEADS, 3) is None
    assert state.release(Place(OTHER, 2, 3), Tensor.HEADS, 3) is None


def test_a_release_is_not_printed(state):
    keep(state)
    assert "5" not in repr(state.release(PLACE, Tensor.HEADS, 3))


def test_a_second_draw_for_one_charge_is_refused_and_the_first_stays(state):
    keep(state)
    with pytest.raises(StateError, match=r"2-heads-3\.i64: the file was stored before"):
        keep(state, INTEGERS + 1)
    assert np.array_equal(state.release(PLACE, Tensor.HEADS, 3).integers, INTEGERS)


def test_a_release_longer_than_a_piece_is_read_from_its_file(state, monkeypatch):
    monkeypatch.setattr(state_module, "_PIECE", 7)
    values = np.arange(-50, 50, dtype=np.int64) << 30
    keep(state, values)
    release = state.release(PLACE, Tensor.HEADS, 3)
    assert isinstance(release.integers, np.memmap)
    assert np.array_equal(release.integers, values)


# --- sealed bytes -----------------------------------------------------------------------------------------------------
def test_a_label_gives_one_byte_string_for_ever(state):
    assert state.sealed(STUDY, LABEL) is None
    path = state.keep_sealed(PLACE, LABEL, [b"sealed"])
    with pytest.raises(StateError, match=r"\.sealed: the file was stored before"):
        state.keep_sealed(PLACE, LABEL, [b"other bytes"])
    state = reopened(state)
    assert state.sealed(STUDY, LABEL) == path
    assert path.read_bytes() == b"sealed"
    with pytest.raises(StateError):
        state.keep_sealed(PLACE, LABEL, [b"other bytes"])


def test_a_used_label_stays_used_when_its_bytes_are_forgotten(state):
    keep(state)
    state.keep_sealed(PLACE, LABEL, [b"sealed"])
    state.forget_round(STUDY, 2)
    assert files(state) == []
    with pytest.raises(StateError):
        state.sealed(STUDY, LABEL)
    with pytest.raises(StateError):
        state.keep_sealed(PLACE, LABEL, [b"sealed"])
    with pytest.raises(StateError):
        keep(state)


def test_forgetting_a_round_leaves_other_rounds_and_studies_alone(state):
    keep(state)
    for place in (Place(STUDY, 22, 3), Place(OTHER, 2, 3)):
        keep(state, place=place)
    state.keep_sealed(Place(OTHER, 2, 3), "b" * 64, [b"of another study"])
    state.forget_round(STUDY, 2)
    assert state.release(Place(STUDY, 22, 3), Tensor.HEADS, 3) is not None
    assert state.release(Place(OTHER, 2, 3), Tensor.HEADS, 3) is not None
    assert state.sealed(OTHER, "b" * 64).read_bytes() == b"of another study"


# --- damage -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("damage", ["changed", "cut", "longer", "missing"])
def test_damaged_files_are_named_with_the_mend(state, damage):
    keep(state)
    sealed = state.keep_sealed(PLACE, LABEL, [b"sealed"])
    for path, read in (
        (next(iter(state.folder.rglob("*.i64"))), lambda: state.release(PLACE, Tensor.HEADS, 3)),
        (sealed, lambda: state.sealed(STUDY, LABEL)),
    ):
        content = path.read_bytes()
        damaged = {"changed": content[:-1] + b"?", "cut": content[:-1], "longer": content + b"?"}
        if damage == "missing":
            path.unlink()
        else:
            path.write_bytes(damaged[damage])
        with pytest.raises(StateError, match="restore it from the same backup") as caught:
            read()
        assert str(path) in str(caught.value)


# --- crashes ----------------------------------------------------------------------------------------------------------
STEPS = ("write", "sync file", "rename", "sync folder", "commit")


def break_at(monkeypatch, state, step):
    """The process dies at a step of keeping something."""
    syncs = iter(range(100))

    def fsync(handle, real=os.fsync):
        if next(syncs) == {"sync file": 0, "sync folder": 1}[step]:
            raise Crash
        real(handle)

    def die(*_args, **_kwargs):
        raise Crash

    if step == "write":
        monkeypatch.setattr(os, "open", die)
    elif step.startswith("sync"):
        monkeypatch.setattr(os, "fsync", fsync)
    elif step == "rename":
        monkeypatch.setattr("pathlib.Path.replace", die)
    else:
        real = state_module.write_pieces

        def write_then_die(path, pieces):
            real(path, pieces)
            raise Crash

        monkeypatch.setattr(state_module, "write_pieces", write_then_die)


@pytest.mark.parametrize("step", STEPS)
def test_a_crash_anywhere_while_keeping_leaves_the_old_state(state, monkeypatch, step):
    with monkeypatch.context() as patch:
        break_at(patch, state, step)
        with pytest.raises(Crash):
            keep(state)
    with monkeypatch.context() as patch:
        break_at(patch, state, step)
        with pytest.raises(Crash):
            state.keep_sealed(PLACE, LABEL, [b"lost"])
    state = reopened(state)
    assert state.release(PLACE, Tensor.HEADS, 3) is None
    assert state.sealed(STUDY, LABEL) is None
    assert not list(state.folder.rglob("*.new"))
    keep(state, INTEGERS + 1)
    state.keep_sealed(PLACE, LABEL, [b"sealed"])
    assert np.array_equal(state.release(PLACE, Tensor.HEADS, 3).integers, INTEGERS + 1)
    assert state.sealed(STUDY, LABEL).read_bytes() == b"sealed"


@pytest.mark.parametrize("step", ["write", "sync file", "rename"])
def test_a_file_is_the_old_one_or_the_new_one(tmp_path, monkeypatch, step):
    path = tmp_path / "folder" / "file"
    write_whole(path, b"old")
    with monkeypatch.context() as patch:
        break_at(patch, None, step)
        with pytest.raises(Crash):
            write_whole(path, b"new and longer")
    assert path.read_bytes() == b"old"
    assert [p.name for p in path.parent.iterdir()] == ["file"]
    write_whole(path, b"new and longer")
    assert path.read_bytes() == b"new and longer"


def test_a_full_disk_is_one_sentence_with_file_and_room(state):
    """SQLite's own limit on the file's size stands in for a full disk."""

    @event.listens_for(state._engine, "connect")
    def limit(connection, _record):
        connection.execute("PRAGMA max_page_count = 1")

    state.close()
    said = rf"{state.files.database} cannot be used \(.*full.*\); \d+ bytes are free"
    with pytest.raises(StateFileError, match=said):
        state.add_study(STUDY, bytes(100_000))


# --- what is remembered of the folder, and what leaves it -------------------------------------------------------------
def test_how_many_have_withdrawn_is_remembered(state):
    assert state.withdrawals() == 0
    for names in (3, 2):
        state.keep_withdrawals(names)
        assert reopened(state).withdrawals() == names


def test_folders_are_made_where_they_are_asked_for(tmp_path):
    state = keyed(tmp_path / "state")
    assert state.study_folder(STUDY) == state.files.study(STUDY).path
    assert state.study_folder(STUDY).is_dir()
    assert state.note_path(PLACE, "keys") == state.files.note(PLACE, "keys")
    assert state.received_path(PLACE, "shares", "south") == state.files.received(PLACE, "shares", "south")
    state.close()


@pytest.mark.parametrize("earlier", [False, True], ids=["of this version", "of one without a table of sums"])
def test_a_copy_without_what_a_restored_folder_does_not_use(state, tmp_path, earlier):
    """No digest is in the file, wherever it lay."""
    keep(state)
    state.keep_sealed(PLACE, LABEL, [b"sealed"])
    state.keep_withdrawals(2)
    state.promises.open(PLACE, LABEL, "d" * 64)
    state.close()
    copy = tmp_path / "copy.sqlite3"
    copy.write_bytes(state.files.database.read_bytes())
    with closing(sqlite3.connect(copy)) as database:
        digests = {row[0] for name in ("releases", "sealed", "sums") for row in database.execute(_DIGESTS.format(name))}
        if earlier:
            database.execute("DROP TABLE sums")
            database.commit()
    assert len(digests) == 3
    assert all(digest.encode() in state.files.database.read_bytes() for digest in digests)
    state_module.blank(copy)
    assert not [digest for digest in digests if digest.encode() in copy.read_bytes()]
    with closing(sqlite3.connect(copy)) as database:
        for name in ("releases", "sealed", *(() if earlier else ("sums",))):
            assert database.execute(_DIGESTS.format(name)).fetchall() == [("",)], name
        assert database.execute("SELECT * FROM folder").fetchall() == []
        assert database.execute("PRAGMA user_version").fetchone() == (0,)


_DIGESTS = "SELECT sha256 FROM {}"


def test_a_plain_digest_becomes_a_keyed_one_if_its_file_is_gone_or_fits(tmp_path):
    path = tmp_path / "release"
    path.write_bytes(b"what was kept")
    plain = ChunkList.of(path).digest
    path.unlink()
    keyed_one = DIGESTS.keyed("release", plain)
    for where in (None, path):
        assert state_module._as_keyed(DIGESTS, "release", plain, where) == keyed_one
    path.write_bytes(b"what was kept")
    assert state_module._as_keyed(DIGESTS, "release", plain, path) == keyed_one
    path.write_bytes(b"what was changed")
    assert state_module._as_keyed(DIGESTS, "release", plain, path) == ""
    assert state_module._as_keyed(DIGESTS, "release", "", None) == ""


def test_a_fault_of_the_program_is_not_taken_for_one_of_the_disk(state):
    with state._transaction() as connection, pytest.raises(StatementError) as fault:
        connection.execute(text("SELECT :missing"))
    assert not isinstance(fault.value, StateFileError)
