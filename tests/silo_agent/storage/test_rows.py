"""Rows and withdrawals lie sealed on the disk, and open for this silo alone."""

import threading

import pytest

from crypto.entropy import SystemEntropy
from silo_agent.storage.errors import LocalFileError, StateError
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
    with pytest.raises(LocalFileError, match=r"rows\.key was sealed by another key, or was changed"):
        rows_of(files.study(STUDY), credentials["south"], ENTROPY).recall()
    elsewhere = files.study("6" * 64)
    elsewhere.path.mkdir()
    elsewhere.rows.write_bytes(files.study(STUDY).rows.read_bytes())
    elsewhere.row_key.write_bytes(files.study(STUDY).row_key.read_bytes())
    with pytest.raises(LocalFileError, match=r"rows\.key was sealed by another key"):
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


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("rows.sealed", b"short", r"rows\.sealed was sealed by another key, or was changed.*remove rows\.sealed and"),
        ("rows.key", b"short", r"rows\.key was sealed by another key, or was changed.*put back rows\.key"),
        ("rows.key", None, r"rows\.key is gone.*put back rows\.key"),
    ],
)
def test_rows_that_do_not_open_are_told_by_file_and_fix_and_nothing_is_made_anew(
    files, credentials, name, content, said
):
    rows = rows_of(files.study(STUDY), credentials["north"], ENTROPY)
    rows.require_whole(begun=True)
    rows.keep(b"patient 17, ill")
    rows.require_whole(begun=True)
    path = files.study(STUDY).path / name
    path.unlink() if content is None else path.write_bytes(content)
    before = {one: one.read_bytes() for one in files.path.rglob("*.*")}
    with pytest.raises(LocalFileError, match=said):
        rows.require_whole(begun=False)
    with pytest.raises(LocalFileError, match=said):
        rows.recall()
    if name == "rows.key":
        with pytest.raises(LocalFileError, match=said):
            rows.keep(b"others")
    assert {one: one.read_bytes() for one in files.path.rglob("*.*")} == before


def test_rows_that_are_gone_are_read_anew_only_before_a_round_or_if_a_person_removed_the_key_too(files, credentials):
    study = files.study(STUDY)
    rows = rows_of(study, credentials["north"], ENTROPY)
    rows.keep(b"patient 17, ill")
    study.rows.unlink()
    rows.require_whole(begun=False)
    again = rows_of(study, credentials["north"], ENTROPY)
    with pytest.raises(LocalFileError, match=r"rows\.sealed is gone"):
        again.require_whole(begun=True)
    study.row_key.unlink()
    rows_of(study, credentials["north"], ENTROPY).require_whole(begun=True)


def test_a_study_that_began_before_rows_were_kept_has_lost_none(files, credentials):
    """Version 0.5 kept neither rows nor key; the key is made when the study is recalled."""
    rows = rows_of(files.study(STUDY), credentials["north"], ENTROPY)
    row_key(files.study(STUDY), credentials["north"], ENTROPY)
    rows.require_whole(begun=True)
