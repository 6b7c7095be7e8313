"""What a ledger charged for one study."""

from __future__ import annotations

from policies.ledger.events import Debit
from policies.ledger.ledger import Ledger
from policies.plan.cost import Cost
from silo_agent.review.charged import charged_of
from support.ledgers import NORTH

FIRST, SECOND, OTHERS = (Cost("training", 1.0, noise, 1) for noise in (10.0, 11.0, 12.0))


def test_charges_of_one_study_are_told_in_their_order(folder):
    with Ledger.open(folder.ledger, NORTH, budget_epsilon=4.0) as ledger:
        ledger.charge(Debit("a", "p", 0, 1, {"heads": FIRST}))
        ledger.charge(Debit("b", "p", 0, 1, {"heads": OTHERS}))
        ledger.charge(Debit("a", "p", 1, 1, {"heads": SECOND, "counts": FIRST}))
    charged = charged_of(folder.ledger, "a")
    assert (charged[0], sorted(cost.noise for cost in charged[1:])) == (FIRST, [10.0, 11.0])
    assert charged_of(folder.ledger, "c") == []


def test_without_a_ledger_nobody_knows(folder):
    assert charged_of(folder.ledger.with_name("none.sqlite3"), "a") is None
