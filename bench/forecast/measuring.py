"""One study of the bench: its forecast, and then its outcome."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bench.forecast.cases import HELD_OUT, Case
from bench.hospitals import pooled
from deploy.local.simulate.engine import simulate
from deploy.local.simulate.silos import Cohorts, Held
from deploy.local.simulate.variants import without_noise
from policies.documents.study import Study
from silo_agent.data.records import Records
from silo_agent.learning.device import limit_threads
from silo_agent.learning.evaluation.evaluation import auc
from silo_agent.learning.forecast import asked as expecting
from silo_agent.learning.forecast import plain
from silo_agent.learning.forecast.forecast import Interval, Row, counted, forecast
from silo_agent.learning.forecast.verdict import is_coin

Floats = NDArray[np.float64]
SEED: Final = 300


@dataclass(frozen=True)
class Result:
    """One study: what was said, and what came. `said` is the forecast of the mean, widened by the test's sampling."""

    name: str
    row: Row
    said: Interval
    named: bool
    mean: float
    worst: float
    plain_mean: float

    @property
    def held(self) -> bool:
        """Whether the outcome lies in the interval."""
        return self.said.low <= self.mean <= self.said.high

    @property
    def gap_held(self) -> bool:
        """Whether the gap to the fit without privacy does."""
        return self.row.gap.low <= self.plain_mean - self.mean <= self.row.gap.high


def measured(case: Case, seed: int = SEED) -> Result:
    """The forecast, and then the outcome."""
    limit_threads(1)
    study = case.study
    patients = tuple(round(size * (1 - HELD_OUT)) for size in case.sizes)
    shares = tuple(share / sum(case.shares) for share in case.shares)
    asked = expecting.Asked(patients, shares, case.prevalence, (case.effect,), HELD_OUT)
    about, found = counted(study, asked), forecast(study, asked)
    (row,) = found.rows
    said = (
        widened(row.mean, [asked.aside * shares[m] for m in about], case.prevalence) if case.needs_files else row.mean
    )
    cohorts = Held(case.records(seed), HELD_OUT, case.test(seed)).draw(study, seed)
    own, quiet = (_run(one, cohorts, about, seed) for one in (study, without_noise(study)))
    training, test = pooled([silo.training for silo in cohorts.silos.values()]), pooled(cohorts.measured)
    together = _areas(plain.predictions(training, test, number=False), test, about)
    return Result(case.name, row, said, is_coin(found.figure, row), *own, max(quiet[0], together[0]))


def widened(said: Interval, tested: Sequence[float], prevalence: float) -> Interval:
    """The interval with the sampling of so many test patients of each domain (Hanley and McNeil 1982)."""
    a, variances = said.middle, []
    for count in tested:
        positive, negative = count * prevalence, count * (1.0 - prevalence)
        one, other = a / (2.0 - a) - a * a, 2.0 * a * a / (1.0 + a) - a * a
        variances.append((a * (1 - a) + (positive - 1) * one + (negative - 1) * other) / (positive * negative))
    reach = NormalDist().inv_cdf(0.95) * math.sqrt(sum(variances)) / len(tested)
    return Interval(a, a - math.hypot(a - said.low, reach), a + math.hypot(said.high - a, reach))


def _run(study: Study, cohorts: Cohorts, about: Sequence[int], seed: int) -> tuple[float, float]:
    model, test = simulate(study, cohorts, seed=seed).model, pooled(cohorts.measured)
    return _areas(model.predict(test.inputs, test.domains), test, about)


def _areas(said: Floats, test: Records, about: Sequence[int]) -> tuple[float, float]:
    """Mean and worst AUC over these domains."""
    rows = [test.domains == m for m in about]
    found = [value for own in rows if (value := auc(said[own, 1], test.labels[own])) is not None]
    return float(np.mean(found)), min(found)
