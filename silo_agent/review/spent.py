"""A silo's ledger, whole: what others cosigned of it, its entries, and what is spent."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from crypto.pki.certificates import Trust
from policies.accounting import accountant
from policies.errors import LedgerRolledBackError
from policies.ledger.chain import Entry, Genesis
from policies.ledger.cosign import Cosignature, CosignatureFile, require_head
from policies.ledger.events import costs_of
from policies.ledger.ledger import read_history
from silo_agent.oversight.signing import binding


def whole_history(path: Path, trust: Callable[[], Trust]) -> tuple[tuple[Cosignature, ...], Genesis, tuple[Entry, ...]]:
    """Read what others cosigned, and the ledger. Raises `LedgerRolledBackError` if the ledger lacks a cosigned head."""
    held = CosignatureFile(path).latest()  # read first: a running agent may extend the ledger
    genesis, entries = read_history(path)
    for item in held:
        try:
            require_head(genesis, entries, item.checkpoint.head)
        except LedgerRolledBackError:
            if binding(trust(), [item]):
                raise
    return held, genesis, entries


def spent_in(genesis: Genesis, entries: tuple[Entry, ...]) -> float:
    """Return the spent epsilon by today's accountant, but never less than the ledger says."""
    stated = entries[-1].epsilon if entries else 0.0
    if genesis.unit is not None:
        # Since version 0.5 a genesis names its unit. The accountant has not changed since, so the newest entry says
        # what it would find, and nothing has to be counted again.
        return stated
    return max(stated, accountant.epsilon([c for entry in entries for c in costs_of(entry.event)], genesis.delta))
