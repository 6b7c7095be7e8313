"""Rows and withdrawals lie sealed on the disk, and open for this silo alone."""

import threading

import pytest

from crypto.entropy import SystemEntropy
from crypto.errors import SealError
from silo_agent.storage.errors import StateError
from silo_agent.storage.folders import StateFolder
from silo_agent.storage.rows import SealedRows, Withdrawals, alone, row_key, rows_of

STUDY = "5" * 64
ENTROPY = SystemEntropy()


@pytest.fixture
def files(tmp_path):
    return StateFolder(tmp_path / "state")


def test_rows_open_for_this_silo_and_this_study_alone(files, credentials):
    rows = rows_of(files.study(STUDY), credentials["north"], ENTROPY)
    assert not rows.kept()
    rows.keep(b"patient 17, ill")
    assert rows_of(files.study(STUDY), credentials["north"], ENTROPY).recall() == b"patient 17, ill"
    for path in files.path.rglob("*.*"):
        assert b"patient" not in path.read_bytes()
        assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(SealError):
        rows_of(files.study(STUDY), credentials["south"], ENTROPY).recall()
    elsewhere = files.study("6" * 64)
    elsewhere.path.mkdir()
    elsewhere.rows.write_bytes(files.study(STUDY).rows.read_bytes())
    elsewhere.row_key.write_bytes(files.study(STUDY).row_key.read_bytes())
    with pytest.raises(SealError):
        rows_of(elsewhere, credentials["north"], ENTROPY).recall()
    key = row_key(files.study(STUDY), credentials["north"], ENTROPY)
    assert SealedRows(files.study(STUDY), lambda: key, frozenset, ENTROPY).recall() == b"patient 17, ill"


def test_the_list_of_withdrawals_only_grows_and_every_withdrawal_shows(files, credentials):
    withdrawals, rows = (
        Withdrawals(files, credentials["north"], ENTROPY),
        rows_of(files.study(STUDY), credentials["north"], ENTROPY),
    )
    stamps = [rows.stamp()]
    for name, first in (("p1", True), ("p2", True), ("p1", False)):
        with alone(files):
            assert withdrawals.add(name) is first
        stamps.append(rows.stamp())
    assert len(set(stamps)) == 4
    assert Withdrawals(files, credentials["north"], ENTROPY).names() == rows.withdrawn() == {"p1", "p2"}
    assert b"p1" not in files.withdrawn.read_bytes()


def test_a_list_that_does_not_open_is_no_empty_list(files, credentials):
    Withdrawals(files, credentials["north"], ENTROPY).add("p1")
    for credential, content in ((credentials["south"], files.withdrawn.read_bytes()), (credentials["north"], b"short")):
        files.withdrawn.write_bytes(content)
        with pytest.raises(StateError, match="enter every withdrawal again"):
            Withdrawals(files, credential, ENTROPY).names()


def test_nobody_withdraws_while_rows_are_kept(files, credentials):
    order = []

    def withdraw():
        with alone(files):
            order.append("withdrawn")

    other = threading.Thread(target=withdraw)
    with rows_of(files.study(STUDY), credentials["north"], ENTROPY).alone():
        other.start()
        other.join(0.2)
        order.append("kept")
    other.join()
    assert order == ["kept", "withdrawn"]
