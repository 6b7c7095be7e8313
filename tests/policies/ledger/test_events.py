from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.canonical_json import canonical_json
from policies.accounting import accountant
from policies.documents.policy import Budget
from policies.errors import CostError
from policies.ledger.events import (
    EXHAUSTED,
    NOT_COVERED,
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
    content_of,
    costs_of,
    kind_of,
    read_event,
    recovery_message,
)
from policies.plan.cost import Cost

COST = Cost("training", 1.0, 20.0, 3)
DEBIT = {"study": "s", "policy": "p", "round": 1, "attempt": 2, "costs": {"heads": COST}}
HEAD = EntryRef(7, "a" * 64)
RECOVERY = Recovery((HEAD,), (COST,), "A. Weber", "fedward://silo/north", "PEM", "ab")
REBOUND = {
    "unit": "patient",
    "identified_by": ("pid",),
    "holdout": 0.2,
    "delimiter": ",",
    "columns": (),
    "encoding": "utf-8",
    "responsible": "A. Weber",
}
EVENTS = {
    "debit": Debit(**DEBIT),
    "policy": InForce("p" * 64, 4),
    "withdrawal": Notice("withdrawal", "DPO-2026-14"),
    "refresh": Notice("refresh", "DPO-2026-15"),
    "recovery": RECOVERY,
    "fault": Fault("s", 1, 2, "heads"),
    "cleared": Cleared("A. Weber, data protection"),
    "rebound": Rebound("patient", ("pid",), 0.2, ";", (), "windows-1252", "A. Weber"),
    "approval": Approved("1" * 64, "approved", "2" * 64, "3" * 64),
    "stop": Stopped("exam", "1" * 64, "3" * 64),
}


@pytest.mark.parametrize("kind", EVENTS)
def test_every_kind_is_read_back_as_it_was_written(kind):
    event = EVENTS[kind]
    content = json.loads(canonical_json(content_of(event)))
    assert content["kind"] == kind_of(event) == kind
    assert read_event(content) == event


def test_only_debits_and_recoveries_cost_anything():
    assert {kind: costs_of(event) for kind, event in EVENTS.items()} == {
        "debit": (COST,),
        "recovery": (COST,),
        "policy": (),
        "withdrawal": (),
        "refresh": (),
        "fault": (),
        "cleared": (),
        "rebound": (),
        "approval": (),
        "stop": (),
    }


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (Debit, DEBIT | {"study": ""}),
        (Debit, DEBIT | {"policy": "p" * 129}),
        (Debit, DEBIT | {"round": -1}),
        (Debit, DEBIT | {"attempt": True}),
        (Debit, DEBIT | {"costs": {}}),
        (Debit, DEBIT | {"costs": {"": COST}}),
        (Debit, DEBIT | {"costs": {"heads": 20.0}}),
        (Debit, DEBIT | {"costs": {"heads": COST, "encoder": None}}),
        (InForce, {"policy": "", "budget": 1.0}),
        (InForce, {"policy": "p", "budget": 0.0}),
        (InForce, {"policy": "p", "budget": math.inf}),
        (InForce, {"policy": "p", "budget": 10**400}),
        (InForce, {"policy": "p", "budget": math.nan}),
        (InForce, {"policy": "p", "budget": True}),
        (Fault, {"study": "", "round": 1, "attempt": 1, "tensor": "heads"}),
        (Fault, {"study": "s", "round": -1, "attempt": 1, "tensor": "heads"}),
        (Fault, {"study": "s", "round": 1, "attempt": True, "tensor": "heads"}),
        (Fault, {"study": "s", "round": 1, "attempt": 1, "tensor": ""}),
        (Cleared, {"responsible": ""}),
        (Rebound, REBOUND | {"responsible": ""}),
        (Rebound, REBOUND | {"unit": ""}),
        (Rebound, REBOUND | {"delimiter": 7}),
        (Rebound, REBOUND | {"encoding": None}),
        (Rebound, REBOUND | {"identified_by": ()}),
        (Rebound, REBOUND | {"identified_by": ("",)}),
        (Rebound, REBOUND | {"columns": ("a", 7)}),
        (Rebound, REBOUND | {"holdout": 0.0}),
        (Rebound, REBOUND | {"holdout": 1}),
        (Rebound, REBOUND | {"holdout": math.nan}),
        (Approved, {"study": "1" * 12, "verdict": "approved", "certificate": "2" * 64, "reason": "3" * 64}),
        (Approved, {"study": "1" * 64, "verdict": "perhaps", "certificate": "2" * 64, "reason": "3" * 64}),
        (Approved, {"study": "1" * 64, "verdict": "refused", "certificate": "ada", "reason": "3" * 64}),
        (Approved, {"study": "1" * 64, "verdict": "refused", "certificate": "2" * 64, "reason": "a patient asked"}),
        (Stopped, {"name": "", "study": "1" * 64, "reason": "3" * 64}),
        (Stopped, {"name": "exam", "study": "exam", "reason": "3" * 64}),
        (Stopped, {"name": "exam", "study": "1" * 64, "reason": "a patient asked"}),
        (Notice, {"kind": "party", "reference": "r"}),
        (Notice, {"kind": "refresh", "reference": ""}),
        (Notice, {"kind": "refresh", "reference": "r" * 129}),
        (EntryRef, {"sequence": 1, "hash": "A" * 64}),
        (EntryRef, {"sequence": 1, "hash": "a" * 63}),
        (EntryRef, {"sequence": True, "hash": "a" * 64}),
    ],
)
def test_what_means_nothing_is_refused(kind, fields):
    with pytest.raises(CostError):
        kind(**fields)


def test_debits_of_the_same_are_one_in_a_set_and_cannot_be_changed():
    costs = {"heads": COST, "encoder": Cost("training", 0.5, 2.0, 1)}
    first, again = (Debit(**DEBIT | {"costs": dict(each)}) for each in (costs.items(), reversed(costs.items())))
    others = [Debit(**DEBIT | change) for change in ({"study": "t"}, {"policy": "q"}, {"round": 2}, {"attempt": 1}, {})]
    assert len({first, again, *others}) == 1 + len(others)
    costs.clear()
    assert list(first.costs) == ["encoder", "heads"]
    with pytest.raises(TypeError):
        first.costs["heads"] = COST


@pytest.mark.parametrize(
    "broken",
    [
        {"costs": (), "covers": ()},
        {"responsible": ""},
        {"signer": ""},
        {"certificate": ""},
        {"signature": ""},
        {"covers": (EntryRef(0, "a" * 64),)},
    ],
)
def test_a_recovery_that_charges_nothing_or_that_nobody_answers_for_is_refused(broken):
    whole = {name: getattr(RECOVERY, name) for name in Recovery.__dataclass_fields__}
    assert Recovery(**whole) == RECOVERY
    with pytest.raises(CostError):
        Recovery(**{**whole, **broken})


@given(st.floats(1e-12, 1e-2))
def test_a_gap_of_unknown_size_uses_up_every_budget_that_a_policy_can_state(delta):
    most = Budget.model_fields["epsilon"].metadata
    assert max(limit.le for limit in most if hasattr(limit, "le")) == 32
    assert 50 <= accountant.epsilon([EXHAUSTED], delta) < math.inf
    assert accountant.epsilon([EXHAUSTED], 0.46) >= 50 > accountant.epsilon([EXHAUSTED], 0.47)


def test_a_recoverys_signature_fits_one_place_of_one_ledger():
    whole = ("ward", HEAD, (HEAD,), (COST,), "A. Weber")
    others = [
        ("other", *whole[1:]),
        ("ward", EntryRef(8, "a" * 64), *whole[2:]),
        ("ward", EntryRef(7, "b" * 64), *whole[2:]),
        (*whole[:2], (), *whole[3:]),
        (*whole[:3], (COST, COST), whole[4]),
        (*whole[:4], "B. Weber"),
    ]
    messages = {recovery_message(*arguments) for arguments in (whole, *others)}
    assert len(messages) == 7


def test_a_fault_says_that_epsilon_does_not_cover_it_and_nothing_of_why():
    content = content_of(EVENTS["fault"])
    assert content.pop("text") == NOT_COVERED == "fault: not covered by epsilon"
    assert content == {"kind": "fault", "study": "s", "round": 1, "attempt": 2, "tensor": "heads"}
