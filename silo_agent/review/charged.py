"""What a silo's ledger charged for one study."""

from __future__ import annotations

from pathlib import Path

from policies.ledger.ledger import read_ledger
from policies.plan.cost import Cost


def charged_of(ledger: Path, study: str) -> list[Cost] | None:
    """Return the costs that the ledger holds for a study, or None if there is no ledger."""
    if not ledger.exists():
        return None
    _, entries = read_ledger(ledger)
    return [cost for entry in entries if entry.debit.study == study for cost in entry.debit.costs.values()]
