"""What the ledgers of a local federation say, read by the agent's own command."""

import json
import math

import pytest

from deploy.local import ledgers
from deploy.local.federation import Federation
from deploy.local.ledgers import SpentBudget, budgets


@pytest.mark.parametrize(("said", "spent"), [(1.25, 1.25), ("unbounded", math.inf)])
def test_every_silos_ledger_is_read(tmp_path, monkeypatch, said, spent):
    asked = []

    def run(*command):
        asked.append(command)
        return json.dumps({"spent": said, "budget": 4.0, "delta": 1e-5})

    monkeypatch.setattr(ledgers, "run", run)
    federation = Federation(tmp_path, tmp_path / "study.yaml", {"north": tmp_path / "north.csv"}, "")
    assert budgets(federation) == (SpentBudget("north", spent, 4.0, 1e-5),)
    assert asked == [("fedward-silo", "ledger", "show", "--format", "json", "-c", tmp_path / "north" / "agent.yaml")]
