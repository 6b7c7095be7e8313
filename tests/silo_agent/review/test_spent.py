"""A ledger with what others cosigned of it, and what is spent in it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from policies.accounting import accountant
from policies.errors import LedgerRolledBackError
from policies.ledger.cosign import CosignatureFile
from policies.ledger.events import Debit
from policies.ledger.ledger import Ledger, read_history
from policies.plan.cost import Cost
from silo_agent.review import spent as room
from silo_agent.review.spent import spent_in, whole_history
from support.ledgers import NORTH

COST = Cost("training", 1.0, 10.0, 1)


def charge(folder, round_):
    with Ledger.open(folder.ledger, NORTH, budget_epsilon=4.0) as ledger:
        ledger.charge(Debit("a", "p", round_, 1, {"heads": COST}))
        return ledger.checkpoint("north")


def test_a_ledger_that_lacks_a_cosigned_head_is_no_history_if_the_signature_binds(folder, by_hub, monkeypatch):
    charge(folder, 0)
    older = folder.ledger.read_bytes()
    told = by_hub(charge(folder, 1))
    CosignatureFile(folder.ledger).keep([told])
    held, genesis, entries = whole_history(folder.ledger, lambda: "trust")
    assert ([one.checkpoint for one in held], genesis, len(entries)) == ([told.checkpoint], NORTH, 2)
    folder.ledger.write_bytes(older)
    asked = []
    monkeypatch.setattr(room, "binding", lambda trust, items: asked.append((trust, items)) or [])
    assert len(whole_history(folder.ledger, lambda: "trust")[2]) == 1
    assert [(trust, [one.checkpoint for one in items]) for trust, items in asked] == [("trust", [told.checkpoint])]
    monkeypatch.setattr(room, "binding", lambda _, items: items)
    with pytest.raises(LedgerRolledBackError):
        whole_history(folder.ledger, lambda: "trust")


def test_spent_is_what_the_newest_entry_says_or_more_by_todays_accountant(folder):
    assert spent_in(NORTH, ()) == 0.0
    charge(folder, 0)
    charge(folder, 1)
    genesis, entries = read_history(folder.ledger)
    stated = entries[-1].epsilon
    assert stated == accountant.epsilon([COST, COST], NORTH.delta) == spent_in(genesis, entries)
    low = (*entries[:-1], replace(entries[-1], epsilon=0.01))
    assert spent_in(genesis, low) == 0.01
    older = replace(genesis, unit=None)
    assert spent_in(older, low) == stated, "an old accountant may have found less"
    assert spent_in(older, (*entries[:-1], replace(entries[-1], epsilon=9.0))) == 9.0
