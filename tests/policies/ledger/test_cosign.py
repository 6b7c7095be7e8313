from __future__ import annotations

import contextlib
import json
import math
import os
import resource
import tempfile
from dataclasses import FrozenInstanceError, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.accounting import accountant, totals
from policies.errors import CosignError, LedgerRolledBackError, LedgerShortError, LedgerWriteError
from policies.ledger.chain import Entry, Genesis, genesis_row, next_entry
from policies.ledger.cosign import (
    MAX_BYTES,
    SILO,
    Checkpoint,
    Cosignature,
    CosignatureFile,
    advance,
    check,
    checkpoint,
    gap,
    read_cosignatures,
    require_head,
)
from policies.ledger.events import EXHAUSTED, Debit, EntryRef, Recovery, costs_of
from policies.plan.cost import Cost
from support import bending

AT = "2026-01-31T08:00:00+00:00"
GENESIS = Genesis("ward", 0.2, 1e-5)
NOISES = (40.0, 55.0, 70.0)
HUB, SOUTH, NORTH = "fedward://coordinator/hub", "fedward://silo/south", "fedward://silo/north"


def grown(entries: tuple[Entry, ...], *noises: float, branch: str = "s") -> tuple[Entry, ...]:
    """The chain with one more debit for each noise."""
    found = list(entries)
    for noise in noises:
        head = found[-1].head if found else EntryRef(0, genesis_row(GENESIS)[2])
        debit = Debit(branch, "p", head.sequence, 1, {"heads": Cost("training", 1.0, noise, 1)})
        held = [cost for entry in found for cost in costs_of(entry.event)]
        found.append(next_entry(head, debit, AT, accountant.epsilon([*held, *debit.costs.values()], 1e-5)))
    return tuple(found)


def stated(entries: tuple[Entry, ...], known: tuple[EntryRef, ...] = ()) -> Checkpoint:
    return checkpoint("north", GENESIS, entries, AT, known)


def signed(item: Checkpoint, signer: str = HUB) -> Cosignature:
    signature = b"signed " + item.message[:20]
    return Cosignature(item, signer, signer.encode(), signature, f"{SILO}{item.silo}".encode(), signature)


def verify(certificate: bytes, message: bytes, signature: bytes, at: str | None) -> str:
    """Stands for the authority's check: the certificate is the name, the signature begins like the message."""
    if signature != b"signed " + message[:20]:
        msg = "the signature does not fit"
        raise ValueError(msg)
    return certificate.decode()


def costs(entries: tuple[Entry, ...]) -> tuple[Cost, ...]:
    return tuple(cost for entry in entries for cost in costs_of(entry.event))


def test_a_checkpoint_says_where_the_ledger_stands():
    entries = grown((), *(NOISES * 4))
    item = stated(entries)
    assert item.head == entries[-1].head
    assert item.epsilon == entries[-1].epsilon
    assert item.totals == totals.merged(costs(entries))
    assert [anchor.sequence for anchor in item.anchors] == [0, 4, 8, 10, 11]
    assert stated(entries, (entries[4].head, EntryRef(6, "f" * 64))).anchors[1:3] == (entries[3].head, entries[4].head)
    empty = stated(())
    assert (empty.head.sequence, empty.epsilon, empty.totals, empty.anchors) == (0, 0.0, (), ())


@pytest.mark.parametrize("entries", [(), grown((), *NOISES)])
def test_checkpoints_and_cosignatures_are_read_back(entries):
    item = stated(entries)
    assert Checkpoint.read(json.loads(json.dumps(item.content))) == item
    assert Cosignature.read(json.loads(json.dumps(signed(item).content))) == signed(item)
    public = replace(item, epsilon=math.inf)
    assert Checkpoint.read(json.loads(json.dumps(public.content))) == public
    assert len({item.message, public.message, replace(item, silo="south").message}) == 3
    for held, field in ((item, "epsilon"), (signed(item), "signer")):
        with pytest.raises(FrozenInstanceError):
            setattr(held, field, 0.0)


@pytest.mark.parametrize(
    "change",
    [
        {"epsilon": -1.0},
        {"epsilon": "1"},
        {"epsilon": None},
        {"head": [1]},
        {"head": [3, "x"]},
        {"anchors": []},
        {"anchors": [[1, "a" * 64]]},
        {"totals": [{"noise": 1}]},
        {"covers": [[0, "a" * 64]]},
        {"silo": ""},
        {"silo": ["north"]},
        {"silo": "s" * 129},
        {"data_set": 5},
        {"at": ""},
        {"extra": 1},
        {"epsilon": 1},
        {"head": [-1, "a" * 64], "anchors": []},
        {"anchors": [[0, "a" * 64], [2, "b" * 64], [1, "c" * 64]]},
        {"anchors": [[0, "a" * 64], [0, "a" * 64]]},
        {"anchors": [[0, "a" * 64], [0, "a" * 64], [1, "b" * 64]]},
        {"anchors": [[0, "a" * 64], [3, "b" * 64]]},
        {"anchors": [[0, "a" * 64], [4, "b" * 64]]},
        {"anchors": [[-1, "a" * 64], [0, "b" * 64]]},
        {"head": [0, "a" * 64], "anchors": [[-1, "b" * 64]]},
    ],
)
def test_a_malformed_checkpoint_is_refused(change):
    content = stated(grown((), *NOISES)).content | change
    with pytest.raises(CosignError):
        Checkpoint.read(content)


def test_a_checkpoint_may_lie_at_the_ends_of_its_ranges():
    content = stated(grown((), *NOISES)).content
    for change in ({"silo": "s" * 128}, {"at": "t"}, {"epsilon": 0.0}, {"anchors": [[0, "a" * 64], [2, "b" * 64]]}):
        assert Checkpoint.read(content | change).content == content | change


def test_what_is_signed_can_be_read_back():
    for item in (stated(()), stated(grown((), *NOISES)), replace(stated(()), epsilon=math.inf)):
        assert Checkpoint.parse(item.message) == item


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m[:-1],
        lambda m: m + b" ",
        lambda m: m.replace(b'"purpose":"fedward ledger head",', b""),
        lambda m: m.replace(b"fedward ledger head", b"something else"),
        lambda m: m.replace(b'"silo":"north"', b'"silo":"north","extra":1'),
        lambda m: m.replace(b'"epsilon":0.0', b'"epsilon":NaN'),
        lambda m: m.replace(b'"epsilon":0.0', b'"epsilon":1e999'),
        lambda m: m.replace(b'"epsilon":0.0', b'"epsilon":' + b"9" * 5000),
        lambda _: b"[" * 100_000,
        lambda _: b"[]",
        lambda _: b"null",
        lambda _: b"\xff",
        lambda m: m + b" " * MAX_BYTES,
    ],
)
def test_other_bytes_are_no_checkpoint(change):
    with pytest.raises(CosignError):
        Checkpoint.parse(change(stated(()).message))


def test_a_signature_must_be_somebody_elses_and_fit():
    item = stated(grown((), 40.0))
    assert check(replace(signed(item), signer="claimed"), verify).signer == HUB
    for signer in (NORTH, "fedward://operator/south"):
        with pytest.raises(CosignError, match="cannot cosign"):
            check(signed(item, signer), verify)
    with pytest.raises(ValueError, match="does not fit"):
        check(replace(signed(item), signature=b""), verify)


def test_a_checkpoint_must_be_its_own_silos():
    item = stated(grown((), 40.0))
    with pytest.raises(CosignError, match=f"{SOUTH} signed a checkpoint of the ledger of north"):
        check(replace(signed(item), stated_certificate=SOUTH.encode()), verify)
    with pytest.raises(ValueError, match="does not fit"):
        check(replace(signed(item), stated_signature=b""), verify)


def test_its_own_signature_is_dated_and_the_others_are_of_today():
    item, asked = stated(grown((), 40.0)), []

    def record(certificate: bytes, message: bytes, signature: bytes, at: str | None) -> str:
        asked.append((certificate.decode(), at))
        return verify(certificate, message, signature, at)

    check(signed(item), record)
    assert asked == [(NORTH, AT), (HUB, None)]


# --- the cosigner's rule ------------------------------------------------------------------------------------
def test_a_cosigner_goes_forward_only():
    first, second = grown((), 40.0), grown((), 40.0, 55.0)
    assert advance(None, stated(first)) == stated(first)
    assert advance(stated(first), stated(second)) == stated(second)
    assert advance(stated(second), stated(second)) == stated(second)
    with pytest.raises(LedgerRolledBackError, match="ends at entry 1 and does not contain entry 2"):
        advance(stated(second), stated(first))
    with pytest.raises(LedgerRolledBackError):
        advance(stated(second), stated(()))


def test_a_cosigner_finds_another_history_however_long():
    honest = grown(grown((), 40.0), 55.0)
    forked = grown(grown((), 40.0), *NOISES * 3, branch="t")
    with pytest.raises(LedgerRolledBackError, match="another history"):
        advance(stated(honest), stated(forked))


def test_a_cosigner_refuses_claims_of_less_and_other_ledgers():
    first, second = stated(grown((), 40.0)), stated(grown((), 40.0, 55.0))
    for less in ({"epsilon": first.epsilon / 2}, {"totals": ()}):
        with pytest.raises(LedgerRolledBackError, match="has spent less"):
            advance(first, replace(second, **less))
    for other, why in (
        ({"silo": "south"}, "cannot follow one of north"),
        ({"data_set": "other"}, "does not refill a budget"),
    ):
        with pytest.raises(CosignError, match=why):
            advance(first, replace(second, **other))


def test_a_checkpoint_at_any_distance_follows_where_the_silo_knows_what_was_cosigned():
    long = grown((), *NOISES * 7)
    for place in range(len(long)):
        last = stated(long[:place])
        assert advance(last, stated(long, (last.head,))) == stated(long, (last.head,))


# --- what was lost ---------------------------------------------------------------------------------------------------
def require(entries: tuple[Entry, ...], head: EntryRef) -> None:
    require_head(GENESIS, entries, head)


def test_rollback_and_fork_are_told_apart():
    entries = grown((), *NOISES)
    require(entries, EntryRef(0, genesis_row(GENESIS)[2]))
    require(entries, entries[1].head)
    with pytest.raises(LedgerRolledBackError, match=r"entry 3 .*which ends at 1: an older copy was put in its place"):
        require(entries[:1], entries[2].head)
    with pytest.raises(LedgerRolledBackError, match="another history"):
        require(grown(entries[:2], 40.0, 40.0, branch="t"), entries[2].head)


histories = st.lists(st.sampled_from(NOISES), max_size=9)


@settings(max_examples=60, deadline=None)
@given(histories, histories, histories)
def test_the_gap_covers_what_was_lost_wherever_the_copy_went_on(common, lost, since):
    """Whatever was charged on the copy meanwhile is charged beside what was lost, not instead of it."""
    before = grown((), *common)
    whole, copy = grown(before, *lost, branch="lost"), grown(before, *since, branch="copy")
    missing = gap(GENESIS, copy, [stated(whole)])
    assert totals.beyond(costs(whole[len(before) :]), missing) == ()
    if not since:
        extra = totals.beyond(missing, costs(whole[len(before) :]))
        assert sum(cost.count for cost in extra) <= max(0, len(lost) - 1)


@settings(max_examples=40, deadline=None)
@given(histories, histories, histories, st.integers(0, 9))
def test_checkpoints_of_one_history_are_charged_once_and_of_two_twice(common, lost, other, shorter):
    before = grown((), *common)
    whole = grown(before, *lost, branch="a")
    elder = whole[: len(before) + min(shorter, len(lost))]
    one = gap(GENESIS, before, [stated(whole, (elder[-1].head,) if elder else ())])
    both = gap(GENESIS, before, [stated(elder), stated(whole, (elder[-1].head,) if elder else ())])
    assert totals.beyond(one, both) == ()
    foreign = grown(before, *other, branch="b")
    for_both = gap(GENESIS, before, [stated(whole), stated(foreign)])
    if lost and other:
        wanted = (*costs(whole[len(before) :]), *costs(foreign[len(before) :]))
        assert totals.beyond(wanted, for_both) == ()


def test_what_a_later_checkpoint_of_the_same_history_counts_is_not_charged_again():
    entries = grown((), *NOISES * 2)
    eldest, elder, later = stated(entries[:3]), stated(entries[:4]), stated(entries, (entries[2].head, entries[3].head))
    for known in ([elder, later], [later, elder], [elder, eldest, later]):
        assert (
            gap(GENESIS, entries[:2], known) == gap(GENESIS, entries[:2], [later]) == totals.merged(costs(entries[2:]))
        )


def test_a_plain_loss_of_one_entry_is_charged_exactly():
    entries = grown((), *NOISES * 3)
    assert gap(GENESIS, entries[:-1], [stated(entries)]) == costs(entries[-1:])


def test_an_unknown_gap_is_the_whole_budget_and_a_foreign_checkpoint_is_refused():
    assert gap(GENESIS, grown((), 40.0), []) == (EXHAUSTED,)
    foreign = checkpoint("north", Genesis("ward", 0.2, 1e-6), (), AT)
    foreign = replace(foreign, head=EntryRef(3, "e" * 64), anchors=(foreign.head,))
    with pytest.raises(CosignError, match="to another ledger"):
        gap(GENESIS, grown((), 40.0), [foreign])


def test_of_two_checkpoints_of_one_history_the_one_that_lacks_more_is_charged_for_each_kind():
    """The elder names no later entry that the ledger has, so all that it counts may be missing."""
    whole = grown((), *(float(noise) for noise in range(40, 48)))
    elder = stated(whole[:6])
    elder = replace(elder, anchors=elder.anchors[:1])
    later = stated(whole, (elder.head,))
    assert gap(GENESIS, whole[:4], [later]) == totals.merged(costs(whole[4:]))
    assert gap(GENESIS, whole[:4], [later, elder]) == totals.merged(costs(whole))


def test_a_recovery_stands_for_what_it_covers():
    entries = grown((), *NOISES)
    last = stated(entries)
    recovery = Recovery((last.head,), gap(GENESIS, entries[:1], [last]), "A. Weber", NORTH, "PEM", "00")
    copy = entries[:1]
    mended = (*copy, next_entry(copy[-1].head, recovery, AT, last.epsilon))
    require(mended, last.head)
    assert advance(last, stated(mended)) == stated(mended)
    assert stated(mended).covers == (last.head,)
    with pytest.raises(LedgerRolledBackError):
        advance(stated(mended), last)


# --- the file beside the ledger --------------------------------------------------------------------------------------
@pytest.fixture
def kept(tmp_path):
    return CosignatureFile(tmp_path / "ledger.db")


def test_the_latest_of_each_signer_is_kept(kept, tmp_path):
    first, second = stated(grown((), 40.0)), stated(grown((), 40.0, 55.0))
    assert kept.latest() == ()
    kept.keep([signed(first), signed(first, SOUTH)])
    kept.keep([signed(second)])
    assert kept.latest() == (signed(second), signed(first, SOUTH))
    kept.keep([signed(first)])
    assert kept.latest()[0] == signed(second), "an older one that comes again changes nothing"
    assert [path.name for path in tmp_path.iterdir()] == ["ledger.db.countersigned.json"]


def test_each_is_kept_with_the_time_at_which_it_came_first(kept, monkeypatch):
    now = []

    class Clock(datetime):
        @classmethod
        def now(cls, zone):
            return now[-1].astimezone(zone)

    monkeypatch.setattr("policies.ledger.cosign.datetime", Clock)
    first, second = stated(grown((), 40.0)), stated(grown((), 40.0, 55.0))
    for hour, item in enumerate((first, first, second)):
        now.append(datetime(2026, 1, 31, hour, tzinfo=UTC))
        kept.keep([signed(item)], lambda _: True)
        came = kept.latest()[0].received
        assert came == f"2026-01-31T0{2 if item is second else 0}:00:00+00:00"


def test_after_a_recovery_a_lower_entry_is_the_later_one(kept):
    entries = grown((), *NOISES)
    old = stated(entries)
    mended = replace(stated(entries[:1]), covers=(old.head,))
    kept.keep([signed(old)])
    kept.keep([signed(mended)])
    assert kept.latest() == (signed(mended),)


def test_a_full_disk_keeps_what_was_kept(kept, tmp_path):
    kept.keep([signed(stated(grown((), 40.0)))])
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = kept.latest()
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (64, limits[1]))
        with pytest.raises(LedgerShortError, match="the earlier ones are still there"):
            kept.keep([signed(stated(grown((), *NOISES)))])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert kept.latest() == before
    kept.keep([signed(stated(grown((), *NOISES)))])
    assert kept.latest() != before


def test_a_folder_that_is_gone_is_no_shortage(tmp_path):
    (tmp_path / "gone").touch()
    with pytest.raises(LedgerWriteError) as caught:
        CosignatureFile(tmp_path / "gone" / "ledger.db").keep([signed(stated(grown((), 40.0)))])
    assert type(caught.value) is LedgerWriteError


@pytest.mark.parametrize("content", ["", "{}", "[1]", '[{"checkpoint": {}}]', "[" * 100_000, "\x00"])
def test_a_file_that_cannot_be_read_is_refused_and_not_ignored(content, tmp_path):
    path = tmp_path / "handed.json"
    path.write_text(content)
    with pytest.raises(CosignError):
        read_cosignatures(path)
    with pytest.raises(CosignError):
        read_cosignatures(tmp_path / "absent.json")


def test_a_file_of_more_than_300_mib_is_refused_unread(kept, tmp_path, monkeypatch):
    path = tmp_path / "ledger.db.countersigned.json"
    path.touch()
    os.truncate(path, 300 << 20)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_text", lambda *_: "[]")
        assert kept.latest() == ()
    os.truncate(path, (300 << 20) + 1)
    monkeypatch.setattr(Path, "read_text", lambda *_: pytest.fail("read"))
    with pytest.raises(CosignError, match="no JSON list of cosignatures"):
        kept.latest()


@pytest.mark.parametrize(
    "change",
    [
        {"signer": []},
        {"signer": None},
        {"statement": {"epsilon": 10**400}},
        {"statement": {"totals": [{"cohort": "training", "sampling_rate": 1.0, "noise": 10**400, "count": 1}]}},
    ],
)
def test_a_kept_file_with_fields_of_another_kind_is_refused_by_name(change, kept, tmp_path):
    item = signed(stated(grown((), 40.0)))
    content = item.content
    content |= {**change, "statement": {**content["statement"], **change.get("statement", {})}}
    (tmp_path / "ledger.db.countersigned.json").write_text(json.dumps([content]))
    for read in (kept.latest, lambda: kept.keep([item])):
        with pytest.raises(CosignError, match=r"cannot be read|is malformed"):
            read()


@settings(max_examples=300, deadline=None)
@given(bending.bent([signed(stated(grown((), *NOISES))).content, signed(stated(grown((), 40.0)), SOUTH).content]))
def test_a_cosigned_file_that_is_bent_anywhere_is_refused_by_name(document):
    with tempfile.TemporaryDirectory() as folder:
        kept = CosignatureFile(Path(folder) / "ledger.db")
        (Path(folder) / "ledger.db.countersigned.json").write_text(bending.as_json(document))
        with contextlib.suppress(CosignError):
            for item in kept.latest():
                fitting = b"signed " + item.checkpoint.message[:20]
                check(replace(item, signature=fitting, stated_signature=fitting), verify)
            kept.keep([signed(stated(grown((), *NOISES)))])
