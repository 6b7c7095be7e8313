"""A copy of the audit log: whole and signed, and what of it was changed is found."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from coordinator.audit_copy import AuditCopy, AuditFileError, read, verdict, written
from crypto.audit_chain import UNKNOWN, AuditStatement, Followed, entry_digest, follow
from crypto.pki.certificates import Trust
from protos.audit import CosignedAudit
from support.certificates import load
from support.people import audit_entry

ENTRIES = tuple(
    replace(audit_entry(action), number=number) for number, action in enumerate(["begin", "create", "start", "abort"])
)


@pytest.fixture(scope="module")
def silos(authority):
    return {name: load(authority.credential("silo", name)) for name in ("north", "south")}


@pytest.fixture(scope="module")
def trust(authority):
    return Trust(authority.pem)


def head_after(entries, number):
    return Followed(number, follow(UNKNOWN.head, [entry_digest(one.content().encode()) for one in entries[:number]]))


def said(silo, credential, now, broke=UNKNOWN):
    signature = credential.sign(AuditStatement(now, broke).to_sign())
    heads = (now.entries, now.head, broke.entries, broke.head)
    return CosignedAudit(silo, *heads, credential.certificate_pem, signature)


def copy_of(silos, entries=ENTRIES, **broke):
    return AuditCopy(
        entries,
        (
            said("north", silos["north"], head_after(ENTRIES, 4), **broke),
            said("south", silos["south"], head_after(ENTRIES, 2)),
        ),
    )


def test_a_whole_log_is_found_whole_and_says_how_far_silos_signed(silos, trust):
    found = verdict(copy_of(silos), trust)
    assert found.faults == ()
    assert found.lines == (
        f"4 entries, head {head_after(ENTRIES, 4).head.hex()}",
        "north signed the first 4",
        "south signed the first 2, not yet the last 2",
    )


def test_a_log_that_nobody_signed_proves_nothing_and_is_not_found_whole(trust):
    """Else who rewrites it would only have to throw the signatures away."""
    assert verdict(AuditCopy(ENTRIES, ()), trust).faults == (
        "no silo has signed it, so nothing shows that it was not rewritten",
    )


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        ((ENTRIES[0], replace(ENTRIES[1], reason="x"), *ENTRIES[2:]), ["north signed another", "south signed another"]),
        ((*ENTRIES[:3], replace(ENTRIES[3], who="fedward://author/ada")), ["north signed another"]),
        (ENTRIES[:3], ["north signed another"]),
        ((*ENTRIES[:2], replace(ENTRIES[3], number=2)), ["north signed another"]),
        (
            (ENTRIES[0], *ENTRIES[2:]),
            ["entry 2 is not where it belongs", "north signed another", "south signed another"],
        ),
        ((), ["entry 0 is not where", "north signed another", "south signed another"]),
    ],
)
def test_an_entry_that_was_changed_or_taken_out_is_found(silos, trust, changed, found):
    faults = verdict(copy_of(silos, changed), trust).faults
    assert len(faults) == len(found)
    assert all(fault.startswith(begin) for fault, begin in zip(faults, found, strict=True))


def test_a_log_that_was_begun_anew_is_told_by_what_silos_remember(silos, trust):
    lost = Followed(9, b"9" * 32)
    (fault,) = verdict(copy_of(silos, broke=lost), trust).faults
    assert fault.startswith("north had followed 9 entries to a head 393939393939 that this log does not")
    kept = head_after(ENTRIES, 3)
    assert verdict(copy_of(silos, broke=kept), trust).faults == (), "the log that it had followed is there again"
    (fault,) = verdict(copy_of(silos, broke=replace(kept, head=b"8" * 32)), trust).faults
    assert "does not have" in fault


def test_a_word_that_the_silo_did_not_sign_is_found(silos, trust, authority):
    now = head_after(ENTRIES, 4)
    honest = said("north", silos["north"], now)
    person = load(authority.credential("viewer", "north"))
    forged = {
        "the signature": replace(honest, signature=silos["south"].sign(b"x")),
        "fedward://silo/south did": replace(said("south", silos["south"], now), silo="north"),
        "fedward://viewer/north did": said("north", person, now),
        " does not fit": replace(honest, broke_entries=1),
    }
    for words, one in forged.items():
        (fault,) = verdict(AuditCopy(ENTRIES, (one,)), trust).faults
        assert fault.startswith("north is said to have signed the log, but")
        assert words in fault


def test_a_file_holds_the_whole_copy(silos, tmp_path):
    path = tmp_path / "audit.jsonl"
    copy = copy_of(silos)
    path.write_bytes(written(copy))
    assert read(path) == copy
    assert [next(iter(json.loads(line))) for line in path.read_text().splitlines()] == ["entry"] * 4 + ["signed"] * 2


@pytest.mark.parametrize(
    "line",
    [
        "",
        "{}",
        "[]",
        "nothing",
        '{"entry": {}}',
        '{"entry": 1}',
        '{"signed": {}}',
        '{"other": {}}',
        '{"signed": {"head": 1}}',
        "[" * 9999,
    ],
)
def test_a_file_of_something_else_is_named_with_the_line(line, silos, tmp_path):
    path = tmp_path / "audit.jsonl"
    path.write_bytes(written(copy_of(silos)) + line.encode() + b"\n")
    with pytest.raises(AuditFileError, match=r"^audit\.jsonl: line 7 is not of an audit log \(\w+\); export it again"):
        read(path)


def test_an_entry_after_a_signature_is_none(silos, tmp_path):
    path = tmp_path / "audit.jsonl"
    first, *_ = written(copy_of(silos)).splitlines(keepends=True)
    path.write_bytes(written(copy_of(silos)) + first)
    with pytest.raises(AuditFileError, match="line 7"):
        read(path)
