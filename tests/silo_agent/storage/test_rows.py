"""Rows and withdrawals lie sealed on the disk, and open for this silo alone."""

import threading

import pytest

from common import file_lock
from crypto.entropy import SystemEntropy
from crypto.pki.at_rest import Vault
from silo_agent.storage.errors import LocalFileError, StateError
from silo_agent.storage.folders import StateFolder
from silo_agent.storage.keyed.secret import PURPOSE as STATE_SECRET
from silo_agent.storage.rows import (
    SealedRows,
    Withdrawals,
    alone,
    join,
    kept_rows,
    row_key,
    rows_of,
    seal_anew,
    withdrawn_of,
)

STUDY = "5" * 64
ENTROPY = SystemEntropy()


@pytest.fixture
def files(tmp_path):
    return StateFolder(tmp_path / "state")


def test_rows_open_for_this_silo_and_this_study_alone(files, credentials):
    rows = rows_of(files.study(STUDY), credentials["north"], ENTROPY)
    assert not rows.kept()
    rows.keep([b"patient 17, ill"])
    assert b"".join(rows_of(files.study(STUDY), credentials["north"], ENTROPY).recall()) == b"patient 17, ill"
    for path in files.path.rglob("*.*"):
        assert b"patient" not in path.read_bytes()
        assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(LocalFileError, match=r"rows\.key was sealed by another key, or was changed"):
        list(rows_of(files.study(STUDY), credentials["south"], ENTROPY).recall())
    elsewhere = files.study("6" * 64)
    elsewhere.path.mkdir()
    elsewhere.rows.write_bytes(files.study(STUDY).rows.read_bytes())
    elsewhere.row_key.write_bytes(files.study(STUDY).row_key.read_bytes())
    with pytest.raises(LocalFileError, match=r"rows\.key was sealed by another key"):
        list(rows_of(elsewhere, credentials["north"], ENTROPY).recall())
    key = row_key(files.study(STUDY), credentials["north"], ENTROPY)
    assert b"".join(SealedRows(files.study(STUDY), lambda: key, frozenset, ENTROPY).recall()) == b"patient 17, ill"


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
    rows.keep([b"patient 17, ill"])
    rows.require_whole(begun=True)
    path = files.study(STUDY).path / name
    path.unlink() if content is None else path.write_bytes(content)
    before = {one: one.read_bytes() for one in files.path.rglob("*.*")}
    with pytest.raises(LocalFileError, match=said):
        rows.require_whole(begun=False)
    with pytest.raises(LocalFileError, match=said):
        list(rows.recall())
    if name == "rows.key":
        with pytest.raises(LocalFileError, match=said):
            rows.keep([b"others"])
    assert {one: one.read_bytes() for one in files.path.rglob("*.*")} == before


def test_rows_that_are_gone_are_read_anew_only_before_a_round_or_if_a_person_removed_the_key_too(files, credentials):
    study = files.study(STUDY)
    rows = rows_of(study, credentials["north"], ENTROPY)
    rows.keep([b"patient 17, ill"])
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


def test_a_new_key_opens_what_the_former_one_sealed_and_a_second_try_changes_nothing(files, credentials):
    north, south = credentials["north"], credentials["south"]
    Withdrawals(files, north, ENTROPY).add("p1")
    rows_of(files.study(STUDY), north, ENTROPY).keep([b"patient 17, ill"])
    files.secret.write_bytes(Vault(north, STATE_SECRET, ENTROPY).seal(b"secret"))
    seal_anew(files, north, south, ENTROPY)
    assert Withdrawals(files, south, ENTROPY).names() == {"p1"}
    assert b"".join(rows_of(files.study(STUDY), south, ENTROPY).recall()) == b"patient 17, ill"
    assert Vault(south, STATE_SECRET, ENTROPY).open(files.secret.read_bytes()) == b"secret"
    sealed = {one: one.read_bytes() for one in files.path.rglob("*.*")}
    seal_anew(files, north, south, ENTROPY)
    assert {one: one.read_bytes() for one in files.path.rglob("*.*")} == sealed
    files.secret.write_bytes(b"short")
    with pytest.raises(StateError, match=f"{files.secret.name} in .* opens neither with the former key nor with"):
        seal_anew(files, north, south, ENTROPY)


def test_a_new_key_begins_with_a_list_of_withdrawals_where_there_was_none(files, credentials):
    seal_anew(files, credentials["north"], credentials["south"], ENTROPY)
    assert files.withdrawn.exists()
    assert withdrawn_of(files, lambda: credentials["south"]) == frozenset()
    with pytest.raises(StateError):
        withdrawn_of(files, lambda: credentials["north"])


def test_a_folder_s_list_has_everybody_of_another_one_s_after_they_were_joined(files, credentials, tmp_path):
    north, others = credentials["north"], StateFolder(tmp_path / "other")
    Withdrawals(files, north, ENTROPY).add("p1")
    with alone(others):
        Withdrawals(others, north, ENTROPY).add("p2")
    join(files, others, north, ENTROPY)
    assert withdrawn_of(files, lambda: north) == {"p1", "p2"}
    assert withdrawn_of(others, lambda: north) == {"p2"}


def test_whoever_only_reads_makes_nothing_and_needs_no_key_for_nothing(files, credentials):
    def no_key():
        pytest.fail("the key was asked for")

    assert withdrawn_of(files, no_key) == frozenset()
    assert list(kept_rows(files, no_key)) == []
    for study, content in (("5" * 64, b"first"), ("6" * 64, b"second")):
        rows_of(files.study(study), credentials["north"], ENTROPY).keep([content])
    row_key(files.study("55" + "7" * 62), credentials["north"], ENTROPY)
    assert [b"".join(one) for one in kept_rows(files, lambda: credentials["north"])] == [b"first", b"second"]


def test_who_holds_the_folder_alone_owns_what_it_makes(files, monkeypatch):
    given = []
    monkeypatch.setattr(file_lock, "give_to_owner", lambda _, place: given.append(place))
    with alone(files):
        assert given == [files.path]
    assert files.path.stat().st_mode & 0o777 == 0o700
    assert files.withdrawing.stat().st_mode & 0o777 == 0o600


def test_rows_that_were_kept_once_are_missed_by_whoever_kept_them(files, credentials):
    rows = rows_of(files.study(STUDY), credentials["north"], ENTROPY)
    rows.keep([b"patient 17, ill"])
    files.study(STUDY).rows.unlink()
    with pytest.raises(LocalFileError, match=r"rows\.sealed is gone"):
        rows.require_whole(begun=True)
    with pytest.raises(LocalFileError, match=r"rows\.sealed cannot be read \(No such file or directory\)"):
        list(rows.recall())


def test_a_list_that_is_not_there_has_no_stamp_and_each_has_its_own(files, credentials):
    rows = rows_of(files.study(STUDY), credentials["north"], ENTROPY)
    assert rows.stamp() is None
    Withdrawals(files, credentials["north"], ENTROPY).add("p1")
    found = files.withdrawn.stat()
    assert rows.stamp() == (found.st_mtime_ns, found.st_ino)
