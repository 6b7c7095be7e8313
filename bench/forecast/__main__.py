"""Forecast against outcome for 30 studies: `cases` says which, and where each expectation comes from.

The outcome is one run of the study in one process (`deploy.local.simulate`), in the mean over the domains that the
forecast is about. Made-up studies are measured on 3,000 more patients of each domain; of a real data set there are only
the held-out patients, so the forecast is widened by the sampling of as many as were expected (Hanley and McNeil 1982).
The gap is what the noise costs against the better of the same study without noise and one regression on all patients.
The forecaster's law was chosen without these studies (docs/forecast.md).
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bench.forecast.cases import CASES, HELD_OUT, Case
from bench.forecast.tables import DATA
from bench.hospitals import pooled
from bench.table import Figure, judge
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
WITHIN, WIDTH = 25 / 30, 0.06
COIN, POOR, RIGHT = 0.55, 0.58, 0.8


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


def main() -> int:
    """Measure every study, print what was said and what came, and judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="studies whose names contain this")
    parser.add_argument("--seeds", type=int, default=1, help="more runs of each study, to look at")
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    cases = [case for case in CASES if given.only in case.name]
    if any(case.needs_files for case in cases) and not DATA.is_dir():
        print(f"there is no folder {DATA} with the real data sets", file=sys.stderr)
        return 1
    results = []
    for result in _all(cases, given.seeds, given.workers):
        results.append(result)
        print(_line(result), file=sys.stderr, flush=True)
    return judge("forecast", figures(results), [asdict(result) for result in results])


def _all(cases: Sequence[Case], seeds: int, workers: int) -> Iterator[Result]:
    tasks = [(case, SEED + number) for case in cases for number in range(seeds)]
    if workers <= 1:
        yield from (measured(*task) for task in tasks)
        return
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(measured, *zip(*tasks, strict=True))


def figures(results: Sequence[Result]) -> list[Figure]:
    """What is wanted of all studies together."""
    count = len(results)
    least = -(-count * 5 // 6)
    held, gaps = (sum(getattr(one, what) for one in results) for what in ("held", "gap_held"))
    width = float(np.median([one.said.high - one.said.low for one in results]))
    coins = [one for one in results if one.mean < COIN]
    missed = [one.name for one in coins if not one.named]
    named = [one for one in results if one.named]
    right = sum(one.mean < POOR for one in named)
    return [
        Figure("outcome in the 90 % interval", f">= {least} of {count}", f"{held}", held >= least),
        Figure("gap to the fit without privacy in its interval", f">= {least} of {count}", f"{gaps}", gaps >= least),
        Figure("median width of the intervals", f"<= {WIDTH:g}", f"{width:.3f}", width <= WIDTH),
        Figure(
            f"studies below {COIN:g} that were not named a coin toss",
            "none",
            ", ".join(missed) or f"none of {len(coins)}",
            not missed,
        ),
        Figure(
            f"of the studies named so, below {POOR:g}",
            f">= {RIGHT:.0%}",
            f"{right} of {len(named)}",
            right >= RIGHT * len(named),
        ),
    ]


def _line(one: Result) -> str:
    came = one.plain_mean - one.mean
    parts = [
        f"{one.name:20s} said {_shown(one.said)}{' COIN' if one.named else ''} came {one.mean:.3f}",
        "" if one.held else "OUT",
        f"worst {_shown(one.row.worst)} came {one.worst:.3f}, gap {_shown(one.row.gap)} came {came:.3f}",
        "" if one.gap_held else "OUT",
    ]
    return " ".join(part for part in parts if part)


def _shown(found: Interval) -> str:
    return f"{found.low:.3f} to {found.high:.3f}"


if __name__ == "__main__":
    sys.exit(main())
