"""What one hospital can do to the demo's study by what it contributes, on purpose or by mistake, and who notices.

Four runs on the same patients and draws of each fresh seed: as it is; with the largest hospital's contributions
flipped and ten times too large; flipped only; and with yes and no swapped in the records of one small hospital. The
flipped sums are also opened without the check of what counted patients can give (`contributions.possible`), to see what
it prevents.
Whoever flips no more than an honest contribution is large is within every bound that reads no contribution: then only
people notice, by the warnings of each hospital's own held-out patients (docs/design/threat-model.md).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from bench.accuracy.exam import STUDY, Made
from bench.table import Criterion, judge
from deploy.demo.sources import load_source
from deploy.local.simulate.engine import simulate
from deploy.local.simulate.groups import VirtualSilo
from deploy.local.simulate.many import each_seed
from deploy.local.simulate.outcome import Exact, RunMetrics
from deploy.local.simulate.silos import Cohorts, Silo
from policies.documents.study import Study
from silo_agent.learning.errors import SumError
from silo_agent.learning.model.shared import SharedModel
from silo_agent.learning.personal.own_patients import warnings

Floats = NDArray[np.float64]

SEEDS: Final = range(321, 329)
"""Seeds that nothing was chosen on."""
SMALL: Final = 0.07
"""The small hospital is the one whose share of the patients is nearest to this."""
TIMES: Final = 10
AS_IT_IS, ENLARGED, FLIPPED, SWAPPED = "as it is", f"flipped, times {TIMES}", "flipped", "yes and no swapped"
REFUSED, HARM, SEEN = "refused", "areas", "warned"


@dataclass(frozen=True, repr=False, eq=False)
class PoisoningResult(RunMetrics):
    """By run: domain AUC (M,), whether the check refused it, and how many honest hospitals and others were warned."""

    areas: Mapping[str, Floats]
    refused: Mapping[str, bool]
    warned: Mapping[str, tuple[int, int]]


def everything(study: Study, cohorts: Cohorts, *, seed: int) -> PoisoningResult:
    """A run for `many.each_seed`: one seed's patients under each attack."""
    sizes = {name: len(np.unique(silo.training.patients)) for name, silo in cohorts.silos.items()}
    large = max(sizes, key=sizes.__getitem__)
    small = min(sizes, key=lambda name: abs(sizes[name] / sum(sizes.values()) - SMALL))
    mistaken = replace(cohorts, silos={**cohorts.silos, small: _swapped(cohorts.silos[small])})
    told = _Told(cohorts)
    own = simulate(study, cohorts, seed=seed, after_round=told.look)
    areas, refused, warned = {AS_IT_IS: _areas(own.exact)}, {}, {AS_IT_IS: told.beside("")}
    for run, factor in ((ENLARGED, -TIMES), (FLIPPED, -1)):
        with _bent(large, factor):
            refused[run], told = _is_refused(study, cohorts, seed), _Told(cohorts)
            with patch.object(VirtualSilo, "check_sum", lambda *_, **__: None):
                outcome = simulate(study, cohorts, seed=seed, after_round=told.look)
        areas[run], warned[run] = _areas(outcome.exact), told.beside(large)
    refused[SWAPPED], told = _is_refused(study, mistaken, seed), _Told(mistaken)
    outcome = simulate(study, mistaken, seed=seed, after_round=told.look)
    areas[SWAPPED], warned[SWAPPED] = _areas(outcome.exact), told.beside(small)
    return PoisoningResult(study, seed, own.exact, own.together, areas, refused, warned)


@contextmanager
def _bent(hostile: str, factor: int) -> Iterator[None]:
    """One hospital multiplies whatever it contributes, but for the counts, which are held against nothing."""
    honest = VirtualSilo.contribution

    def contribution(learner: VirtualSilo, release: Any, place: Any, model: Any, silos: int) -> Any:
        given = honest(learner, release, place, model, silos)
        name = learner._folder.path.name  # noqa: SLF001  # a simulated hospital has no other name
        return given * factor if name == hostile and place.round > 0 else given

    with patch.object(VirtualSilo, "contribution", contribution):
        yield


def _is_refused(study: Study, cohorts: Cohorts, seed: int) -> bool:
    try:
        simulate(study, cohorts, seed=seed)
    except SumError:
        return True
    return False


def _swapped(silo: Silo) -> Silo:
    """The hospital codes its outcome the wrong way round, in all its records."""
    return Silo(*(replace(records, labels=1 - records.labels) for records in (silo.training, silo.held_out)))


class _Told:
    """The hospitals that are warned after any round."""

    def __init__(self, cohorts: Cohorts) -> None:
        self._silos, self._told = cohorts.silos, set[str]()

    def look(self, model: SharedModel) -> None:
        """What each hospital's process beside the agent does after a round."""
        self._told |= {name for name, silo in self._silos.items() if warnings(model, silo.training, silo.held_out)}

    def beside(self, wrong: str) -> tuple[int, int]:
        """How many of the others are warned, and whether (0 or 1) the wrong one itself is."""
        return len(self._told - {wrong}), len(self._told & {wrong})


def _areas(exact: tuple[Exact, ...]) -> Floats:
    return np.array([np.nan if own.auc is None else own.auc for own in exact])


def figures(runs: tuple[PoisoningResult, ...]) -> list[Criterion]:
    """What is wanted: sums too large are refused, nobody is warned without cause, and with cause somebody is."""
    seeds, made = len(runs), []
    level = np.array([[one.areas[AS_IT_IS].mean(), one.areas[AS_IT_IS].min()] for one in runs])
    made.append(Criterion(f"{AS_IT_IS}: mean / worst domain", "", _text(level.mean(axis=0)), met=True))
    for run in (ENLARGED, FLIPPED, SWAPPED):
        both = np.array([[one.areas[run].mean(), one.areas[run].min()] for one in runs])
        unchecked = ", unchecked" if run != SWAPPED else ""
        change = f"{_text(both.mean(axis=0))} ({(both - level)[:, 0].mean():+.3f})"
        made.append(Criterion(f"{run}{unchecked}: mean / worst domain", "", change, met=True))
        refused = sum(one.refused[run] for one in runs)
        wanted = f"{seeds} of {seeds}" if run == ENLARGED else ""
        made.append(
            Criterion(f"{run}: refused", wanted, f"{refused} of {seeds}", met=run != ENLARGED or refused == seeds)
        )
        others, itself = (np.array([one.warned[run][at] for one in runs]) for at in (0, 1))
        seen = int(((others + itself) > 0).sum())
        made.append(
            Criterion(
                f"{run}: seeds on which somebody is warned",
                f"{seeds} of {seeds}" if run != FLIPPED else "",
                f"{seen} of {seeds}; {others.mean():.1f} other hospitals, itself on {itself.sum()}",
                met=run == FLIPPED or seen == seeds,
            )
        )
    without = sum(one.warned[AS_IT_IS][0] for one in runs)
    made.append(Criterion(f"{AS_IT_IS}: hospitals warned", "0", f"{without} of {6 * seeds}", met=without == 0))
    return made


def _text(values: Floats) -> str:
    return " / ".join(f"{value:.3f}" for value in values)


def main() -> int:
    """Run the seeds and judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    study = load_source(STUDY).study
    runs = each_seed(everything, study, Made(), given.seeds, workers=given.workers)
    details = [{run: one.areas[run].tolist() for run in one.areas} for one in runs]
    return judge("poisoning", figures(runs), {"seeds": list(given.seeds), "auc": details})


if __name__ == "__main__":
    sys.exit(main())
