"""What a simulated run gives: the model, the metrics that would be published, and the exact ones beside them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from deploy.local.simulate.errors import SimulationError
from policies.accounting import accountant
from policies.documents.study import Study
from policies.plan.cost import COHORTS
from policies.plan.release import plan
from silo_agent.data.records import Records
from silo_agent.learning.evaluation.evaluation import Results, quality
from silo_agent.learning.families.family import OfClasses, is_of_classes
from silo_agent.learning.families.registry import family_of
from silo_agent.learning.model import SharedModel

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Exact:
    """Exact metrics of test records: of one domain, or of all together.

    `auc`: None with more than two classes or if a class is absent. `accuracy`: None without records. `calibration`: the
    mean prediction over the observed rate, 1 where risks are right, None if nothing was observed. With more than two
    classes it compares the predicted class's probability with how often it was right. `least`: records of the rarest
    class.
    """

    auc: float | None
    accuracy: float | None
    calibration: float | None
    records: int
    least: int


@dataclass(frozen=True, repr=False, eq=False)
class Measured:
    """Exact metrics of one run: by domain, in the study's order, and of all test records together."""

    study: Study
    seed: int
    exact: tuple[Exact, ...]
    together: Exact

    @property
    def ranked(self) -> bool:
        """Whether the study's outcomes have an AUC; where not, the accuracy stands in its place."""
        return classes_of(self.study).has_auc

    def value(self, own: Exact) -> float | None:
        """The AUC, or the accuracy where there is no such thing as an AUC."""
        return own.auc if self.ranked else own.accuracy

    @property
    def mean(self) -> float:
        """Mean AUC (or accuracy) over the domains that have one; nan if none has."""
        return mean([self.value(own) for own in self.exact])

    def worst(self, least: int = 0) -> float:
        """The least AUC (or accuracy) among domains with at least `least` test records of their rarest class.

        nan if there is none.
        """
        found = [self.value(own) for own in self.exact if own.least >= least]
        return min((value for value in found if value is not None), default=math.nan)


@dataclass(frozen=True, repr=False, eq=False)
class Outcome(Measured):
    """One run of a study. `published`: what the silos would sign, from the noised sums of held-out patients."""

    model: SharedModel
    published: Results

    @property
    def epsilon(self) -> Mapping[str, float]:
        """What the study costs by cohort, at its delta; infinite without noise."""
        return epsilons(self.study)


def mean(values: Sequence[float | None]) -> float:
    """The mean of the values that are there; nan if there are none."""
    found = [value for value in values if value is not None and not math.isnan(value)]
    return float(np.mean(found)) if found else math.nan


def classes_of(study: Study) -> OfClasses:
    """The family of a study whose outcomes are classes. Raises `SimulationError` for a number."""
    family = family_of(study.data.label.count)
    if not is_of_classes(family):
        msg = "a simulation measures classes, and data.label of this study is a number; give a study of classes"
        raise SimulationError(msg)
    return family


def measure(study: Study, parts: Sequence[Records], said: Sequence[Array]) -> tuple[tuple[Exact, ...], Exact]:
    """Exact metrics by domain, and of all records together, from the probabilities (n, C) of each part's records."""
    family = classes_of(study)
    all_said = np.concatenate(said)
    all_labels = np.concatenate([records.labels for records in parts])
    domains = np.concatenate([records.domains for records in parts])

    def exact(rows: NDArray[np.bool_]) -> Exact:
        own, labels = all_said[rows], all_labels[rows]
        found = quality(own, labels, study.evaluation.bins, family)
        happened, claimed = family.claim(own, labels)
        observed = float(happened.sum())
        return Exact(
            auc=found.auc,
            accuracy=found.accuracy,
            calibration=float(claimed.sum()) / observed if observed else None,
            records=len(labels),
            least=int(np.bincount(labels, minlength=study.data.label.count).min()),
        )

    by_domain = tuple(exact(domains == m) for m in range(len(study.data.domains)))
    return by_domain, exact(np.ones(len(domains), np.bool_))


@lru_cache(maxsize=32)
def epsilons(study: Study) -> Mapping[str, float]:
    """Epsilon by cohort of a run without repeated rounds, at the study's delta."""
    costs = plan(study).costs()
    delta = study.privacy.delta
    return {name: accountant.epsilon((cost for cost in costs if cost.cohort == name), delta) for name in COHORTS}
