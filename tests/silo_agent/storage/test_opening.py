"""An agent's state folder at the start: whole, of an earlier version, or not as it was left."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import numpy as np
import pytest

from crypto.pki.at_rest import FormerKey
from crypto.pki.identity import Identity, Role
from crypto.pki.key_files import new_key
from protos.chunks import ChunkList
from protos.messages import Place, Tensor
from silo_agent.storage.errors import StateError, SumError
from silo_agent.storage.folders import StateFolder
from silo_agent.storage.opening import open_state
from support.entropy import SeededEntropy

KEY = FormerKey(Identity(Role.SILO, "north"), new_key()[1])
STUDY = "5" * 64
PLACE = Place(STUDY, 2, 3)
INTEGERS = np.array([5, -7, 2**30], np.int64)
LABEL, OTHER = "a" * 64, "b" * 64
SUM = "1" * 64


def opened(folder, seed=1):
    return open_state(folder, KEY, SeededEntropy(seed))[0]


@pytest.fixture
def folder(tmp_path):
    """A folder of 0.6 in the middle of a study: it has no secret, and its digests are plain."""
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
        with pytest.raises(SumError):
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
