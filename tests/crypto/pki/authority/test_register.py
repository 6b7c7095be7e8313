from __future__ import annotations

import errno
import hashlib
import json
import os
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from crypto.errors import EnrolmentError
from crypto.pki.authority import entries
from crypto.pki.authority import register as register_module
from crypto.pki.authority import root as authority
from crypto.pki.authority.entries import REGISTER_FILE
from crypto.pki.authority.register import HEAD_FILE, Head, Register, RegisterMemory
from crypto.pki.identity import Identity, Role, Subject
from crypto.pki.reading import key_fingerprint, parse_certificate
from support.online import register_of


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
        with register_of(root) as register:
            register.record(pem, subject, ())


def require_free(root, subject):
    with register_of(root) as register:
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
    before, head = path.read_bytes(), (root / HEAD_FILE).read_bytes()
    record(root, pem, west)
    whole = path.read_bytes()
    (root / HEAD_FILE).write_bytes(head)  # it is signed after the entry, and then the call returns
    for end in (*range(len(before), len(whole), 29), len(whole) - 1, len(whole)):
        path.write_bytes(whole[:end])
        with register_of(root) as register:
            assert len(register.entries()) == register.index.count == 1
        assert path.read_bytes() == before
    path.write_bytes(before + bytes(512))
    record(root, pem, west)
    require_free(root, west)


def test_what_the_authority_did_not_sign_is_found_out(root, pem):
    """A line taken away at the end, all hashed anew, lines of somebody else, a head of another or none."""
    record(root, pem, NORTH, silo("south", "south-ward"), silo("west", "west-ward"))
    path, head = root / REGISTER_FILE, root / HEAD_FILE
    whole, signed = path.read_bytes(), head.read_bytes()
    lines = whole.splitlines(keepends=True)
    other = ec.generate_private_key(ec.SECP256R1())
    for content, why in (
        (b"".join(lines[:2]), "has 2 entries that are not the 3 which this authority has signed"),
        (b"", "has 0 entries that are not the 3"),
        (chained(lines[1:]), "has 2 entries that are not the 3"),
        (chained([lines[0].replace(b"north", b"ghost"), *lines[1:]]), "has 3 entries that are not the 3"),
        (chained([*lines, lines[0], lines[1]]), "has 5 entries that are not the 3"),
    ):
        path.write_bytes(content)
        for write in (record, lambda root, pem, subject: require_free(root, subject)):
            with pytest.raises(EnrolmentError, match=why):
                write(root, pem, silo("second", "north-ward"))
    path.write_bytes(whole)
    for content, why in (
        (None, r"issued\.head, which signs the register, is not there"),
        (b"{}", r"issued\.head cannot be read"),
        (signed.replace(b'"entries": 3', b'"entries": 2'), "was not signed by this authority"),
        (resigned(signed, other), "was not signed by this authority"),
    ):
        head.unlink() if content is None else head.write_bytes(content)
        for opened in (register_of(root), Register.open(root)):
            with pytest.raises(EnrolmentError, match=why), opened:
                pass
    head.write_bytes(signed)
    require_free(root, NORTH)


def chained(lines):
    """The lines with their numbers and hashes made to fit, as anybody can."""
    content = b""
    for number, line in enumerate(lines, 1):
        entry = {**json.loads(line), "number": number, "previous": hashlib.sha256(content).hexdigest()}
        content += json.dumps(entry, sort_keys=True).encode() + b"\n"
    return content


def resigned(signed, key):
    head = json.loads(signed)
    message = Head.to_sign(head["entries"], head["sha256"])
    return json.dumps({**head, "signature": key.sign(message, ec.ECDSA(hashes.SHA256())).hex()}).encode()


def test_a_register_of_version_0_6_gets_its_head_with_the_next_entry(root, pem):
    record(root, pem, NORTH, silo("south", "south-ward"))
    path, content = root / REGISTER_FILE, b""
    for line in path.read_bytes().splitlines():
        entry = {**json.loads(line), "previous": hashlib.sha256(content).hexdigest()}
        del entry["number"]
        content += json.dumps(entry, sort_keys=True).encode() + b"\n"
    path.write_bytes(content)
    (root / HEAD_FILE).unlink()
    require_free(root, NORTH)
    assert not (root / HEAD_FILE).exists()
    record(root, pem, silo("west", "west-ward"))
    path.write_bytes(content)
    with pytest.raises(EnrolmentError, match="has 2 entries that are not the 3"):
        require_free(root, NORTH)


def test_the_earliest_date_of_a_revocation_counts_and_no_root_revokes_for_another(root, tmp_path):
    days = [datetime(2026, 1, day, tzinfo=UTC) for day in (5, 9, 3)]
    with register_of(root) as register:
        for day in days:
            register.revoke(7, day, "north", "lost")
        register.take_back(NORTH.identity.uri, "left")
        assert register.index.revoked == {7: days[2]}
        register.revoke(7, days[1], "north", "lost")
        assert register.index.revoked == {7: days[2]}
        assert register.index.revocations == 4
    authority.init(tmp_path / "next", "Next", 100, predecessor=root)
    with register_of(tmp_path / "next") as register:
        assert (register.index.revoked, register.index.taken_back) == ({}, {})


def test_what_a_party_was_admitted_for_is_taken_back_until_it_is_admitted_anew(root, pem):
    record(root, pem, NORTH)
    with register_of(root) as register:
        register.take_back(NORTH.identity.uri, "left")
        assert set(register.index.taken_back) == {NORTH.identity.uri}
        assert [(one["kind"], one.get("reason")) for one in register.entries()][1:] == [("party", "left")]
        assert register.next_number() == 3
        register.take_back(NORTH.identity.uri, "left again")
        assert register.next_number() == 4


def test_the_newest_certificate_of_an_authority_is_known_by_its_name_and_key(root):
    pems = [certificate_of(root, name) for name in ("Online", "Online", "Other")]
    with register_of(root) as register:
        for pem, name in zip(pems, ("Online", "Online", "Other"), strict=True):
            register.delegate(pem, name, ["hub.example"])
        register.take_back("fedward://silo/online", "not an authority")
        serials = [parse_certificate(pem).serial_number for pem in pems]
        assert (register.delegated("Online"), register.delegated("Other")) == (serials[1], serials[2])
        keys = [key_fingerprint(parse_certificate(pem).public_key()) for pem in pems]
        assert [(one["key"], one["hosts"]) for one in register.own()[:3]] == [(key, ["hub.example"]) for key in keys]
        with pytest.raises(EnrolmentError, match="delegated to no authority 'Nobody'"):
            register.delegated("Nobody")


def certificate_of(root, name):
    """A certificate of an authority of that name, here another root's."""
    folder = root.parent / f"{name}-{len(list(root.parent.iterdir()))}"
    authority.init(folder, name, 100)
    return (folder / "authority.pem").read_bytes()


def test_only_the_authority_writes(root, pem):
    with Register.open(root) as register, pytest.raises(EnrolmentError, match="was opened to read"):
        register.record(pem, NORTH, ())
    assert (root / REGISTER_FILE).read_bytes() == b""


def test_an_entry_is_on_the_disk_with_its_head_before_the_call_returns(root, pem, monkeypatch):
    done, real = [], os.fsync

    def noted(handle):
        done.append(Path(f"/proc/self/fd/{handle}").readlink())
        real(handle)

    monkeypatch.setattr(os, "fsync", noted)
    record(root, pem, NORTH)
    assert [one.name for one in done] == [REGISTER_FILE, f".{HEAD_FILE}.new", "root"]


def test_a_program_reads_again_only_what_others_have_written(root, pem, monkeypatch):
    known, key = RegisterMemory(), authority.load(root, None).key
    with Register.open(root, key, known) as register:
        register.record(pem, NORTH, ())
    read = []
    real = entries.Index.add
    monkeypatch.setattr(entries.Index, "add", lambda self, line: read.append(line) or real(self, line))
    with Register.open(root, key, known) as register:
        register.record(pem, silo("south", "south-ward"), ())
    assert len(read) == 1, "the one that it wrote"
    record(root, pem, silo("west", "west-ward"))
    read.clear()
    with Register.open(root, key, known) as register, pytest.raises(EnrolmentError, match="was certified for"):
        register.require_free(silo("other", "west-ward"))
    assert len(read) == 3


def test_what_could_not_be_written_is_not_remembered(root, pem, monkeypatch):
    known, key = RegisterMemory(), authority.load(root, None).key

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    for target, name in ((os, "fsync"), (register_module, "replace")):
        with monkeypatch.context() as patch, Register.open(root, key, known) as register:
            patch.setattr(target, name, full)
            with pytest.raises(EnrolmentError, match="cannot be written"):
                register.record(pem, NORTH, ())
            patch.undo()
            with pytest.raises(EnrolmentError, match="was opened to read"):
                register.record(pem, NORTH, ())
        with Register.open(root, key, known) as register:
            assert register.index.count == 0
    record(root, pem, silo("other", "north-ward"))


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
    with register_of(root) as register:
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
    with register_of(root) as register:
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
