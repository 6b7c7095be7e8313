from __future__ import annotations

import contextlib
import csv
import hashlib
import io
import json
import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.accounting import accountant
from policies.errors import CosignError, ExportError, LedgerError, LedgerRolledBackError, LedgerTamperedError
from policies.ledger.chain import Genesis, genesis_row, next_entry
from policies.ledger.cosign import Cosignature, checkpoint
from policies.ledger.events import Approved, Debit, EntryRef, InForce, Notice, Recovery, Stopped, costs_of
from policies.ledger.exports import Export, read_export, recomputed, to_csv, to_json
from policies.plan.cost import Cost
from support import bending
from support.bending import as_json

NORTH = "fedward://silo/north"
AT = "2026-01-31T08:00:00+00:00"
HEADS, METRICS = Cost("training", 1.0, 20.0, 1), Cost("evaluation", 1.0, 8.0, 1)
EVENTS = (
    InForce("p", 4.0),
    Debit("s" * 64, "p", 1, 1, {"heads": HEADS, "metrics": METRICS}),
    Notice("withdrawal", "=HYPERLINK(14)"),
    Recovery((EntryRef(9, "a" * 64),), (HEADS,), "A. Weber", NORTH, "PEM", "00"),
)


def made(*events, public=False, factor=1.0, budget=4.0):
    genesis = Genesis("ward", 0.2, 1e-5, public)
    entries, head, costs, spent = [], EntryRef(0, genesis_row(genesis)[2]), [], 0.0
    for event in events:
        costs += costs_of(event)
        spent = max(spent, accountant.epsilon(costs, 1e-5) * factor)
        entries.append(next_entry(head, event, AT, spent))
        head = entries[-1].head
    return Export(NORTH, AT, budget, genesis, tuple(entries))


def bent(export, **changes):
    return json.dumps(json.loads(to_json(export)) | changes).encode()


@pytest.mark.parametrize("events", [(), EVENTS])
def test_a_whole_export_is_read_back_and_priced_anew(events):
    export = made(*events)
    assert read_export(to_json(export)) == export
    assert recomputed(export) == export.spent
    document = json.loads(to_json(export))
    assert document["head"] == [len(events), export.head.hash]
    assert (document["spent"], document["left"]) == (export.spent, 4.0 - export.spent)


def test_an_export_of_public_data_says_unbounded():
    export = made(Debit("s", "p", 0, 1, {"counts": Cost("training", 1.0, 0.0, 1)}), public=True)
    content = to_json(export)
    assert json.loads(content)["spent"] == json.loads(content)["left"] == "unbounded"
    assert math.isinf(read_export(content).spent)


def test_an_entry_below_its_price_is_refused_by_number_and_one_above_is_not():
    cheap = made(*EVENTS, factor=0.99)
    with pytest.raises(ExportError, match="entry 2 states epsilon"):
        read_export(to_json(cheap))
    dear = made(*EVENTS, factor=1.1)
    assert read_export(to_json(dear)).spent > recomputed(dear)


def test_a_recovery_below_its_price_is_refused_too():
    export = made(EVENTS[3])
    entry = next_entry(EntryRef(0, genesis_row(export.genesis)[2]), EVENTS[3], AT, export.spent / 2)
    with pytest.raises(ExportError, match="entry 1 states"):
        read_export(to_json(Export(NORTH, AT, 4.0, export.genesis, (entry,))))


@pytest.mark.parametrize(
    "changes",
    [
        {"spent": 0.0},
        {"left": 4.0},
        {"head": [1, "a" * 64]},
        {"delta": 1e-3},
        {"data_set": "other"},
        {"public": True},
        {"extra": 1},
        {"budget": math.nan},
    ],
)
def test_figures_that_do_not_follow_are_refused(changes):
    with pytest.raises(ExportError, match="do not follow"):
        read_export(bent(made(*EVENTS), **changes))


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b"[]", b"\xff", b'{"format": "fedward ledger export", "version": 1, "chain": [1]}', b"[" * 100_000],
)
def test_what_is_no_export_is_refused(content):
    with pytest.raises(ExportError, match="no ledger export in JSON"):
        read_export(content)


@pytest.mark.parametrize(
    "changes", [{"version": 2}, {"format": "x"}, {"budget": "4"}, {"chain": None}, {"countersigned": None}]
)
def test_a_field_of_another_kind_is_refused(changes):
    with pytest.raises(ExportError):
        read_export(bent(made(*EVENTS), **changes))


def test_an_edited_missing_or_added_row_is_named():
    chain = json.loads(to_json(made(*EVENTS)))["chain"]
    edited = [dict(row) for row in chain]
    edited[2]["body"] = edited[2]["body"].replace("20.0", "90.0")
    for rows, number in ((edited, 2), (chain[:2] + chain[3:], 2), ([*chain, chain[-1]], 5), ([], 0)):
        with pytest.raises(LedgerTamperedError, match=f"entry {number}"):
            read_export(bent(made(*EVENTS), chain=rows))


def test_a_shortened_chain_does_not_fit_its_head():
    chain = json.loads(to_json(made(*EVENTS)))["chain"]
    with pytest.raises(ExportError, match="do not follow"):
        read_export(bent(made(*EVENTS), chain=chain[:-1]))


def test_what_others_cosigned_is_read_back_and_is_of_this_chain():
    export = made(*EVENTS)
    said = [checkpoint("north", export.genesis, export.entries[:length], AT) for length in (0, 2, 4)]
    lost = replace(said[0], head=EVENTS[3].covers[0], anchors=(said[0].head,))
    held = tuple(Cosignature(item, "fedward://silo/south", b"PEM", b"s", b"PEM", b"s") for item in (*said, lost))
    whole = replace(export, cosigned=held)
    assert read_export(to_json(whole)) == whole
    with pytest.raises(LedgerRolledBackError, match="entry 4"):
        read_export(to_json(replace(whole, entries=export.entries[:3])))
    other = replace(held[1], checkpoint=replace(said[1], epsilon=said[1].epsilon * 0.99))
    with pytest.raises(ExportError, match=r"entry 2 that .* cosigned has other figures"):
        read_export(to_json(replace(export, cosigned=(other,))))
    with pytest.raises(CosignError, match="cannot be read"):
        read_export(bent(export, countersigned=[{}]))


def test_the_table_has_every_release_and_no_formula():
    export = made(*EVENTS)
    rows = list(csv.DictReader(io.StringIO(to_csv(export).decode())))
    assert [(row["entry"], row["kind"], row["tensor"]) for row in rows] == [
        ("1", "policy", ""),
        ("2", "debit", "heads"),
        ("2", "debit", "metrics"),
        ("3", "withdrawal", ""),
        ("4", "recovery", "lost"),
    ]
    assert rows[0]["budget"] == "4.0"
    assert rows[2]["noise"] == "8.0"
    assert rows[3]["remark"] == "'=HYPERLINK(14)"
    assert rows[4]["remark"].startswith(f"{NORTH}, A. Weber; covers 9 aaaa")
    assert rows[4]["epsilon_after"] == str(export.spent)
    assert rows[4]["hash"] == export.head.hash
    assert {row["study_name"] for row in rows} == {""}


def test_the_table_names_studies_as_the_silo_knows_them():
    export = made(*EVENTS)
    (debit,) = {entry.event.study for entry in export.entries if isinstance(entry.event, Debit)}
    rows = list(csv.DictReader(io.StringIO(to_csv(export, {debit: "small", "other": "x"}).decode())))
    assert [row["study_name"] for row in rows] == ["", "small", "small", "", ""]
    assert [row["study"] for row in rows][1] == debit


def test_a_recovery_without_costs_has_its_line_in_the_table():
    free = replace(EVENTS[3], costs=())
    (row,) = csv.DictReader(io.StringIO(to_csv(made(free)).decode()))
    assert (row["entry"], row["kind"], row["tensor"], row["noise"]) == ("1", "recovery", "", "")
    assert row["remark"].startswith(f"{NORTH}, A. Weber; covers 9 aaaa")


def with_lost(recovery, *, epsilon=None, others=()):
    """An export whose recovery covers a head that others cosigned when a second debit stood in the chain."""
    before = made(EVENTS[0], EVENTS[1])
    lost = checkpoint("north", before.genesis, before.entries, AT)
    lost = replace(lost, epsilon=lost.epsilon if epsilon is None else epsilon)
    export = made(EVENTS[0], *others, replace(recovery, covers=(lost.head,)))
    return replace(export, cosigned=(Cosignature(lost, "fedward://silo/south", b"PEM", b"s", b"PEM", b"s"),))


def test_a_recovery_charges_what_was_cosigned_of_the_lost_entries():
    whole = replace(EVENTS[3], costs=(HEADS, METRICS))
    for sound in (with_lost(whole), with_lost(EVENTS[3], others=(replace(EVENTS[1], costs={"metrics": METRICS}),))):
        assert read_export(to_json(sound)) == sound
    other = with_lost(replace(whole, costs=(Cost("training", 1.0, 2.0, 1),)))  # dearer, but no release of that kind
    free, half, stated_less = (
        with_lost(replace(whole, costs=())),
        with_lost(EVENTS[3]),
        with_lost(whole, epsilon=3.0),
    )
    for cheap in (free, half, stated_less, other):
        with pytest.raises(ExportError, match=r"lost entry 2, which .*south cosigned, .* charges less"):
            read_export(to_json(cheap))


@pytest.mark.parametrize("budget", [32.0, 3.9])
def test_the_budget_is_the_one_in_force(budget):
    with pytest.raises(ExportError, match=r"budget is .*, but the policy that its entries put into force last has 4"):
        read_export(to_json(made(*EVENTS, budget=budget)))
    assert read_export(to_json(made(EVENTS[1], budget=budget))).budget == budget
    raised = made(*EVENTS, InForce("q", budget), budget=budget)
    assert read_export(to_json(raised)).left == budget - raised.spent


@pytest.mark.parametrize("public", [False, True])
@pytest.mark.parametrize("budget", [math.inf, 0, -1.0, 10**400])
def test_a_budget_that_bounds_nothing_is_refused(budget, public):
    export = made(EVENTS[1], public=public)
    left = "unbounded" if public or budget == math.inf else max(0, budget - export.spent) if budget < 9 else 0.0
    with pytest.raises(ExportError):
        read_export(bent(export, budget=budget, left=left))


@pytest.mark.parametrize("name", ["silo", "at"])
def test_a_name_or_time_that_is_no_text_is_refused(name):
    with pytest.raises(ExportError, match="no ledger export in JSON"):
        read_export(bent(made(*EVENTS), **{name: 5}))


def test_a_figure_of_before_rounding_was_allowed_for_is_read_and_one_below_it_is_not():
    sampled = Debit("s", "p", 1, 1, {"encoder": Cost("training", 0.01, 1.0, 500)})
    older = accountant.least_stated(costs_of(sampled), 1e-5)
    head = EntryRef(0, genesis_row(made().genesis)[2])
    kept = replace(made(), entries=(next_entry(head, sampled, AT, older),))
    assert read_export(to_json(kept)) == kept
    with pytest.raises(ExportError, match="entry 1 states epsilon"):
        read_export(to_json(replace(kept, entries=(next_entry(head, sampled, AT, older * (1 - 2e-6)),))))


def genuine():
    export = made(*EVENTS)
    said = checkpoint("north", export.genesis, export.entries[:2], AT)
    return replace(export, cosigned=(Cosignature(said, "fedward://silo/south", b"PEM", b"s", b"PEM", b"s"),))


def rehashed(document):
    """The document with all hashes right, as its silo can write it, its bodies being objects before."""
    previous = "0" * 64
    for row in document["chain"]:
        body = as_json(row["body"]) if not isinstance(row["body"], str) else row["body"]
        body = json.dumps(json.loads(body), sort_keys=True, separators=(",", ":"))
        digest = hashlib.sha256(f"{previous}\n{body}".encode()).hexdigest()
        row |= {"previous": previous, "hash": digest, "body": body}
        previous = digest
    document["head"] = [len(document["chain"]) - 1, previous]
    return document


@settings(max_examples=300, deadline=None)
@given(bending.bent(json.loads(to_json(genuine()))))
def test_an_export_that_is_bent_anywhere_is_refused_by_name(document):
    with contextlib.suppress(LedgerError):
        read_export(as_json(document).encode())


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_an_entry_that_is_bent_anywhere_under_right_hashes_is_refused_by_name(data):
    document = json.loads(to_json(replace(genuine(), cosigned=())))
    place = data.draw(st.sampled_from(range(len(document["chain"]))))
    body = json.loads(document["chain"][place]["body"])
    document["chain"][place]["body"] = data.draw(bending.bent(body))
    with contextlib.suppress(LedgerError):
        read_export(as_json(rehashed(document)).encode())


def test_the_reserved_kinds_are_read_and_shown_and_change_no_figure():
    approval, stop = Approved("1" * 64, "refused", "2" * 64, "3" * 64), Stopped("exam", "1" * 64, "3" * 64)
    export = made(EVENTS[1], approval, stop)
    assert read_export(to_json(export)) == export
    assert recomputed(export) == export.spent == made(EVENTS[1]).spent
    lines = list(csv.DictReader(io.StringIO(to_csv(export).decode())))[2:]
    assert [(line["kind"], line["study"]) for line in lines] == [("approval", "1" * 64), ("stop", "1" * 64)]
    assert lines[0]["remark"] == f"refused, by the certificate {'2' * 64}"
    assert lines[1]["remark"] == "stop: not covered by epsilon"
    bare = json.loads(to_json(export))["chain"][3]["body"].replace("stop: not covered by epsilon", "stop")
    assert "exam" in bare
    rows = json.loads(to_json(export))["chain"]
    rows[3] |= {"body": bare, "hash": hashlib.sha256(f"{rows[3]['previous']}\n{bare}".encode()).hexdigest()}
    with pytest.raises(LedgerTamperedError, match="entry 3 cannot be read"):
        read_export(bent(export, chain=rows))
