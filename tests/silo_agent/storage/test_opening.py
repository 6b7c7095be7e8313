"""An agent's state folder at the start: whole, of an earlier version, or not as it was left."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import date

import numpy as np
import pytest

from policies.errors import LedgerMissingError
from policies.ledger.anchors import Anchors
from policies.ledger.ledger import Ledger
from protos.chunks import ChunkList
from protos.messages import Place, Tensor
from silo_agent.storage.backup import make_backup, restore
from silo_agent.storage.errors import SecondSumError, StateError, StateRolledBackError
from silo_agent.storage.folders import StateFolder
from silo_agent.storage.opening import read_state
from support.ledgers import NORTH
from support.used_state import KEY, MISHAPS, opened, used

STUDY = "5" * 64
PLACE = Place(STUDY, 2, 3)
INTEGERS = np.array([5, -7, 2**30], np.int64)
LABEL, OTHER = "a" * 64, "b" * 64
SUM = "1" * 64
DAY = date(2026, 3, 1)


@pytest.fixture
def folder(tmp_path):
    """A folder of 0.6 in the middle of a study: it has no secret, and its digests are plain."""
    (tmp_path / "state").mkdir()
    Ledger.create(StateFolder(tmp_path / "state").ledger, NORTH)
    state = opened(tmp_path / "state")
    state.add_study(STUDY, b"{}")
    state.keep_release(PLACE, Tensor.HEADS, 3, INTEGERS, LABEL)
    state.keep_release(Place(STUDY, 1, 1), Tensor.HEADS, 1, INTEGERS, OTHER)
    state.keep_sealed(PLACE, LABEL, [b"sealed"])
    state.promises.open(PLACE, LABEL, SUM)
    files = state.files
    plain = {
        "releases": ChunkList.of(files.study(STUDY).release(PLACE, "heads", 3)).digest,
        "sealed": ChunkList.of(files.sealed(STUDY, LABEL)).digest,
        "sums": SUM,
    }
    state.forget_round(STUDY, 1)
    state.close()
    with closing(sqlite3.connect(files.database)) as database:
        for table, digest in plain.items():
            database.execute(f"UPDATE {table} SET sha256 = ?", (digest,))  # noqa: S608  # a name from above
        database.execute("PRAGMA user_version = 0")
        database.commit()
    files.secret.unlink()
    files.sealed(STUDY, LABEL).parent.mkdir(exist_ok=True)
    files.sealed(STUDY, LABEL).write_bytes(b"sealed")
    return files.path, list(plain.values())


def test_a_folder_of_an_earlier_version_goes_on_without_a_plain_digest(folder):
    path, plain = folder
    assert all(digest.encode() in StateFolder(path).database.read_bytes() for digest in plain)
    for seed in (2, 3):  # the second start changes nothing
        state = opened(path, seed)
        content = state.files.database.read_bytes()
        assert not any(digest.encode() in content for digest in plain)
        assert state.release(PLACE, Tensor.HEADS, 3).integers.tolist() == INTEGERS.tolist()
        assert state.sealed(STUDY, LABEL).read_bytes() == b"sealed"
        state.promises.open(PLACE, LABEL, SUM)
        with pytest.raises(SecondSumError):
            state.promises.open(PLACE, LABEL, "2" * 64)
        state.close()


@pytest.mark.parametrize("which", ["release", "sealed"])
def test_a_file_that_was_changed_before_the_upgrade_is_refused_after_it(folder, which):
    path, _ = folder
    files = StateFolder(path)
    changed = files.study(STUDY).release(PLACE, "heads", 3) if which == "release" else files.sealed(STUDY, LABEL)
    changed.write_bytes(b"changed")
    state = opened(path)
    with pytest.raises(StateError, match="missing or was changed"):
        state.release(PLACE, Tensor.HEADS, 3) if which == "release" else state.sealed(STUDY, LABEL)
    state.close()


def test_an_upgrade_that_is_cut_off_begins_again(folder, monkeypatch):
    path, plain = folder
    with monkeypatch.context() as patch:
        patch.setattr("silo_agent.storage.state.key_sums", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            opened(path)
    assert plain[0].encode() in StateFolder(path).database.read_bytes()
    state = opened(path, 2)
    assert state.release(PLACE, Tensor.HEADS, 3).integers.tolist() == INTEGERS.tolist()
    state.close()


def test_a_folder_that_rests_on_a_secret_does_not_start_without_it(folder):
    path, _ = folder
    opened(path).close()
    StateFolder(path).secret.unlink()
    with pytest.raises(StateError, match=r"secret\.sealed is gone"):
        opened(path)
    assert not StateFolder(path).secret.exists()


# --- every file that a start reads, and what can become of it -------------------------------------------------------
SAID = {
    ("state.sqlite3", "damaged"): "state.sqlite3 is damaged, or cannot be used",
    ("state.sqlite3", "cut"): "state.sqlite3 is damaged, or cannot be used",
    ("state.sqlite3", "empty"): "state.sqlite3 is empty, but the ledger has 1 charges",
    ("state.sqlite3", "gone"): "state.sqlite3 is gone, but the ledger has 1 charges",
    ("state.sqlite3", "older"): None,
    ("state.sqlite3", "foreign"): "state.sqlite3 belongs to another state folder than secret.sealed",
    ("secret.sealed", "damaged"): "secret.sealed was sealed by another key, or was changed",
    ("secret.sealed", "cut"): "secret.sealed was sealed by another key, or was changed",
    ("secret.sealed", "empty"): "secret.sealed was sealed by another key, or was changed",
    ("secret.sealed", "gone"): "secret.sealed is gone",
    ("secret.sealed", "foreign"): "state.sqlite3 belongs to another state folder than secret.sealed",
    ("withdrawn.sealed", "damaged"): "withdrawn.sealed in the state folder was sealed by another key, or was changed",
    ("withdrawn.sealed", "cut"): "withdrawn.sealed in the state folder was sealed by another key, or was changed",
    ("withdrawn.sealed", "empty"): "withdrawn.sealed in the state folder was sealed by another key, or was changed",
    ("withdrawn.sealed", "gone"): "withdrawn.sealed is gone: 2 people had withdrawn, and 0 are on the list",
    ("withdrawn.sealed", "older"): "withdrawn.sealed is older than it was: 2 people had withdrawn, and 1 are on the",
}


@pytest.mark.parametrize(("name", "mishap"), SAID)
def test_a_file_that_is_not_as_it_was_left_is_told_in_one_sentence_and_nothing_is_made_anew(tmp_path, name, mishap):
    folder = tmp_path / "state"
    older = used(folder, 1)
    MISHAPS[mishap](folder, folder / name, older)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    said = SAID[name, mishap]
    if said is None:  # known by the ledger, when it comes to the study
        state = opened(folder, 2)
        state.anchored.bind(Anchors(state.files.ledger))
        with pytest.raises(StateRolledBackError, match="older than the ledger"):
            state.anchored.require(PLACE)
        state.close()
        return
    for _ in range(2):
        with pytest.raises(StateError) as fault:
            opened(folder, 2)
        text = str(fault.value)
        assert said in text
        assert "\n" not in text
        assert "put" in text
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_a_first_start_needs_a_ledger_that_has_charged_nothing(tmp_path):
    with pytest.raises(LedgerMissingError):
        opened(tmp_path / "none")
    assert not (tmp_path / "none").exists()
    folder = tmp_path / "state"
    folder.mkdir()
    Ledger.create(StateFolder(folder).ledger, NORTH)
    opened(folder).close()
    StateFolder(folder).database.unlink()  # as after a death between secret and database
    opened(folder).close()


def test_a_command_that_only_reads_makes_nothing(tmp_path):
    with pytest.raises(StateError, match="no agent was started with this folder, or it is lost"):
        read_state(tmp_path)
    assert not list(tmp_path.iterdir())
    used(tmp_path / "state", 1)
    state = read_state(tmp_path / "state")
    with pytest.raises(StateError, match=r"was opened without secret\.sealed"):
        state.release(PLACE, Tensor.HEADS, 3)
    state.close()


def test_without_database_and_backup_the_ledger_alone_is_put_back_and_no_charged_round_goes_on(tmp_path):
    folder = tmp_path / "state"
    used(folder, 1)
    StateFolder(folder).database.unlink()
    make_backup(folder, tmp_path / "a.backup", version="1.0", day=DAY)
    restore(tmp_path / "a.backup", folder, data_set=NORTH.data_set, day=DAY, key=lambda: KEY)
    state = opened(folder, 3)
    state.anchored.bind(Anchors(state.files.ledger))
    with pytest.raises(StateRolledBackError):
        state.keep_release(PLACE, Tensor.HEADS, 3, INTEGERS, LABEL)
    state.keep_release(Place(STUDY, 3, 1), Tensor.HEADS, 1, INTEGERS, LABEL)
    state.close()
