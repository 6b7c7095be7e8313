"""Which keys a party knows: what is taken at first sight, what is refused, and what survives."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from crypto.errors import CertificateError
from crypto.pki import known_keys
from crypto.pki.admission import Token
from crypto.pki.authority import building, readmission, root
from crypto.pki.authority.building import read_request
from crypto.pki.authority.issuing import IssuingAuthority
from crypto.pki.authority.readmission import READMISSIONS_FILE
from crypto.pki.certificates import Credential, Trust
from crypto.pki.enrolment import create_request
from crypto.pki.identity import Identity, Role
from crypto.pki.known_keys import KnownKeys, Memory, Pin, Shown, read_memory, read_peers
from support.online import Online, subject, week

NOW = datetime.now(UTC).replace(microsecond=0)
HOUR = timedelta(hours=1)
ME, NORTH = Identity(Role.SILO, "me"), "fedward://silo/north"
FIRST, SECOND = "1" * 64, "2" * 64


def shown(key=FIRST, *, admission="a" * 64, number=3, named=False, made=NOW + HOUR):
    return Shown(NORTH, admission, number, key, named, made)


def remembering(tmp_path, *, enrolled_before=False):
    keys = KnownKeys(tmp_path / "known.jsonl", tmp_path / "peers.txt", keeps=True)
    keys.begin(ME, "0" * 64, enrolled_before=enrolled_before)
    return keys


def meet(keys, one):
    keys.require(one)
    keys.require_newest(one)


def test_who_was_admitted_after_the_memory_began_is_met_at_first_sight_and_keeps_the_key(tmp_path):
    meet(remembering(tmp_path), shown())
    again = remembering(tmp_path)  # a restart
    meet(again, shown())
    meet(again, shown(admission="b" * 64, number=4))  # the same key under another admission
    for other in (shown(SECOND), shown(SECOND, admission="c" * 64, number=9)):
        with pytest.raises(CertificateError, match=f"this party has met it with {FIRST}; a party changes its key only"):
            again.require(other)


def test_who_was_admitted_before_is_known_by_name_or_by_comparing(tmp_path):
    keys = remembering(tmp_path)
    for made in (None, NOW - HOUR):
        with pytest.raises(CertificateError, match="this party has not met it before; have the root admit everybody"):
            keys.require(shown(made=made))
    meet(keys, shown(named=True, made=None))
    meet(keys, shown(made=None))
    assert len(read_memory(tmp_path / "known.jsonl").pins[NORTH]) == 1


def test_a_party_of_version_0_6_takes_everybody_as_it_finds_them_once(tmp_path):
    keys = remembering(tmp_path, enrolled_before=True)
    assert "as it finds them now" in keys.just_begun()
    assert keys.just_begun() is None
    meet(keys, shown(number=0, made=None))
    with pytest.raises(CertificateError, match="has met it with"):
        keys.require(shown(SECOND, number=0, made=None))
    with pytest.raises(CertificateError, match="has met it with"):
        keys.require(shown(SECOND, admission="b" * 64, number=0, made=None))
    assert remembering(tmp_path).just_begun() is None


def test_nobody_without_a_memory_takes_anybody_at_first_sight(tmp_path):
    for keys in (KnownKeys(), KnownKeys(None, tmp_path / "peers.txt")):
        keys.begin(ME, "0" * 64, enrolled_before=True)
        with pytest.raises(CertificateError, match="has not met it before"):
            keys.require(shown())
        meet(keys, shown(named=True))
        meet(keys, Shown(ME.uri, "a" * 64, 1, "0" * 64, named=False, made=None))
        with pytest.raises(CertificateError, match="has not met it before"):
            keys.require(shown())


def test_a_newer_admission_supersedes_older_ones_with_another_key(tmp_path):
    keys = remembering(tmp_path)
    meet(keys, shown())
    changed = shown(SECOND, admission="b" * 64, number=4, named=True)
    meet(keys, changed)
    keys.require(shown())  # what it signed before stays its own
    with pytest.raises(CertificateError, match=f"the root has since admitted it with another, {SECOND}"):
        keys.require_newest(shown())
    with pytest.raises(CertificateError, match="has since admitted it with another"):
        meet(keys, shown("3" * 64, admission="d" * 64, number=2, named=True))
    with pytest.raises(CertificateError, match=f"this party has met it with {SECOND}"):
        keys.require(shown("3" * 64, admission="e" * 64, number=1))


def test_what_a_person_has_compared_counts_and_nothing_else_of_that_party(tmp_path):
    keys, peers = remembering(tmp_path), tmp_path / "peers.txt"
    peers.write_text(f"# compared on Monday\n\n{NORTH} {FIRST}  # by telephone\n")
    meet(keys, shown(made=None))
    with pytest.raises(CertificateError, match=r"peers\.txt has another; compare it with the party"):
        keys.require(shown(SECOND, admission="b" * 64))
    peers.write_text(f"{NORTH} {SECOND}\n")
    meet(keys, shown(SECOND, admission="b" * 64, number=2))
    keys.require(shown(made=None))  # it was met with this admission, and can be known by it
    peers.unlink()
    meet(keys, shown(SECOND, admission="c" * 64, number=9))


@pytest.mark.parametrize("line", [NORTH, f"{NORTH} {'A' * 64}", f"{NORTH} {FIRST} x", f"{NORTH} {FIRST[1:]}"])
def test_a_line_that_cannot_be_read_is_named(tmp_path, line):
    (tmp_path / "peers.txt").write_text(f"{NORTH} {FIRST}\n{line}\n")
    with pytest.raises(CertificateError, match=r"peers\.txt: line 2 is no party's URI"):
        read_peers(tmp_path / "peers.txt")


def test_two_programs_share_the_memory_and_only_who_keeps_it_writes(tmp_path):
    keeper, beside = remembering(tmp_path), KnownKeys(tmp_path / "known.jsonl")
    beside.begin(ME, "0" * 64, enrolled_before=False)
    meet(keeper, shown())
    with pytest.raises(CertificateError, match="has met it with"):
        beside.require(shown(SECOND))
    content = (tmp_path / "known.jsonl").read_bytes()
    meet(beside, shown(admission="b" * 64))
    assert (tmp_path / "known.jsonl").read_bytes() == content
    other = remembering(tmp_path)
    meet(other, shown(admission="c" * 64))
    meet(keeper, shown(admission="d" * 64))
    assert [one.admission[0] for one in read_memory(tmp_path / "known.jsonl").pins[NORTH]] == ["a", "c", "d"]


def test_it_is_on_the_disk_before_it_counts(tmp_path, monkeypatch):
    keys, synced = remembering(tmp_path), []
    real = os.fsync

    def noted(handle):
        synced.append((tmp_path / "known.jsonl").read_bytes())
        real(handle)

    monkeypatch.setattr(os, "fsync", noted)
    meet(keys, shown())
    assert synced == [(tmp_path / "known.jsonl").read_bytes()], "all of it had left the program by then"
    assert FIRST.encode() in synced[0]

    def full(_handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CertificateError, match=r"cannot be written .*, so nobody new is accepted"):
        meet(keys, shown(admission="b" * 64))


@pytest.mark.parametrize(
    ("spoil", "line"),
    [
        (lambda lines: [], 1),
        (lambda lines: lines[1:], 1),
        (lambda lines: [lines[0].replace(b'"format": 1', b'"format": 2'), lines[1]], 1),
        (lambda lines: [lines[0].replace(b"+00:00", b""), lines[1]], 1),
        (lambda lines: [lines[0], lines[1].replace(b"1" * 64, b"1" * 63)], 2),
        (lambda lines: [lines[0], lines[1].replace(b"north", b"North")], 2),
        (lambda lines: [lines[0], lines[1][:40] + b"\n"], 2),
        (lambda lines: [lines[0], b"[]\n"], 2),
    ],
)
def test_a_damaged_memory_is_told_and_not_begun_anew(tmp_path, spoil, line):
    meet(remembering(tmp_path), shown())
    path = tmp_path / "known.jsonl"
    path.write_bytes(b"".join(spoil(path.read_bytes().splitlines(keepends=True))))
    with pytest.raises(CertificateError, match=rf"known\.jsonl: line {line} is damaged"):
        remembering(tmp_path)


def test_a_line_that_a_crash_cut_off_is_written_over(tmp_path):
    meet(remembering(tmp_path), shown())
    path = tmp_path / "known.jsonl"
    path.write_bytes(path.read_bytes() + b'{"identity": "fed')
    meet(remembering(tmp_path), shown(admission="b" * 64))
    assert len(path.read_bytes().splitlines()) == 3
    assert len(read_memory(path).pins[NORTH]) == 2


def test_what_another_copy_remembers_is_added(tmp_path):
    meet(remembering(tmp_path), shown())
    pins = [Pin(NORTH, "a" * 64, 3, FIRST), Pin(NORTH, "b" * 64, 4, SECOND)]
    for _ in range(2):
        known_keys.add(tmp_path / "known.jsonl", Memory().with_pins(pins))
    found = read_memory(tmp_path / "known.jsonl")
    assert list(found.pins[NORTH]) == pins
    assert json.loads((tmp_path / "known.jsonl").read_bytes().splitlines()[0])["open"] is False


def test_of_two_admissions_without_a_number_neither_supersedes_the_other():
    memory = Memory().with_pins([Pin(NORTH, "a" * 64, 0, FIRST), Pin(NORTH, "b" * 64, 0, SECOND)])
    for one in (shown(number=0), shown(SECOND, number=0)):
        assert memory.superseded(one) is None


# --- certificates ---------------------------------------------------------------------------------------------------
def credential(home, **given):
    return Credential.load(home / "certificate.pem", home / "key.pem", home / "authority.pem", **given)


def forged(online, home):
    """A certificate for a key of the thief's own, with the admission that everybody sees in the party's certificate."""
    pem = (home / "certificate.pem").read_bytes()
    holder = Trust.load(home / "authority.pem").vouched(pem)
    key = ec.generate_private_key(ec.SECP256R1())
    admission = holder.admission[0]
    return building.leaf(
        admission.subject, admission.hosts, key.public_key(), week(), online.stolen.above, admission=admission
    )


def test_nobody_who_was_met_is_forged_with_the_issuing_key(tmp_path):
    online = Online(tmp_path / "online")
    me = online.enrol("silo", "me")
    begun = credential(me, memory=tmp_path / "known.jsonl", keeps=True).trust
    time_passes(tmp_path / "known.jsonl")
    others = [online.enrol("silo", name, named=False) for name in ("a", "b")]
    others.append(online.enrol("coordinator", "hub", named=False))
    for home in others:
        begun.identify((home / "certificate.pem").read_bytes())
    for trust in (begun, begun.begun(datetime.now(UTC)), credential(me, memory=tmp_path / "known.jsonl").trust):
        for home in others:
            with pytest.raises(CertificateError, match="this party has met it with"):
                trust.examine(forged(online, home))
            trust.identify((home / "certificate.pem").read_bytes())
    with pytest.raises(CertificateError, match="and admitted is the key with"):
        begun.examine(forged(online, me))


def time_passes(memory):
    """Let the memory have begun some seconds ago: what an admission says is rounded to seconds."""
    first, *others = memory.read_bytes().splitlines(keepends=True)
    header = {**json.loads(first), "begun": (NOW - HOUR).isoformat()}
    memory.write_bytes(json.dumps(header).encode() + b"\n" + b"".join(others))


def test_only_a_certificate_that_counts_is_remembered(tmp_path):
    online = Online(tmp_path / "online")
    trust = credential(online.enrol("silo", "me"), memory=tmp_path / "known.jsonl", keeps=True).trust
    time_passes(tmp_path / "known.jsonl")
    home = online.enrol("silo", "north", named=False)
    fake = forged(online, home)
    with pytest.raises(CertificateError, match="but a coordinator is needed"):
        trust.identify(fake, role=Role.COORDINATOR)
    with pytest.raises(CertificateError, match="expired"):
        trust.identify(fake, now=NOW + timedelta(days=30))
    trust.identify(fake, as_of=datetime.now(UTC))
    assert NORTH not in read_memory(tmp_path / "known.jsonl").pins
    trust.identify((home / "certificate.pem").read_bytes())
    with pytest.raises(CertificateError, match="has met it with"):
        trust.identify(fake, as_of=datetime.now(UTC))


def test_readmissions_name_the_keys_and_nobody_claims_them_first(tmp_path):
    online = Online(tmp_path / "online")
    home, me = online.enrol("silo", "north", named=False), online.enrol("silo", "me")
    trust = credential(me).trust
    with pytest.raises(CertificateError, match="has not met it before"):
        trust.examine((home / "certificate.pem").read_bytes())
    key = read_request((home / "request.csr").read_bytes()).fingerprint
    assert online.authority.keys()[NORTH] == key
    made = root.readmit(online.root, days=310, keys=online.authority.keys())
    assert {one.subject.identity.uri: one.key for one in made}[NORTH] == key
    (online.issuing / READMISSIONS_FILE).write_bytes(readmission.to_json(made))
    online.authority = IssuingAuthority.load(online.issuing)
    online.renew(home)
    assert trust.identify((home / "certificate.pem").read_bytes()).name == "north"
    with pytest.raises(CertificateError, match="and admitted is the key with"):
        trust.examine(forged(online, home))


def test_a_new_key_is_taken_under_an_admission_that_names_it_and_the_old_one_counts_no_more(tmp_path):
    online = Online(tmp_path / "online")
    home, me = online.enrol("silo", "north"), online.enrol("silo", "me")
    trust = credential(me, memory=tmp_path / "known.jsonl", keeps=True).trust
    former = (home / "certificate.pem").read_bytes()
    trust.identify(former)
    unnamed = online.enrol("silo", "north", home=tmp_path / "unnamed", named=False)
    with pytest.raises(CertificateError, match="a party changes its key only by an admission that names the new one"):
        trust.examine((unnamed / "certificate.pem").read_bytes())
    named = online.enrol("silo", "north", home=tmp_path / "named")
    trust.identify((named / "certificate.pem").read_bytes())
    trust.examine(former)
    with pytest.raises(CertificateError, match="the root has since admitted it with another"):
        trust.identify(former)


def test_who_was_enrolled_by_version_0_6_begins_an_open_memory_and_nobody_else(tmp_path):
    online = Online(tmp_path / "online")
    new, asked = online.enrol("silo", "new"), create_request(tmp_path / "old", subject("silo", "old")).read_bytes()
    token = online.admit("silo", "old")
    former = replace(token.admission, made=None, number=0).signed(root.load(online.root, None).key)
    old = tmp_path / "old"
    (old / "certificate.pem").write_bytes(online.authority.redeem(asked, Token(former, token.secret)))
    (old / "authority.pem").write_bytes(online.pem)
    online.bring_lists(old)
    for home, opened in ((new, False), (old, True)):
        credential(home, memory=home / "known.jsonl", keeps=True)
        assert read_memory(home / "known.jsonl").open is opened
    with pytest.raises(CertificateError, match="this party has not met it before"):
        credential(new).trust.examine((old / "certificate.pem").read_bytes())


def test_a_memory_that_cannot_be_opened_is_told(tmp_path):
    with pytest.raises(CertificateError, match=r"known\.jsonl cannot be read \(No such file or directory\); fix its"):
        read_memory(tmp_path / "known.jsonl")
