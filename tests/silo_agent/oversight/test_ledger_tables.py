"""A ledger's tables name each study by name and digest, and every kind of entry."""

import io
import math

import pytest
from rich.console import Console

from policies.ledger.chain import Genesis, genesis_row, next_entry
from policies.ledger.events import (
    Approved,
    Cleared,
    Debit,
    EntryRef,
    Fault,
    InForce,
    Notice,
    Rebound,
    Recovery,
    Stopped,
)
from policies.ledger.summary import summarise
from policies.plan.cost import Cost
from silo_agent.oversight.ledger_tables import by_entry, by_part, called, shown

STUDY, OTHER = "1" * 64, "2" * 64
COST = Cost("training", 1.0, 10.0, 2)
HEADS = ["entry", "study", "round", "attempt", "releases", "epsilon after"]
NAMES = {STUDY: "readmission"}
GENESIS = Genesis("ward", 0.2, 1e-5, unit="patient", identified_by=("id",), delimiter=",", columns=())


def chain(*events):
    head, entries = EntryRef(0, genesis_row(GENESIS)[2]), []
    for event in events:
        entries.append(next_entry(head, event, "2026-01-01T00:00:00+00:00", 0.5))
        head = entries[-1].head
    return tuple(entries)


def text_of(table):
    out = io.StringIO()
    Console(file=out, width=200, markup=False, emoji=False).print(table)
    return out.getvalue()


@pytest.mark.parametrize(
    ("event", "said"),
    [
        (Debit(STUDY, "p", 3, 2, {"heads": COST}), "readmission 111111111111 │ 3     │ 2       │ heads (2 x noise 10)"),
        (Debit(OTHER, "p", 3, 2, {"heads": COST}), " 222222222222 │ 3"),
        (
            Fault(STUDY, 3, 2, "heads"),
            "readmission 111111111111 │ 3     │ 2       │ fault: not covered by epsilon (heads)",
        ),
        (Approved(STUDY, "refused", "3" * 64, "4" * 64), "refused by a person (certificate 333333333333)"),
        (Stopped("readmission", STUDY, "4" * 64), "stop: not covered by epsilon"),
        (InForce("5" * 64, 4.0), "policy 555555555555 in force, budget 4"),
        (Recovery((), (COST,), "A. Weber", "s", "PEM", "ab"), "lost entries charged again; A. Weber answers"),
        (Notice("withdrawal", "case 7"), "withdrawal, case 7"),
        (Cleared("A. Weber"), "faults cleared; A. Weber answers"),
        (Rebound("patient", ("id",), 0.2, ";", (), "utf-8", "A. Weber"), "bound anew, before anything was charged; A."),
    ],
)
def test_every_entry_has_a_line_with_its_study(event, said):
    table = by_entry(chain(event), NAMES)
    assert [column.header for column in table.columns] == HEADS
    text = text_of(table)
    assert said in text
    assert "0.5000" in text


def test_what_was_spent_is_parted_by_study_and_by_tensor():
    entries = chain(Debit(STUDY, "p", 1, 1, {"heads": COST}), Debit(OTHER, "p", 1, 1, {"counts": COST}))
    summary = summarise(GENESIS, entries)
    studies = text_of(by_part(summary, NAMES, studies=True))
    assert studies.index("readmission 111111111111") < studies.index("heads") < studies.index("222222222222")
    tensors = text_of(by_part(summary, NAMES, studies=False))
    assert "readmission" not in tensors
    assert [tensors.count(word) for word in ("all", "heads", "counts")] == [2, 1, 1]
    lost = summarise(GENESIS, chain(Recovery((), (COST,), "A. Weber", "s", "PEM", "ab")))
    assert "(lost entries)" in text_of(by_part(lost, NAMES, studies=True))
    assert [column.header for column in by_part(lost, NAMES, studies=True).columns] == [
        "study",
        "tensor",
        "charges",
        "releases",
        "epsilon alone",
    ]
    assert "heads" in tensors
    assert "counts" in tensors


def test_a_name_stands_before_the_digest_and_no_bound_is_a_word():
    assert called(STUDY, NAMES) == "readmission 111111111111"
    assert called(OTHER, NAMES) == "222222222222"
    assert (shown(1.23456), shown(math.inf)) == ("1.2346", "unbounded")
