"""Twenty seeds of the demo's study: one process, two side by side, and three workers of Dask's; and the same bits.

Wall time of the whole call, loading of libraries in each worker included. The records are made up, as
`fedward simulate` makes them. What every engine gives is compared bit by bit. A thousand silos are not simulated: a
study names 256 at most, as the protocol does.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from typing import Final

from bench.accuracy.exam import STUDY
from bench.table import Criterion, judge
from deploy.demo.sources import load_source
from deploy.local.simulate.engine import simulate
from deploy.local.simulate.engines.cluster import DaskCluster
from deploy.local.simulate.engines.processes import Processes
from deploy.local.simulate.engines.task import Here, SeedEngine
from deploy.local.simulate.made_up_records import MadeUp
from deploy.local.simulate.many import each_seed
from deploy.local.simulate.outcome import Outcome

PATIENTS: Final = 1000
GAIN: Final = 1.8
ONE, TWO, CLUSTER = "one process", "two processes", "three Dask workers"


def measured(engine: SeedEngine, seeds: range) -> tuple[float, tuple[Outcome, ...]]:
    """Wall seconds of all seeds, and what they gave."""
    study, began = load_source(STUDY).study, time.monotonic()
    found = each_seed(simulate, study, MadeUp(PATIENTS), seeds, engine=engine)
    return time.monotonic() - began, found


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    given = parser.parse_args()
    seeds = range(1, given.seeds + 1)
    engines: dict[str, SeedEngine] = {ONE: Here(), TWO: Processes(2), CLUSTER: DaskCluster(3)}
    seconds, results = dict[str, float](), dict[str, tuple[Outcome, ...]]()
    for name, engine in engines.items():
        seconds[name], results[name] = measured(engine, seeds)
        print(f"{name}: {seconds[name]:.1f} s", flush=True)
    return judge("simulate", list(_figures(seconds, results)), seconds)


def _figures(seconds: dict[str, float], results: dict[str, tuple[Outcome, ...]]) -> Iterator[Criterion]:
    gain = seconds[ONE] / seconds[TWO]
    count = len(results[ONE])
    yield Criterion(f"{count} seeds, two processes: one's time / theirs", f">= {GAIN}", f"{gain:.2f}", gain >= GAIN)
    for name in (TWO, CLUSTER):
        pairs = zip(results[ONE], results[name], strict=True)
        same = sum(one.model.digest == other.model.digest and one.exact == other.exact for one, other in pairs)
        yield Criterion(f"{name}: seeds with the bits of one process", f"{count}", f"{same}", same == count)


if __name__ == "__main__":
    sys.exit(main())
