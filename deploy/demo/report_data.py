"""What the report of a study shows, as plain values.

Guarantees: nothing here is a secret or a private number; every field is public among the roster, or belongs to made-up
data. Gathering the values is the demo's work, laying them out that of `report` and `charts`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from policies.documents.study import Study
from policies.reports.published import PublishedFigure


@dataclass(frozen=True)
class MethodRow:
    """AUC per domain of one way to make a model, on the public test patients.

    `auc` is in the order of the domains. Where several models share the row (one of every hospital), `auc` is their
    mean and `spread` the lowest and highest of them per domain. `epsilon` is None without a guarantee.
    """

    name: str
    note: str
    auc: tuple[float, ...]
    epsilon: float | None = None
    spread: tuple[tuple[float, float], ...] = ()

    @property
    def mean(self) -> float:
        """Mean over the domains, every domain weighing the same."""
        return sum(self.auc) / len(self.auc)

    @property
    def worst(self) -> float:
        """AUC of the domain that is served worst."""
        return min(self.auc)


@dataclass(frozen=True)
class SiloBudget:
    """Epsilon of one silo's data set: what its ledger says, and what another accountant finds in the training log.

    Infinite if the data set is public and a study used it without noise.
    """

    silo: str
    spent: float
    recomputed: float
    budget: float

    @property
    def left(self) -> float:
        """What later studies may still spend, at least 0."""
        return max(self.budget - self.spent, 0.0)


@dataclass(frozen=True)
class TensorBytes:
    """One kind of upload: values before sealing, bytes on the wire, and how often a silo sent it in the study."""

    tensor: str
    ring: str
    values: int
    bytes: int
    times: int


@dataclass(frozen=True)
class RoundBytes:
    """Bytes that one silo sent and fetched in one round, everything included."""

    round: int
    sent: int
    fetched: int


@dataclass(frozen=True)
class WorkSeconds:
    """Seconds of wall-clock time that one kind of work took in the whole study."""

    name: str
    seconds: float


@dataclass(frozen=True)
class PersonalResult:
    """Mean AUC over the domains of one hospital's models: the shared one, and the personal one that never leaves."""

    silo: str
    shared: float
    personal: float


@dataclass(frozen=True)
class ReportData:
    """Everything on the page. An empty tuple leaves its section out: without public test data there is a page too."""

    title: str
    study: Study
    budgets: tuple[SiloBudget, ...]
    seconds: float
    """Wall-clock time of the study, from the first offer to the last opening."""
    methods: tuple[MethodRow, ...] = ()
    """FedWard first."""
    sealed: tuple[PublishedFigure, ...] = ()
    """What every hospital reads from the opened sums over held-out patients."""
    uploads: tuple[TensorBytes, ...] = ()
    rounds: tuple[RoundBytes, ...] = ()
    phases: tuple[WorkSeconds, ...] = ()
    personal: tuple[PersonalResult, ...] = ()
    settings: tuple[tuple[str, str], ...] = ()
    synthetic: bool = True
    """Whether the patients are made up; the page says so."""

    def __post_init__(self) -> None:
        for method in self.methods:
            if len(method.auc) != len(self.domains) or len(method.spread) not in (0, len(self.domains)):
                msg = f"{method.name}: one AUC per domain is needed, {len(self.domains)} in all"
                raise ValueError(msg)
        if not self.budgets:
            msg = "the budget of one silo at least is needed"
            raise ValueError(msg)

    @property
    def domains(self) -> tuple[str, ...]:
        """The study's domains, in order."""
        return self.study.data.domains

    @property
    def noised(self) -> bool:
        """Whether the study used noise; without it nothing is protected, and there is no epsilon to speak of."""
        return self.study.privacy.mode != "none"

    @property
    def spent(self) -> float:
        """The largest epsilon that any silo's ledger holds."""
        return max(b.spent for b in self.budgets)

    @property
    def budget(self) -> float:
        """The smallest budget among the silos."""
        return min(b.budget for b in self.budgets)

    @property
    def sent(self) -> int:
        """Bytes that one silo sent over all rounds."""
        return sum(r.sent for r in self.rounds)

    @property
    def worst_domain(self) -> str | None:
        """The domain that the first method serves worst; None without public test data."""
        if not self.methods:
            return None
        auc = self.methods[0].auc
        return self.domains[auc.index(min(auc))]

    def ledgers_agree(self, tolerance: float = 0.01) -> bool:
        """Whether every ledger's epsilon is within 1 % of what another accountant finds in the training log."""
        return all(
            b.spent == b.recomputed
            or (math.isfinite(b.recomputed) and abs(b.spent - b.recomputed) <= tolerance * b.recomputed)
            for b in self.budgets
        )
