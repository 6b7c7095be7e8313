"""What a backup holds, and what a restore refuses."""

from __future__ import annotations

import hashlib
import io
import itertools
import os
import shutil
import sqlite3
import stat
import tarfile
from contextlib import closing
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import get_args
from unittest.mock import MagicMock

import numpy as np
import pytest

from crypto.entropy import SystemEntropy
from crypto.pki.at_rest import FormerKey
from crypto.pki.identity import Identity, Role
from crypto.pki.key_files import new_key
from crypto.pki.known_keys import KnownKeys, Shown, read_memory
from policies.errors import LedgerBusyError, LedgerMissingError
from policies.ledger.cosign import CosignatureFile
from policies.ledger.events import EntryRef
from policies.ledger.ledger import Ledger, read_history
from protos.chunks import ChunkHasher, ChunkList
from protos.messages import Place, Tensor
from silo_agent.storage import backup as backups
from silo_agent.storage.backup import BackupError, make_backup, restore
from silo_agent.storage.folders import StateFolder
from silo_agent.storage.keyed.digests import Kind
from silo_agent.storage.opening import open_state
from silo_agent.storage.rows import Withdrawals
from silo_agent.storage.state import State
from support.ledgers import NORTH
from support.states import DIGESTS

DAY = date(2026, 3, 1)
RUNNING, OVER = "5" * 64, "6" * 64


def note(folder, *references):
    with Ledger.open(StateFolder(folder).ledger, NORTH, budget_epsilon=10.0) as ledger:
        for reference in references:
            ledger.note("withdrawal", reference)


def head(folder):
    return read_history(StateFolder(folder).ledger)[1][-1].sequence


@pytest.fixture
def state(tmp_path):
    """A folder with a ledger of two entries, a study that runs and one that is over."""
    folder = tmp_path / "state"
    kept = State(folder)
    kept.add_study(RUNNING, b"{}")
    kept.keep_attempt(RUNNING, "here")
    kept.add_study(OVER, b"{}")
    kept.finish(OVER, "finished: all rounds", DAY)
    study = StateFolder(folder).study(OVER)
    kept.study_folder(OVER)
    study.personal.write_bytes(b"private")
    study.model(1).write_bytes(b"shared")
    running = StateFolder(folder).study(RUNNING)
    kept.study_folder(RUNNING)
    (running.path / "releases").mkdir()
    for secret in (running.keys, running.path / "releases" / "0-heads-0.i64", running.path / "attempt-1.safetensors"):
        secret.write_bytes(b"secret")
    for box in (StateFolder(folder).outbox(RUNNING), StateFolder(folder).inbox(RUNNING)):
        box.mkdir(parents=True)
        (box / "a.sealed").write_bytes(b"secret")
    StateFolder(folder).session.write_bytes(b"secret")
    kept.close()
    Ledger.create(StateFolder(folder).ledger, NORTH)
    note(folder, "one", "two")
    return folder


@pytest.fixture
def made(state, tmp_path):
    """A backup of that folder."""
    path = tmp_path / "a.backup"
    make_backup(state, path, version="1.0", day=DAY)
    return path


KEY = FormerKey(Identity(Role.SILO, "north"), new_key()[1])


def put_back(path, folder, key=KEY):
    return restore(path, folder, data_set=NORTH.data_set, day=DAY, key=lambda: key)


def withdrawn(folder, key=KEY):
    return Withdrawals(StateFolder(folder), key, SystemEntropy())


def test_a_backup_comes_back_without_keys_and_ends_what_was_running(made, state, tmp_path):
    shutil.rmtree(state)
    done = put_back(made, state)
    assert (done.manifest.entries, done.ended, done.aside) == (2, (RUNNING,), None)
    kept = State(state)
    assert {digest: why for digest, _, why in kept.studies()} == {
        RUNNING: backups.ENDED,
        OVER: "finished: all rounds",
    }
    assert kept.attempt(RUNNING) is None
    kept.close()
    assert head(state) == 2
    assert StateFolder(state).study(OVER).personal.read_bytes() == b"private"
    assert not [path for path in state.rglob("*") if path.is_file() and path.read_bytes() == b"secret"]
    assert {stat.S_IMODE(path.stat().st_mode) & 0o077 for path in (state, *state.rglob("*"))} == {0}
    assert stat.S_IMODE(made.stat().st_mode) == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.backup", "state"]


def test_nobody_finds_the_noised_counts_of_this_silo_by_trying_them(state, tmp_path):
    """With distributed noise a silo's own release has a fraction of the noise that the sum is charged for."""
    counts, place = np.array([113, 87], np.int64), Place(RUNNING, 0, 1)
    kept = State(state, DIGESTS)
    kept.keep_release(place, Tensor.COUNTS, 1, counts, "a" * 64)
    kept.keep_sealed(Place(RUNNING, 0, 1), "a" * 64, [counts.tobytes()])
    kept.promises.open(place, "a" * 64, ChunkList.of(kept.files.sealed(RUNNING, "a" * 64)).digest)
    standing = hashlib.sha256(counts.tobytes()).hexdigest()
    kept.keep_attempt(RUNNING, standing)
    assert np.array_equal(kept.release(place, Tensor.COUNTS, 1).integers, counts)
    kept.close()
    make_backup(state, tmp_path / "b", version="1.0", day=DAY)
    shutil.rmtree(state)
    put_back(tmp_path / "b", state)
    held = (tmp_path / "b").read_bytes() + b"".join(path.read_bytes() for path in state.rglob("*") if path.is_file())
    tried = 0
    for pair in itertools.product(range(100, 130), range(80, 95)):
        guess = np.array(pair, np.int64).tobytes()
        plain = [hashlib.sha256(guess).hexdigest(), _chunked(guess)]
        tried += any(one.encode() in held or bytes.fromhex(one) in held for one in plain)
        tried += any(DIGESTS.keyed(kind, one).encode() in held for one in plain for kind in get_args(Kind))
    assert tried == 0


def test_a_backup_of_an_earlier_version_is_put_back_without_its_plain_digests(made, state, tmp_path, monkeypatch):
    plain = "d" * 64
    kept = State(state, DIGESTS)
    kept.keep_sealed(Place(RUNNING, 0, 1), "a" * 64, [b"sealed"])
    kept.close()
    with closing(sqlite3.connect(StateFolder(state).database)) as database:
        database.execute("UPDATE sealed SET sha256 = ?", (plain,))
        database.commit()
    with monkeypatch.context() as patch:
        patch.setattr(backups, "blank", lambda _: None)
        make_backup(state, tmp_path / "old", version="0.6", day=DAY)
    assert plain.encode() in (tmp_path / "old").read_bytes()
    put_back(tmp_path / "old", state)
    assert plain.encode() not in StateFolder(state).database.read_bytes()
    open_state(state, KEY, SystemEntropy())[0].close()  # a fresh secret, since nothing rests on the old one


def _chunked(content):
    hasher = ChunkHasher()
    hasher.update(content)
    return hasher.digest


@pytest.mark.skipif(os.geteuid() != 0, reason="not root: no file can be given to somebody else")
def test_what_the_administrator_restores_belongs_to_the_services_user(made, state, tmp_path):
    os.chown(state, 4711, 4712)
    done = put_back(made, state)
    os.chown(tmp_path, 4711, 4712)
    put_back(made, tmp_path / "new")
    for folder in (state, tmp_path / "new"):
        owners = {(path.stat().st_uid, path.stat().st_gid) for path in (folder, *folder.rglob("*"))}
        assert owners == {(4711, 4712)}
    assert done.aside.stat().st_uid == 4711


def test_a_backup_is_made_while_an_agent_holds_the_ledger_but_never_put_back(state, tmp_path):
    with Ledger.open(StateFolder(state).ledger, NORTH, budget_epsilon=10.0) as ledger:
        ledger.note("withdrawal", "three")
        assert make_backup(state, tmp_path / "b", version="1.0", day=DAY).entries == 3
        with pytest.raises(LedgerBusyError, match="stop the other agent"):
            put_back(tmp_path / "b", state)


def test_an_older_ledger_never_replaces_a_newer_one(made, state):
    note(state, "three")
    before = sorted(path.relative_to(state) for path in state.rglob("*"))
    with pytest.raises(BackupError, match="1 entries that the backup lacks"):
        put_back(made, state)
    assert head(state) == 3
    assert set(before) <= {path.relative_to(state) for path in state.rglob("*")}


def test_a_newer_or_equal_ledger_replaces_an_older_one_which_is_kept_aside(made, state, tmp_path):
    old = shutil.copytree(state, tmp_path / "old")
    note(state, "three")
    make_backup(state, tmp_path / "newer", version="1.0", day=DAY)
    done = put_back(tmp_path / "newer", old)
    assert (head(old), head(done.aside)) == (3, 2)
    again = put_back(tmp_path / "newer", old)
    assert again.aside != done.aside
    assert head(old) == 3


def known(folder, *keys):
    """Let the silo meet south with these keys, one admission each; return all that it has met it with."""
    path = StateFolder(folder).known_keys
    memory = KnownKeys(path, keeps=True)
    memory.begin(Identity(Role.SILO, "north"), "0" * 64, enrolled_before=True)
    for key in keys:
        memory.require_newest(Shown("fedward://silo/south", key * 64, 1, key * 64, named=True, made=None))
    return "".join(one.key[0] for one in read_memory(path).pins["fedward://silo/south"])


def test_the_keys_of_others_are_backed_up_and_none_is_forgotten(state, tmp_path):
    known(state, "1")
    path = tmp_path / "b.backup"
    make_backup(state, path, version="1.0", day=DAY)
    known(state, "2")
    put_back(path, state)
    assert known(state) == "12"
    StateFolder(state).known_keys.write_bytes(b"damaged\n")
    put_back(path, state)
    assert known(state) == "1"


@pytest.mark.parametrize(
    ("backed_up", "there", "after"),
    [("7", "10", "10"), ("10", "7", "10"), (None, "7", "7"), ("7", None, "7"), (None, None, None)],
)
def test_a_coordinator_that_was_replaced_stays_so(state, tmp_path, backed_up, there, after):
    path, file = tmp_path / "b.backup", StateFolder(state).coordinator_epoch
    for word in (backed_up, there):
        file.unlink(missing_ok=True)
        if word is not None:
            file.write_text(word)
        if not path.exists():
            make_backup(state, path, version="1.0", day=DAY)
    put_back(path, state)
    assert (file.read_text() if file.exists() else None) == after


def test_a_backup_of_a_version_that_knew_no_keys_takes_none_away(made, state):
    known(state, "1")
    put_back(made, state)
    assert known(state) == "1"


def test_whoever_has_withdrawn_stays_away_by_whichever_of_both_lists(state, tmp_path):
    """A newer backup may come into a folder of last month: neither list is the newer one for certain."""
    withdrawn(state).add("both")
    old = shutil.copytree(state, tmp_path / "old")
    withdrawn(state).add("backup alone")
    make_backup(state, tmp_path / "newer", version="1.0", day=DAY)
    withdrawn(old).add("folder alone")
    other = FormerKey(KEY.identity, new_key()[1])
    with pytest.raises(BackupError, match="does not open both"):
        put_back(tmp_path / "newer", old, other)
    put_back(tmp_path / "newer", old)
    assert withdrawn(old).names() == {"both", "backup alone", "folder alone"}
    (StateFolder(old).withdrawn).unlink()
    put_back(tmp_path / "newer", old)
    assert withdrawn(old).names() == {"both", "backup alone"}
    StateFolder(state).withdrawn.unlink()
    make_backup(state, tmp_path / "without", version="1.0", day=DAY)
    put_back(tmp_path / "without", old)
    assert withdrawn(old).names() == {"both", "backup alone"}


def test_a_ledger_of_another_beginning_stays(made, state):
    StateFolder(state).ledger.unlink()
    Ledger.create(StateFolder(state).ledger, NORTH.__class__(**{**vars_of(NORTH), "delta": 1e-6}))
    with pytest.raises(BackupError, match="another beginning"):
        put_back(made, state)


def vars_of(genesis):
    return {name: getattr(genesis, name) for name in genesis.__dataclass_fields__}


def cosigned(monkeypatch, *sequences):
    """Others have cosigned these entries of the ledger; the backup ends at entry 2."""
    items = tuple(SimpleNamespace(checkpoint=SimpleNamespace(head=EntryRef(number, "0" * 64))) for number in sequences)
    monkeypatch.setattr(CosignatureFile, "latest", lambda _: items)


@pytest.mark.parametrize("sequences", [(7,), (3,), (1, 3), (3, 2)])
def test_what_others_have_cosigned_is_never_lost(made, state, monkeypatch, sequences):
    """Not one entry of it."""
    StateFolder(state).ledger.unlink()
    cosigned(monkeypatch, *sequences)
    with pytest.raises(BackupError, match=rf"cosigned entry {max(sequences)} .*fedward-silo ledger recover"):
        put_back(made, state)


def test_a_backup_that_has_all_that_others_have_cosigned_is_put_back(made, state, monkeypatch):
    StateFolder(state).ledger.unlink()
    cosigned(monkeypatch, 1, 2)
    put_back(made, state)
    assert head(state) == 2


def test_a_damaged_ledger_is_not_judged_but_left_to_a_person(made, state):
    StateFolder(state).ledger.write_bytes(b"no database")
    with pytest.raises(BackupError, match="cannot be compared"):
        put_back(made, state)


def test_a_backup_of_another_data_set_is_refused(made, tmp_path):
    with pytest.raises(BackupError, match="the policy is for other"):
        restore(made, tmp_path / "new", data_set="other", day=DAY, key=lambda: KEY)
    assert not (tmp_path / "new").exists()


def test_without_a_ledger_there_is_no_backup_and_a_file_is_never_replaced(made, state, tmp_path):
    content = made.read_bytes()
    with pytest.raises(BackupError, match="give a new name"):
        make_backup(state, made, version="1.0", day=DAY)
    assert made.read_bytes() == content
    with pytest.raises(BackupError, match="a file outside it"):
        make_backup(state, state / "models", version="1.0", day=DAY)
    StateFolder(state).ledger.unlink()
    with pytest.raises(LedgerMissingError):
        make_backup(state, tmp_path / "none", version="1.0", day=DAY)
    assert not (tmp_path / "none").exists()


def test_a_backup_that_could_not_be_completed_is_removed(state, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(backups, "_add", full)
    with pytest.raises(OSError, match=rf"No space left on device; \d+ bytes are free there: '{tmp_path}/b'"):
        make_backup(state, tmp_path / "b", version="1.0", day=DAY)
    assert [path.name for path in tmp_path.iterdir()] == ["state"]


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
def test_a_backup_that_is_cut_off_is_refused(made, tmp_path, share):
    content = made.read_bytes()
    made.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(BackupError, match="take another"):
        put_back(made, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_backup_that_was_changed_is_refused(made, tmp_path):
    made.write_bytes(made.read_bytes().replace(b"private", b"Private"))
    with pytest.raises(BackupError, match=r"personal\.safetensors is not as it was"):
        put_back(made, tmp_path / "new")


SPARSE = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": str(1 << 50)}


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("../evil", {}),
        ("/absent/evil", {}),
        ("more", {}),
        ("ledger.sqlite3-journal", {}),
        ("session.sealed", {}),
        ("evil", {"type": tarfile.SYMTYPE, "linkname": "/etc", "size": 0}),
        ("evil", {"type": tarfile.LNKTYPE, "linkname": "/etc/passwd", "size": 0}),
        ("evil", {"type": tarfile.FIFOTYPE, "size": 0}),
        ("evil", {"pax_headers": SPARSE}),
        ("evil\udcff", {"type": tarfile.SYMTYPE, "linkname": "x", "size": 0}),
    ],
)
def test_files_that_do_not_belong_there_are_refused(made, tmp_path, name, fields):
    with tarfile.open(made, "a") as archive:
        member = tarfile.TarInfo(name)
        member.size = 4
        for field, value in fields.items():
            setattr(member, field, value)
        archive.addfile(member, io.BytesIO(b"0\n\0\0"))
    with pytest.raises(BackupError, match=r"does not belong|is not as it was") as refused:
        put_back(made, tmp_path / "new" / "state")
    assert str(refused.value).isascii()
    assert not list(tmp_path.rglob("evil*"))


@pytest.mark.parametrize("content", [b"", b"text", b"\0" * 20_480])
def test_what_is_no_backup_is_refused(tmp_path, content):
    (tmp_path / "b").write_bytes(content)
    with pytest.raises(BackupError, match="no backup of an agent"):
        put_back(tmp_path / "b", tmp_path / "new")


@pytest.mark.parametrize("name", ["ledger.sqlite3", "manifest.json", f"studies/{OVER}/personal.safetensors"])
def test_a_name_that_comes_twice_is_refused(made, tmp_path, name):
    """Which of the two counts would be for the reader to say."""
    with tarfile.open(made) as archive:
        member = archive.getmember(name)
        content = archive.extractfile(member).read()
    with tarfile.open(made, "a") as archive:
        archive.addfile(member, io.BytesIO(content))
    with pytest.raises(BackupError, match=f"'{name}' does not belong into a backup"):
        put_back(made, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_the_ledger_of_a_backup_has_every_entry_that_its_state_can_know_of(state, tmp_path, monkeypatch):
    """The agent charges while the copy is made, right after the state was copied."""
    copy = backups._copy_database

    def copying(source, to):
        done = copy(source, to)
        if source == StateFolder(state).database:
            note(state, "three")
        return done

    monkeypatch.setattr(backups, "_copy_database", copying)
    assert make_backup(state, tmp_path / "b", version="1.0", day=DAY).entries == 3


@pytest.fixture
def synced(monkeypatch):
    """Files and folders in the order in which they were synced, and renames between them."""
    done, fsync, rename = [], os.fsync, Path.rename

    def watched(handle):
        path = Path(f"/proc/self/fd/{handle}").readlink()
        done.append((path, path.stat().st_size if path.is_file() else None))
        return fsync(handle)

    def renamed(path, target):
        done.append((path, target))
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", watched)
    monkeypatch.setattr(Path, "rename", renamed)
    return done


def test_a_backup_is_on_the_disk_whole_before_its_command_ends(state, tmp_path, synced):
    out = tmp_path / "b"
    make_backup(state, out, version="1.0", day=DAY)
    assert (out, out.stat().st_size) in synced
    assert (tmp_path, None) in synced[synced.index((out, out.stat().st_size)) :]


def test_what_is_put_back_is_on_the_disk_before_it_has_its_name(made, state, tmp_path, synced):
    new = tmp_path / "new"
    put_back(made, new)
    fresh, moved = next((place, one) for one, (place, target) in enumerate(synced) if target == new)
    before = {path.relative_to(fresh) for path, _ in synced[:moved] if path.is_relative_to(fresh)}
    with tarfile.open(made) as archive:
        files = {Path(name) for name in archive.getnames()} - {Path("manifest.json")}
    assert before >= files
    assert (tmp_path, None) in synced[moved:], "the name itself"


def test_a_database_that_cannot_be_copied_is_told_by_its_reason(state, tmp_path, monkeypatch):
    database = StateFolder(state).database
    whole = database.read_bytes()
    database.write_bytes(b"no database" * 500)
    with pytest.raises(BackupError, match=r"state\.sqlite3: it cannot be read \(.*\); try again, or start the agent"):
        make_backup(state, tmp_path / "b", version="1.0", day=DAY)
    database.write_bytes(whole)
    full = sqlite3.OperationalError("database or disk is full")
    full.sqlite_errorcode = sqlite3.SQLITE_FULL
    monkeypatch.setattr(backups.sqlite3, "connect", lambda *_, **__: MagicMock(backup=MagicMock(side_effect=full)))
    with pytest.raises(BackupError, match=r"there is no room for the backup \(\d+ bytes are free\)"):
        make_backup(state, tmp_path / "b", version="1.0", day=DAY)
    assert not (tmp_path / "b").exists()


def test_nobody_withdraws_while_a_folder_is_put_in_the_place_of_another(made, state, tmp_path, monkeypatch):
    held, alone = [], backups.alone
    monkeypatch.setattr(backups, "alone", lambda files: held.append(files.path) or alone(files))
    put_back(made, state)
    put_back(made, tmp_path / "new")
    assert held == [state], "a folder that is not there has nobody in it"


def test_no_file_with_an_absolute_name_is_one_of_a_backup(made, tmp_path):
    with tarfile.open(made, "a") as archive:
        archive.addfile(tarfile.TarInfo(f"{tmp_path}/evil"), io.BytesIO())
    with pytest.raises(BackupError, match="does not belong into a backup"):
        put_back(made, tmp_path / "new")
    assert not (tmp_path / "evil").exists()


def test_both_lists_of_who_has_withdrawn_count_whichever_comes_first_as_bytes(state, tmp_path):
    withdrawn(state).add("both")
    folders = [shutil.copytree(state, tmp_path / name) for name in ("one", "two")]
    for folder in folders:
        withdrawn(folder).add(f"{folder.name} alone")
    for fresh, there in (folders, folders[::-1]):
        into = shutil.copytree(fresh, tmp_path / f"into-{fresh.name}")
        backups._keep_withdrawals(StateFolder(into), StateFolder(there), lambda: KEY)
        assert withdrawn(into).names() == {"both", "one alone", "two alone"}
