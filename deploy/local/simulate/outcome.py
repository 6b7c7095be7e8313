"""What a simulated run gives: the model, the metrics that would be published, and the exact ones beside them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from policies.accounting import accountant
from policies.documents.study import Study
from policies.plan.cost import COHORTS
from policies.plan.release import plan
from silo_agent.data.outcome import half_range
from silo_agent.data.records import Records
from silo_agent.learning.figures.evaluation import Results, quality
from silo_agent.learning.figures.moments import number_quality
from silo_agent.learning.model.shared import SharedModel
from silo_agent.learning.outcomes.family import is_of_classes
from silo_agent.learning.outcomes.registry import family_of_study

Array = NDArray[np.float64]
Figure = Literal["auc", "accuracy", "r2"]


@dataclass(frozen=True)
class Exact:
    """Exact metrics of test records: of one domain, or of all together. What the outcomes do not have is None.

    `auc`: of two classes, if both are there. `accuracy`: of classes. `calibration`: the mean prediction over the
    observed rate, 1 where risks are right, None if nothing was observed; a patient with several records counts once, as
    in the silos' sums. With more than two classes it compares the
    predicted class's probability with how often it was right. `least`: records of the rarest class; all records if the
    outcome is a number. `r2`, `mae`: of a number, the explained share of its variance and the mean absolute error in
    its unit.
    """

    auc: float | None
    accuracy: float | None
    calibration: float | None
    records: int
    least: int
    r2: float | None = None
    mae: float | None = None


@dataclass(frozen=True, repr=False, eq=False)
class RunMetrics:
    """Exact metrics of one run: by domain, in the study's order, and of all test records together."""

    study: Study
    seed: int
    exact: tuple[Exact, ...]
    together: Exact

    @property
    def figure(self) -> Figure:
        """What the study is judged by: AUC of two classes, accuracy of more, R2 of a number."""
        family = family_of_study(self.study)
        if not is_of_classes(family):
            return "r2"
        return "auc" if family.has_auc else "accuracy"

    def value(self, own: Exact) -> float | None:
        """The figure that the study is judged by."""
        found: float | None = getattr(own, self.figure)
        return found

    @property
    def mean(self) -> float:
        """Mean of the figure over the domains that have one; nan if none has."""
        return mean([self.value(own) for own in self.exact])

    def worst(self, least: int = 0) -> float:
        """The least figure among domains whose rarest class has at least `least` test records; else nan."""
        found = [self.value(own) for own in self.exact if own.least >= least]
        return min((value for value in found if value is not None), default=math.nan)


@dataclass(frozen=True, repr=False, eq=False)
class Outcome(RunMetrics):
    """One run of a study. `published`: what the silos would sign, from the noised sums of held-out patients.

    `own`: if the recipe keeps parts at the silos and `exact` is of separate test records, what each silo's complete
    model gives for its own held-out patients, all together; else None.
    `ensemble`: what the mean of all silos' own models gives, if it was asked for (`simulate.ensemble`).
    """

    model: SharedModel
    published: Results
    own: RunMetrics | None = None
    ensemble: RunMetrics | None = None

    @property
    def epsilon(self) -> Mapping[str, float]:
        """What the study costs by cohort, at its delta; infinite without noise."""
        return epsilons(self.study)


def mean(values: Sequence[float | None]) -> float:
    """The mean of the values that are there; nan if there are none."""
    found = [value for value in values if value is not None and not math.isnan(value)]
    return float(np.mean(found)) if found else math.nan


def measure(study: Study, parts: Sequence[Records], said: Sequence[Array]) -> tuple[tuple[Exact, ...], Exact]:
    """Exact metrics by domain, and of all records together, from the predictions (n, C) of each part's records."""
    label, family = study.data.label, family_of_study(study)
    all_said = np.concatenate(said)
    all_labels = np.concatenate([records.labels for records in parts])
    domains = np.concatenate([records.domains for records in parts])
    weights = np.concatenate([records.weights for records in parts])

    def exact(rows: NDArray[np.bool_]) -> Exact:
        own, labels = all_said[rows], all_labels[rows]
        if not is_of_classes(family):
            number = number_quality(own, labels, half_range(label))
            return Exact(None, None, None, len(labels), len(labels), r2=number.r2, mae=number.mae)
        found = quality(own, labels, study.evaluation.bins, family)
        happened, claimed = family.claim(own, labels)
        observed = float(happened @ weights[rows])
        return Exact(
            auc=found.auc,
            accuracy=found.accuracy,
            calibration=float(claimed @ weights[rows]) / observed if observed else None,
            records=len(labels),
            least=int(np.bincount(labels, minlength=label.count).min()),
        )

    by_domain = tuple(exact(domains == m) for m in range(len(study.data.domains)))
    return by_domain, exact(np.ones(len(domains), np.bool_))


@lru_cache(maxsize=32)
def epsilons(study: Study) -> Mapping[str, float]:
    """Epsilon by cohort of a run without repeated rounds, at the study's delta."""
    costs = plan(study).costs()
    delta = study.privacy.delta
    return {name: accountant.epsilon((cost for cost in costs if cost.cohort == name), delta) for name in COHORTS}
