"""The secret of a state folder: made once, and never in the place of a lost one."""

from __future__ import annotations

import pytest

from crypto.pki.at_rest import FormerKey
from crypto.pki.identity import Identity, Role
from crypto.pki.key_files import new_key
from silo_agent.storage.errors import StateError
from silo_agent.storage.folders import StateFolder
from silo_agent.storage.keyed.secret import draws_key, open_secret
from silo_agent.storage.rows import seal_anew
from support.entropy import SeededEntropy

NORTH = Identity(Role.SILO, "north")
KEY, OTHER = (FormerKey(NORTH, new_key()[1]) for _ in range(2))


@pytest.fixture
def files(tmp_path):
    return StateFolder(tmp_path)


def opened(files, key=KEY, *, first=False, seed=1):
    return open_secret(files, key, SeededEntropy(seed), first=first)


def test_it_is_made_once_and_is_the_same_ever_after(files):
    made = opened(files, first=True)
    assert len(made) == 32
    assert opened(files, seed=2) == made
    assert opened(files, seed=3, first=True) == made
    assert made not in files.secret.read_bytes()


def test_a_lost_one_is_never_made_anew(files):
    with pytest.raises(StateError, match=r"secret\.sealed is gone.*fedward-silo restore"):
        opened(files)
    assert not files.secret.exists()


@pytest.mark.parametrize("damage", [lambda blob: blob[:-1], lambda _: b"", lambda blob: blob[:-1] + b"\x00"])
@pytest.mark.parametrize("first", [True, False])
def test_a_damaged_one_is_told_and_stays(files, damage, first):
    opened(files, first=True)
    damaged = damage(files.secret.read_bytes())
    files.secret.write_bytes(damaged)
    with pytest.raises(StateError, match=r"secret\.sealed was sealed by another key, or was changed"):
        opened(files, first=first)
    assert files.secret.read_bytes() == damaged


def test_a_new_key_of_the_silo_opens_it_after_it_was_sealed_anew(files):
    made = opened(files, first=True)
    with pytest.raises(StateError, match="another key"):
        opened(files, OTHER)
    seal_anew(files, KEY, OTHER, SeededEntropy(2))
    assert opened(files, OTHER) == made
    with pytest.raises(StateError, match="another key"):
        opened(files)


def test_the_key_of_draws_follows_from_secret_rows_key_and_study():
    keys = {
        draws_key(secret, rows, study)
        for secret in (b"a" * 32, b"b" * 32)
        for rows in (b"a" * 32, b"b" * 32)
        for study in ("5" * 64, "6" * 64)
    }
    assert len(keys) == 8
