"""Reads the silos' ledgers of a local federation with the agent's own command."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass

from deploy.local.federation import Federation
from deploy.local.processes import run
from policies.ledger.chain import UNBOUNDED


@dataclass(frozen=True)
class SpentBudget:
    """The budget of one silo, and what is spent of it."""

    silo: str
    spent: float
    """Epsilon at `delta`; infinite if a study without noise was charged."""
    budget: float
    delta: float


def budgets(federation: Federation) -> tuple[SpentBudget, ...]:
    """Every silo's budget and what is spent of it. Raises `FederationError`."""
    return tuple(_budget(federation, silo) for silo in federation.data)


def _budget(federation: Federation, silo: str) -> SpentBudget:
    ledger = json.loads(run("fedward-silo", "ledger", "show", "--format", "json", "-c", federation.config(silo)))
    spent = math.inf if ledger["spent"] == UNBOUNDED else float(ledger["spent"])
    return SpentBudget(silo, spent, ledger["budget"], ledger["delta"])
