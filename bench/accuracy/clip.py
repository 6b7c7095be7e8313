"""What `heads.clip_by` does to risks and to accuracy, paired over fresh seeds.

Columns: 30,000 patients at four hospitals, 15 % of them ill; five skewed numbers and three yes/no columns that are
entered as numbers, of which the rarest (one patient in ten) has no effect. Shown is what is predicted of these patients
over their true risk, which the clip by a term's own length makes too low (docs/design/heads.md, "Clip"), and the AUC.
Numbers: the same columns, an outcome that is a number. Real: diabetes-130, whose study has a clip of 1.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit
from scipy.stats import norm

from bench.accuracy.real import data_sets
from bench.intervals import Interval
from bench.places import DATA, OUT
from bench.table import Criterion, judge
from deploy.local.simulate.engine import simulate
from deploy.local.simulate.many import each_seed
from deploy.local.simulate.outcome import Outcome, RunMetrics
from deploy.local.simulate.silos import Cohorts, Silo, of_arrays
from policies.accounting import accountant
from policies.accounting.accountant import with_fields
from policies.accounting.completing import complete
from policies.documents.document import check_document
from policies.documents.draft import Draft
from policies.documents.study import Study
from policies.plan.families import TARGET_STEPS
from silo_agent.data.records import Records

Floats = NDArray[np.float64]
SEEDS: Final = range(500, 516)
EPSILONS: Final = (2.0, 8.0)
PATIENTS, SILOS, TESTED = 30_000, 4, 60_000
PREVALENCE: Final = 0.15
EFFECTS: Final = np.array([1.2, -0.8, 0.6, 0.0, 1.0, 0.35, 0.2, 0.0])
"""Of the inputs on [-1, 1]: five numbers, three yes/no columns; the last one is the rare one without effect."""
_CENTRES: Final = np.array([0.0, -0.2, -0.3, 0.1, -0.4])
_SPREADS: Final = np.array([0.35, 0.3, 0.25, 0.3, 0.2])
_YES: Final = np.array([0.5, 0.3, 0.1])
_NOISE: Final = 0.3
"""Deviation of a number around what the columns tell of it; its range is [-1, 1]."""
NEAR: Final = 0.03
"""How far predicted over true risk of the rare patients, beside that of all, may be from 1 in the mean."""
WITHIN: Final = 0.002
"""How much of the AUC or R^2 the outcome-blind clip may cost in the mean."""


@dataclass(frozen=True, repr=False, eq=False)
class ClippedRun(RunMetrics):
    """One seed. `ratio`: predicted over true risk of the rare patients, over that of all (nan of a number)."""

    ratio: float


@dataclass(frozen=True)
class Columns:
    """Patients of the law. `number`: their outcome is a number."""

    number: bool

    def draw(self, study: Study, seed: int) -> Cohorts:  # noqa: ARG002 - of a source; the law depends on no study
        """Silos' records and the test records."""
        rng = np.random.default_rng(seed)
        silos = {
            f"hospital-{number}": Silo(self._people(rng, PATIENTS // SILOS), self._people(rng, 100))
            for number in range(SILOS)
        }
        return Cohorts(silos, self._people(rng, TESTED))

    def _people(self, rng: np.random.Generator, count: int) -> Records:
        inputs = columns(rng, count)
        along = inputs @ EFFECTS
        if self.number:
            place = np.clip(along / 4.0 + _NOISE * rng.normal(size=count), -1.0, 1.0)
            labels = np.rint((place + 1.0) * (TARGET_STEPS // 2)).astype(np.int64)
        else:
            labels = (rng.random(count) < expit(along + OFFSET)).astype(np.int64)
        return of_arrays(inputs, labels, np.zeros(count, np.int64))


def columns(rng: np.random.Generator, count: int) -> Floats:
    """Inputs (n, 8) on [-1, 1], correlated."""
    shared = rng.normal(size=(count, 2))
    loads = np.array([[0.5, 0.2], [0.3, 0.5], [0.6, 0.0], [0.0, 0.4], [0.4, 0.4]])
    own = np.sqrt(1.0 - (loads**2).sum(axis=1))
    numbers = _CENTRES + _SPREADS * (shared @ loads.T + rng.normal(size=(count, 5)) * own)
    tilted = 0.4 * shared[:, :1] + np.sqrt(1.0 - 0.16) * rng.normal(size=(count, 3))
    yes = np.where(tilted < norm.ppf(_YES), 1.0, -1.0)
    return np.concatenate([np.clip(numbers, -1.0, 1.0), yes], axis=1)


def _offset() -> float:
    along = columns(np.random.default_rng(0), 200_000) @ EFFECTS
    return float(brentq(lambda offset: expit(along + offset).mean() - PREVALENCE, -12, 8))


OFFSET: Final = _offset()


def study_of(epsilon: float, *, number: bool, **heads: Any) -> Study:
    """The study that FedWard completes for these columns, with its heads changed."""
    label: dict[str, Any] = {"column": "outcome", "positive": [1], "negative": [0]}
    if number:
        label = {"column": "outcome", "minimum": -1, "maximum": 1}
    ends = [(-1, 1)] * 5 + [(0, 1)] * 3
    features = [
        {"kind": "number", "column": f"x{place}", "minimum": low, "maximum": high}
        for place, (low, high) in enumerate(ends)
    ]
    draft = {
        "name": "clip",
        "purpose": "Compare two clips.",
        "silos": [f"hospital-{number}" for number in range(SILOS)],
        "data": {
            "label": label,
            "domain": [{"column": "all", "values": [1], "names": ["all"]}],
            "features": features,
        },
        "model": {"encoder": "raw"},
        "heads": heads,
        "privacy": {"epsilon": epsilon, "delta": 1e-6},
        "expected": {"patients": [PATIENTS // SILOS]} | ({} if number else {"prevalence": PREVALENCE}),
    }
    return complete(check_document(draft, Draft, ""), "")


def run(study: Study, cohorts: Cohorts, *, seed: int) -> ClippedRun:
    """One seed of the law."""
    outcome = simulate(study, cohorts, seed=seed)
    ratio = np.nan if outcome.figure == "r2" else _ratio(outcome, cohorts)
    return ClippedRun(study, seed, outcome.exact, outcome.together, ratio)


def _ratio(outcome: Outcome, cohorts: Cohorts) -> float:
    """Predicted over true risk of the patients who have the rare column, over that of all patients."""
    (test,) = cohorts.measured
    inputs = np.asarray(test.inputs[:], np.float64)
    said = outcome.model.predict(test.inputs[:], test.domains, None)[:, 1]
    true, rare = expit(inputs @ EFFECTS + OFFSET), inputs[:, -1] > 0.0
    return float(said[rare].mean() / true[rare].mean() * true.mean() / said.mean())


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=DATA, help="folder with diabetes130")
    parser.add_argument("--seeds", type=int, default=len(SEEDS))
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    figures: list[Criterion] = []
    details: dict[str, Any] = {}
    for epsilon in EPSILONS:
        for name, number, clips in (("columns", False, (1.0, 0.5)), ("number", True, (0.3, 0.6, 1.0))):
            runs = {
                (clip, by): each_seed(
                    run,
                    study_of(epsilon, number=number, clip=clip, clip_by=by),
                    Columns(number),
                    SEEDS[: given.seeds],
                    workers=given.workers,
                )
                for clip in clips
                for by in ("own", "worst")
            }
            for (clip, by), found in runs.items():
                level = np.mean([one.mean for one in found]), np.mean([one.ratio for one in found])
                details[f"{name}, epsilon {epsilon:g}, clip {clip:g} by {by}"] = level
                print(
                    f"{name}, epsilon {epsilon:g}, clip {clip:g} by {by}: {level[0]:.4f}, rare {level[1]:.3f}",
                    flush=True,
                )
            figures += judged(f"{name}, epsilon {epsilon:g}", runs)
    figures += real(given.data, given.seeds, given.workers)
    return judge("clip", figures, details)


def judged(name: str, runs: Mapping[tuple[float, str], Sequence[ClippedRun]]) -> list[Criterion]:
    """What the outcome-blind clip costs at a clip of 1, and whether the rare patients' risks are right."""
    own, worst = runs[1.0, "own"], runs[1.0, "worst"]
    cost = Interval.of([one.mean - other.mean for one, other in zip(worst, own, strict=True)])
    figures = [Criterion(f"{name}: clip 1 by worst less own", f"> -{WITHIN:g}", _told(cost), cost.mean > -WITHIN)]
    if not np.isnan(worst[0].ratio):
        found, before = (Interval.of([one.ratio for one in those]) for those in (worst, own))
        text = f"{_told(found)} (own: {_told(before)})"
        met = abs(found.mean - 1.0) <= NEAR
        figures.append(Criterion(f"{name}: rare patients, predicted over true", f"within {NEAR:g} of 1", text, met))
    return figures


def _told(found: Interval) -> str:
    return f"{found.mean:.4f} +- {found.half:.4f}"


def real(data: Path, seeds: int, workers: int) -> list[Criterion]:
    """The mean domain's AUC on diabetes-130."""
    source = data_sets.load("diabetes", data, OUT)
    figures = []
    for epsilon in (1.0, 4.0):
        runs = [
            each_seed(
                simulate,
                accountant.calibrate(with_fields(source.study, {"heads.clip_by": by}), epsilon),
                source.source,
                range(min(seeds, 10)),
                workers=workers,
            )
            for by in ("own", "worst")
        ]
        cost = Interval.of([one.mean - other.mean for other, one in zip(*runs, strict=True)])
        name = f"diabetes-130, epsilon {epsilon:g}: clip 1 by worst less own"
        figures.append(Criterion(name, f"> -{WITHIN:g}", _told(cost), cost.mean > -WITHIN))
    return figures


if __name__ == "__main__":
    sys.exit(main())
