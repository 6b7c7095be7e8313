"""Private studies of three public data sets beside the other ways to use their records, at epsilon 1, 2, 4 and 8.

Diabetes-130: readmission within 30 days, by race; a patient is the unit. Adult: income, by race and sex. Heart disease:
four hospitals, by sex and age. All methods see the same patients: ten splits with two draws of noise on each (heart
disease: six), of Adult its own split and 20 draws. Delta is 1e-5, and 1e-4 for the 900 patients of heart disease. The
worst domain is judged among those with at least 60 test records of the rarer class; of heart disease, which has few,
among all. It is the domain whose AUC is the least in the mean over the runs. Of heart disease the accuracy at each
hospital is shown as well, beside FLamby's recipe (`by_hospital`). Of both that have hospitals each trains a model of
its own, mixes it with the shared one and chooses, at epsilon 8 (`bench.accuracy.choice`).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from bench.accuracy import choice
from bench.accuracy.real import by_hospital, data_sets
from bench.accuracy.real.data_sets import SPLITS, Official, RealDataSet
from bench.accuracy.real.judging import Judged, Runs
from bench.accuracy.real.methods import (
    ALONE,
    CENTRAL,
    FEDAVG,
    HIERARCHICAL,
    OPEN,
    POOLED,
    PRIVATE,
    Everything,
    Key,
    MethodResults,
)
from bench.accuracy.real.processes import through_processes
from bench.intervals import Gain
from bench.places import DATA, OUT
from bench.processes import or_failure
from bench.table import Criterion, judge
from deploy.local.simulate.many import each_seed
from silo_agent.data.errors import DataError

EPSILONS: Final = (1.0, 2.0, 4.0, 8.0)
NAMES: Final = ("diabetes", "adult", "heart")
SEEDS: Final = {"diabetes": 20, "adult": 20, "heart": 60}
"""Runs of each data set, in turns over its splits. Heart disease has few patients, so its noise needs more draws."""
BELOW: Final = 0.002
RATIOS: Final = (0.9, 1.1)
LEVELS: Final = {
    ("adult", 1.0): (0.900, 0.870),
    ("diabetes", 1.0): (0.645, None),
    ("diabetes", 4.0): (0.655, None),
}
"""Wanted mean and worst domain AUC."""
WITHIN: Final = {("diabetes", 8.0): (0.012, None), ("heart", 4.0): (0.02, 0.02), ("heart", 8.0): (0.01, 0.01)}
"""How far below the central regression mean and worst domain may be."""
ABOVE_ALONE: Final = (("diabetes", 4.0), ("heart", 4.0))


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=DATA, help="folder with adult, diabetes130 and heart_disease")
    parser.add_argument("--only", nargs="+", choices=NAMES, default=NAMES)
    parser.add_argument("--epsilons", type=float, nargs="+", default=EPSILONS)
    parser.add_argument("--seeds", type=int, help="fewer runs of each data set")
    parser.add_argument("--first", type=int, default=0, help="first seed; from 1000 on the splits that tuning uses")
    parser.add_argument("--draws", type=int, default=by_hospital.DRAWS, help="for the hospitals of heart disease")
    parser.add_argument("--choices", type=int, default=choice.SPLITS, help="splits on which hospitals choose; 0: none")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--processes", action="store_true", help="run a seed of each through processes, too")
    given = parser.parse_args()
    if given.draws < 2 or given.choices == 1:
        parser.error("an interval needs two draws and two splits at least")
    figures: list[Criterion] = []
    details: dict[str, object] = {}
    for name in given.only:
        began = time.monotonic()
        try:
            data = data_sets.load(name, given.data, OUT / "real")
        except (OSError, DataError) as error:
            print(f"{error}; give the folder of the published files with --data FOLDER")
            return 1
        everything = Everything(name, tuple(given.epsilons), given.first + _splits(data))
        seeds = range(given.first, given.first + (given.seeds or SEEDS[name]))
        measured = each_seed(everything, data.study, data.source, seeds, workers=given.workers)
        runs = collected(data, measured)
        figures += judged(name, runs, given.epsilons)
        details[name] = {f"{method} {epsilon}": _detail(own) for (method, epsilon), own in runs.items()}
        if given.processes:
            folder = OUT / "real" / f"{name}-federation"
            figures += or_failure(name, partial(through_processes, name, data, runs, folder))
        if name in choice.PERSONAL and given.choices:
            gains = choice.on_splits(name, data, range(choice.FRESH, choice.FRESH + given.choices))
            figures += choice.judged(name, gains, data.holdout)
            details[f"{name}, choice"] = [asdict(one) for one in gains]
        if name == "heart":
            more = by_hospital.accuracies(data.files, given.draws, workers=given.workers, processes=given.processes)
            print("", *more.table, sep="\n")
            figures += more.figures
            details["accuracy by hospital"] = more.details
        print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    return judge("real", figures, details)


def collected(data: RealDataSet, measured: Sequence[MethodResults]) -> dict[Key, Runs]:
    """Runs by method. What has no noise was measured once for a split, and stands for all draws on it."""
    splits = _splits(data)
    seeds = [one.seed for one in measured]
    own = {one.seed % splits: one for one in measured if (HIERARCHICAL, None) in one.by}
    groups = np.array(seeds if splits == 1 else [seed % splits for seed in seeds])
    counted = np.mean([next(iter(one.by.values())).least for one in measured], axis=0) >= data.least

    def runs(key: Key) -> Runs:
        chosen: list[Judged] = [one.by[key] if key in one.by else own[one.seed % splits].by[key] for one in measured]
        areas = np.array([judged.areas for judged in chosen])
        return Runs(areas, groups, counted, np.array([judged.ratio for judged in chosen]))

    return {key: runs(key) for key in next(iter(own.values())).by}


def judged(name: str, runs: Mapping[Key, Runs], epsilons: Sequence[float]) -> list[Criterion]:
    """All figures of one data set."""
    figures = []
    for method in (*OPEN, *PRIVATE):
        of = f"{name}, {method}, no noise" if method in PRIVATE else f"{name}, {method}"
        figures.append(Criterion(of, "shown", _level(runs[method, None]), met=True))
    for epsilon in epsilons:
        figures += _at(name, runs, epsilon)
    return figures


def _at(name: str, runs: Mapping[Key, Runs], epsilon: float) -> list[Criterion]:
    own, start = runs[HIERARCHICAL, epsilon], f"{name}, epsilon {epsilon:g}"
    wanted = LEVELS.get((name, epsilon), (None, None))
    figures = [
        Criterion(
            f"{start}, mean / worst domain",
            " / ".join("shown" if one is None else f">= {one:.3f}" for one in wanted),
            _level(own),
            all(one is None or bool(value >= one) for one, value in zip(wanted, own.level, strict=True)),
        )
    ]
    within = WITHIN.get((name, epsilon), (None, None))
    change, _ = own.less(runs[CENTRAL, None])
    figures.append(
        Criterion(
            f"{start}, less {CENTRAL}",
            " / ".join("shown" if one is None else f">= -{one:.3f}" for one in within),
            _change(own, runs[CENTRAL, None]),
            all(one is None or bool(value >= -one) for one, value in zip(within, change, strict=True)),
        )
    )
    for method in PRIVATE[1:]:
        other = runs[method, epsilon]
        change, error = own.less(other)
        wanted_text, met = "shown", True
        if method == POOLED:
            wanted_text, met = f">= -({BELOW} + 2 SE)", bool((change >= -(BELOW + 2 * error)).all())
        elif method == FEDAVG:
            wanted_text, met = "> 0 in the mean", bool(change[0] > 0)
        figures.append(Criterion(f"{start}, less {method}", wanted_text, _change(own, other), met))
    change, error = own.less(runs[ALONE, None])
    judged_here = (name, epsilon) in ABOVE_ALONE
    figures.append(
        Criterion(
            f"{start}, less {ALONE}",
            "> 2 SE in the mean" if judged_here else "shown",
            _change(own, runs[ALONE, None]),
            not judged_here or bool(change[0] > 2 * error[0]),
        )
    )
    low, high = RATIOS
    figures.append(
        Criterion(
            f"{start}, mean prediction / observed rate",
            f"{low} to {high}",
            f"{own.ratio:.3f} ({CENTRAL} {runs[CENTRAL, None].ratio:.3f})",
            low <= own.ratio <= high,
        )
    )
    return figures


def _level(runs: Runs) -> str:
    return "{:.4f} / {:.4f}".format(*runs.level)


def _change(own: Runs, other: Runs) -> str:
    return f"{Gain(*own.less(other))} (from {other.level[0]:.4f} / {other.level[1]:.4f})"


def _detail(runs: Runs) -> dict[str, object]:
    return {"auc": runs.areas.tolist(), "ratios": runs.ratios.tolist(), "counted": runs.counted.tolist()}


def _splits(data: RealDataSet) -> int:
    return 1 if isinstance(data.source, Official) else SPLITS


if __name__ == "__main__":
    sys.exit(main())
