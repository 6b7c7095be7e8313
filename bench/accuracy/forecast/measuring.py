"""One study of the bench: its forecast, and then its outcome."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bench.accuracy.forecast.cases import HELD_OUT, Case
from bench.accuracy.hospitals import pooled
from deploy.local.simulate.engine import simulate
from deploy.local.simulate.silos import Cohorts, HeldRecords, Silo
from deploy.local.simulate.variants import without_noise
from policies.documents.study import Study
from silo_agent.data.records import Records
from silo_agent.forecast import assumptions as expecting
from silo_agent.forecast import plain
from silo_agent.forecast.forecast import ForecastInterval, Row, counted, forecast
from silo_agent.forecast.sampling import area_variance
from silo_agent.forecast.verdict import is_coin, is_no_gain, is_often_no_gain
from silo_agent.learning.device import limit_threads
from silo_agent.learning.figures.evaluation import auc

Floats = NDArray[np.float64]
SEED: Final = 300
FOLDS: Final = 5
COHORTS: Final = 3
"""Other cohorts from which a publication on a made-up population is made."""
LEAST: Final = 40
"""Patients of the rarer class with whom a real domain counts. With fewer, their sampling alone moves its AUC by .05
(one deviation), whatever the model is worth."""


@dataclass(frozen=True)
class Result:
    """One study: what was said, and what came.

    Attributes:
        said: the forecast of the mean, widened by the test's sampling.
        named: whether it was named a coin toss.
        told: whether a sentence said that the study may be no better than a coin or than staying alone.
        alone: what one hospital reaches by a regression on its own patients, in the mean over the hospitals.
    """

    name: str
    row: Row
    said: ForecastInterval
    named: bool
    told: bool
    mean: float
    worst: float
    plain_mean: float
    alone: float

    @property
    def held(self) -> bool:
        """Whether the outcome lies in the interval."""
        return self.said.low <= self.mean <= self.said.high

    @property
    def gain(self) -> float:
        """What the study is worth beyond staying alone."""
        return self.mean - self.alone

    @property
    def gap_held(self) -> bool:
        """Whether the gap to the fit without privacy does."""
        return self.row.gap.low <= self.plain_mean - self.mean <= self.row.gap.high


def measured(case: Case, seed: int = SEED) -> Result:
    """The forecast, and then the outcome."""
    limit_threads(1)
    study = case.study
    asked = _asked(case)
    if case.is_real:
        about, tested = measurable(case, asked.shares), [sum(case.sizes) * share for share in asked.shares]
        forecasted = forecast(study, asked, about=about, runs=FOLDS)
        (row,) = forecasted.rows
        said = widened(row.mean, [tested[m] for m in about], case.prevalence)
        own, quiet, together, alone = _folds(study, case.records(seed), about, seed)
    else:
        about, forecasted = counted(study, asked), forecast(study, asked)
        (row,) = forecasted.rows
        said = row.mean
        cohorts = HeldRecords(case.records(seed), HELD_OUT, case.test(seed)).draw(study, seed)
        own, quiet, together, alone = (_summary([areas]) for areas in _areas_of(study, cohorts, about, seed))
    named = is_coin(forecasted.figure, row)
    told = named or is_no_gain(row) or is_often_no_gain(row)
    return Result(case.name, row, said, named, told, *own, max(quiet[0], together[0]), alone[0])


def published(case: Case, seed: int = SEED) -> float:
    """What a publication would report of a made-up population: the mean AUC without noise on other cohorts of it."""
    limit_threads(1)
    study, values = case.study, []
    about = counted(study, _asked(case))
    for cohort in range(1, COHORTS + 1):
        records, test = case.published(seed, cohort)
        cohorts = HeldRecords(records, HELD_OUT, test).draw(study, seed)
        _, quiet, together, _ = (_summary([areas]) for areas in _areas_of(study, cohorts, about, seed))
        values.append(max(quiet[0], together[0]))
    return float(np.mean(values))


def _asked(case: Case) -> expecting.Asked:
    """What the case's author expects."""
    patients = tuple(round(size * (1 - HELD_OUT)) for size in case.sizes)
    shares = tuple(share / sum(case.shares) for share in case.shares)
    return expecting.Asked(patients, shares, case.prevalence, (case.effect,), HELD_OUT)


def measurable(case: Case, shares: Sequence[float]) -> tuple[int, ...]:
    """Domains of a real data set in which its patients hold at least `LEAST` of the rarer class, as expected."""
    rarer = sum(case.sizes) * min(case.prevalence, 1.0 - case.prevalence)
    return tuple(m for m, share in enumerate(shares) if share * rarer >= LEAST)


def widened(said: ForecastInterval, tested: Sequence[float], prevalence: float) -> ForecastInterval:
    """The interval with the sampling of so many test patients of each domain."""
    variances = [area_variance(said.middle, count * prevalence, count * (1.0 - prevalence)) for count in tested]
    reach = NormalDist().inv_cdf(0.95) * math.sqrt(sum(variances)) / len(tested)
    low, high = math.hypot(said.middle - said.low, reach), math.hypot(said.high - said.middle, reach)
    return ForecastInterval(said.middle, said.middle - low, said.middle + high)


@dataclass(frozen=True)
class _Area:
    """AUC of one domain, and the pairs of patients that it compares."""

    value: float
    pairs: int


_Areas = Sequence[_Area | None]
"""By domain; None if a class is absent."""


def _folds(
    study: Study, records: Mapping[str, Records], about: Sequence[int], seed: int
) -> tuple[tuple[float, float], ...]:
    """Mean and worst AUC over all held-out fifths, of the ways of `_areas_of`."""
    folds = []
    for number, cohorts in enumerate(_fifths(records, seed)):
        folds.append(_areas_of(study, cohorts, about, seed + number))
    return tuple(_summary(way) for way in zip(*folds, strict=True))


def _fifths(records: Mapping[str, Records], seed: int) -> Iterator[Cohorts]:
    """The cohorts with each fifth of every hospital's patients held out in turn."""
    rng = np.random.default_rng(seed)
    fold = {name: rng.permutation(own.patient_count) % FOLDS for name, own in records.items()}
    for number in range(FOLDS):
        yield Cohorts(
            {
                name: Silo(own.of_patients(fold[name] != number), own.of_patients(fold[name] == number))
                for name, own in records.items()
            }
        )


def _areas_of(study: Study, cohorts: Cohorts, about: Sequence[int], seed: int) -> tuple[_Areas, ...]:
    """Areas of the study, of the same without noise, of one regression on all patients, and of a hospital alone."""
    training, test = pooled([silo.training for silo in cohorts.silos.values()]), pooled(cohorts.measured)
    own, quiet = (_run(one, cohorts, test, seed) for one in (study, without_noise(study)))
    said = (own, quiet, plain.predictions(training, test, number=False))
    together = [[_area(each, test, m) for m in about] for each in said]
    return *together, _alone(cohorts, test, about)


def _alone(cohorts: Cohorts, test: Records, about: Sequence[int]) -> _Areas:
    """By domain the mean over the hospitals, each with a regression on its own patients."""
    fits = [plain.predictions(silo.training, test, number=False) for silo in cohorts.silos.values()]
    by_domain: list[_Area | None] = []
    for m in about:
        areas = [area for area in (_area(said, test, m) for said in fits) if area is not None]
        mean = float(np.mean([area.value for area in areas])) if areas else 0.0
        by_domain.append(_Area(mean, areas[0].pairs) if areas else None)
    return by_domain


def _run(study: Study, cohorts: Cohorts, test: Records, seed: int) -> Floats:
    return simulate(study, cohorts, seed=seed).model.predict(test.inputs, test.domains)


def _area(said: Floats, test: Records, domain: int) -> _Area | None:
    rows = test.domains == domain
    value = auc(said[rows, 1], test.labels[rows])
    positive = int(test.labels[rows].sum())
    return None if value is None else _Area(value, positive * (int(rows.sum()) - positive))


def _summary(runs: Sequence[_Areas]) -> tuple[float, float]:
    """Mean and worst over the domains. In each the runs' areas are averaged by their pairs of patients."""
    areas = []
    for of_runs in zip(*runs, strict=True):
        known = [area for area in of_runs if area is not None]
        if known:
            areas.append(float(np.average([area.value for area in known], weights=[area.pairs for area in known])))
    return float(np.mean(areas)), min(areas)
