"""What a ledger's entries add up to by study and by tensor.

Guarantees: every release of every debit is in exactly one line. Epsilons do not add up: each line says what its
releases cost alone, at the ledger's delta, and the total of the data set is smaller than their sum. The charge of a
recovery belongs to no study and has its own line.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from policies.accounting import accountant
from policies.ledger.chain import Entry, Genesis
from policies.ledger.events import Debit, Recovery
from policies.plan.cost import Cost


@dataclass(frozen=True, slots=True)
class SpentPart:
    """Some of a ledger's releases."""

    name: str
    """Digest of a study, or a tensor."""
    charges: int
    """How many times it was charged. A repeated attempt counts again."""
    releases: int
    """How many noised values were released. Each step of the encoder's training counts."""
    epsilon: float
    """Epsilon of these releases alone."""


@dataclass(frozen=True, slots=True)
class StudyPart:
    """A study's releases, in total and by tensor."""

    whole: SpentPart
    tensors: tuple[SpentPart, ...]


@dataclass(frozen=True, slots=True)
class Summary:
    """A ledger's releases by study and tensor, in the order in which they appear."""

    studies: tuple[StudyPart, ...]
    tensors: tuple[SpentPart, ...]
    recovered: SpentPart | None
    """What recoveries charged for lost entries; None if nothing was lost."""


def summarise(genesis: Genesis, entries: Sequence[Entry]) -> Summary:
    """Price the parts. Takes up to half a second for a part with many kinds of release."""
    charged = [
        (entry.event.study, tensor, cost)
        for entry in entries
        if isinstance(entry.event, Debit)
        for tensor, cost in entry.event.costs.items()
    ]
    studies = [
        StudyPart(
            _part(study, (cost for name, _, cost in charged if name == study), genesis.delta),
            tuple(
                _part(tensor, (c for name, t, c in charged if (name, t) == (study, tensor)), genesis.delta)
                for tensor in dict.fromkeys(t for name, t, _ in charged if name == study)
            ),
        )
        for study in dict.fromkeys(study for study, _, _ in charged)
    ]
    tensors = [
        _part(tensor, (cost for _, t, cost in charged if t == tensor), genesis.delta)
        for tensor in dict.fromkeys(tensor for _, tensor, _ in charged)
    ]
    lost = [cost for entry in entries if isinstance(entry.event, Recovery) for cost in entry.event.costs]
    return Summary(tuple(studies), tuple(tensors), _part("recovery", lost, genesis.delta) if lost else None)


def _part(name: str, costs: Iterable[Cost], delta: float) -> SpentPart:
    held = list(costs)
    return SpentPart(name, len(held), sum(cost.count for cost in held), accountant.epsilon(held, delta))
