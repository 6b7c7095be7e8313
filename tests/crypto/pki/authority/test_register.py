from __future__ import annotations

import errno
import hashlib
import json
import os
import threading

import pytest

from crypto.errors import EnrolmentError
from crypto.pki.authority import root as authority
from crypto.pki.authority.register import REGISTER_FILE, Register
from crypto.pki.identity import Identity, Role, Subject


def silo(name, data_set):
    return Subject(Identity(Role.SILO, name), data_set)


NORTH = silo("north", "north-ward")


@pytest.fixture
def root(tmp_path):
    authority.init(tmp_path / "root", "Root", 100)
    return tmp_path / "root"


@pytest.fixture
def pem(root):
    return (root / "authority.pem").read_bytes()


def record(root, pem, *subjects):
    for subject in subjects:
        with Register.open(root) as register:
            register.record(pem, subject, ())


def require_free(root, subject):
    with Register.open(root) as register:
        register.require_free(subject)


def test_who_is_certified_stands_there(root, pem):
    record(root, pem, NORTH, Subject(Identity(Role.OPERATOR, "ada")))
    entries = [json.loads(line) for line in (root / REGISTER_FILE).read_text().splitlines()]
    assert [(entry["identity"], entry["data_set"]) for entry in entries] == [
        ("fedward://silo/north", "north-ward"),
        ("fedward://operator/ada", None),
    ]


def test_only_what_contradicts_is_refused(root, pem):
    record(root, pem, NORTH, silo("south", "south-ward"), Subject(Identity(Role.OPERATOR, "ada")))
    for subject in (NORTH, silo("west", "north"), Subject(Identity(Role.OPERATOR, "north"))):
        require_free(root, subject)
    for name, data_set in (("north", "new"), ("new", "north-ward"), ("north", "south-ward")):
        with pytest.raises(EnrolmentError, match="was certified for"):
            require_free(root, silo(name, data_set))


def test_a_silo_of_an_older_register_is_bound_by_its_next_certificate(root, pem):
    (root / REGISTER_FILE).write_text('{"identity": "fedward://silo/north", "serial": "1"}\n')
    require_free(root, silo("north", "clinic"))
    record(root, pem, NORTH)
    with pytest.raises(EnrolmentError, match="was certified for the data set north-ward"):
        require_free(root, silo("north", "clinic"))


@pytest.mark.parametrize(
    "line",
    [
        b"\n",
        b"[]\n",
        b"\xff\n",
        b"{}\n",
        b'{"identity": "north", "data_set": null}\n',
        b'{"identity": "fedward://silo/a", "data_set": 7}\n',
        b'{"identity": "fedward://operator/a", "data_set": "a"}\n',
        b'{"identity": "fedward://silo/a", "data_set": "a"}',
        b"[" * 100_000 + b"\n",
    ],
)
def test_a_register_that_cannot_be_read_certifies_nobody(root, pem, line):
    record(root, pem, NORTH)
    with (root / REGISTER_FILE).open("ab") as register:
        register.write(line)
    with pytest.raises(EnrolmentError, match=r"issued\.jsonl: line 2 is no entry of the register"):
        require_free(root, silo("west", "west-ward"))


def test_an_entry_that_a_crash_cut_short_anywhere_is_taken_away_and_nothing_else(root, pem):
    path, west = root / REGISTER_FILE, silo("west", "west-ward")
    record(root, pem, NORTH)
    before = path.read_bytes()
    record(root, pem, west)
    whole = path.read_bytes()
    for end in (*range(len(before), len(whole), 29), len(whole) - 1):
        path.write_bytes(whole[:end])
        with Register.open(root) as register:
            assert len(register.entries()) == 1
        assert path.read_bytes() == before
    path.write_bytes(before + bytes(512))
    record(root, pem, west)
    require_free(root, west)


def test_a_register_that_is_lost_or_full_certifies_nobody(root, pem, monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(EnrolmentError, match="cannot be written"):
            record(root, pem, NORTH)
    assert (root / REGISTER_FILE).read_bytes() == b""
    (root / REGISTER_FILE).unlink()
    with pytest.raises(EnrolmentError, match="cannot be opened"):
        require_free(root, NORTH)


def test_one_waits_for_the_other(root, pem):
    refused = []

    def other():
        try:
            require_free(root, silo("new", "north-ward"))
        except EnrolmentError as error:
            refused.append(error)

    thread = threading.Thread(target=other)
    with Register.open(root) as register:
        register.require_free(NORTH)
        thread.start()
        thread.join(0.2)
        assert thread.is_alive()
        register.record(pem, NORTH, ())
    thread.join(300)
    assert len(refused) == 1


def test_who_changes_or_removes_an_entry_is_found_out(root, pem):
    record(root, pem, NORTH, silo("south", "south-ward"), silo("west", "west-ward"))
    path = root / REGISTER_FILE
    lines = path.read_bytes().splitlines(keepends=True)
    for changed in (lines[1:], [lines[0], lines[2]], [lines[0].replace(b"north-ward", b"new-ward"), *lines[1:]]):
        path.write_bytes(b"".join(changed))
        with pytest.raises(EnrolmentError, match="does not follow from the lines before it"):
            record(root, pem, silo("new", "new"))
    path.write_bytes(b"".join(lines))
    with Register.open(root) as register:
        assert register.head() == hashlib.sha256(b"".join(lines)).hexdigest()


def test_entries_of_version_05_may_stand_before_the_chain_alone(root, pem):
    path = root / REGISTER_FILE
    old = json.dumps({"identity": "fedward://silo/north", "data_set": "north-ward", "serial": "ab"}) + "\n"
    path.write_text(old)
    record(root, pem, silo("south", "south-ward"))
    with pytest.raises(EnrolmentError, match="was certified for"):
        require_free(root, silo("new", "north-ward"))
    with path.open("a") as register:
        register.write(old)
    with pytest.raises(EnrolmentError, match="line 3 does not follow"):
        require_free(root, NORTH)
