"""`fedward simulate` side by side: twenty seeds of the demo's study, one of a thousand silos, and the same bits.

Wall time of the whole command, loading of libraries in each worker included. The records are made up.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from bench.accuracy.exam import STUDY
from bench.table import Criterion, judge
from deploy.demo.sources import load_source
from deploy.local.simulate.variants import renamed
from policies.documents.study import Study

PATIENTS: Final = 20_000
"""Of each of the six silos, so that a seed takes some seconds."""
GAIN: Final = 1.8
MANY, FEW, EACH = 1000, 250, 100
"""Silos of the large study, of a smaller one to compare with, and patients of each."""
GROWTH: Final = 1.15
ONE, TWO, CLUSTER = "one process", "two processes", "three Dask workers"
ENGINES: Final = {ONE: (), TWO: ("--workers", "2"), CLUSTER: ("--engine", "dask", "--workers", "3")}


class Measured(NamedTuple):
    """Wall seconds of a command, and every figure of every seed, with the models' digests."""

    seconds: float
    runs: list[Any]


def measured(study: Path, patients: int, seeds: int, engine: Sequence[str] = ()) -> Measured:
    """Run the command."""
    with tempfile.TemporaryDirectory(prefix="fedward-bench-") as folder:
        found = Path(folder) / "found.json"
        options = ("--patients", str(patients), "--seeds", str(seeds), "--figures", str(found), *engine)
        began = time.monotonic()
        subprocess.run(
            [sys.executable, "-m", "deploy.local", "simulate", str(study), *options],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        return Measured(time.monotonic() - began, json.loads(found.read_bytes())["runs"]["study"])


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    given = parser.parse_args()
    seeds, silos, raw = dict[str, Measured](), dict[str, Measured](), dict[str, float]()
    with tempfile.TemporaryDirectory(prefix="fedward-bench-") as folder:
        demo = load_source(STUDY).study
        names = [f"silo-{number:04}" for number in range(MANY)]
        own, many, few = (_file(Path(folder), renamed(demo, each)) for each in (demo.silos, names, names[:FEW]))
        for name, engine in ENGINES.items():
            seeds[name] = measured(own, PATIENTS, given.seeds, engine)
            silos[name] = measured(many, EACH, 1, engine)
            raw |= {f"{name}, seeds": seeds[name].seconds, f"{name}, silos": silos[name].seconds}
            print(f"{name}: seeds {seeds[name].seconds:.1f} s, silos {silos[name].seconds:.1f} s", flush=True)
        raw[f"{ONE}, {FEW} silos"] = measured(few, EACH, 1).seconds
    return judge("simulate", [*_of_seeds(seeds), *_of_silos(silos, raw[f"{ONE}, {FEW} silos"])], raw)


def _file(folder: Path, study: Study) -> Path:
    file = folder / f"{len(study.silos)}.yaml"
    file.write_text(yaml.safe_dump(study.model_dump(mode="json")), encoding="utf-8")
    return file


def _of_seeds(found: dict[str, Measured]) -> Iterator[Criterion]:
    gain, count = found[ONE].seconds / found[TWO].seconds, len(found[ONE].runs)
    yield Criterion(f"{count} seeds, two processes: one's time / theirs", f">= {GAIN}", f"{gain:.2f}", gain >= GAIN)
    yield from _same_bits(f"{count} seeds", found)


def _of_silos(found: dict[str, Measured], fewer: float) -> Iterator[Criterion]:
    what, seconds = f"{MANY:,} silos of {EACH} patients", found[ONE].seconds
    growth = math.log(seconds / fewer) / math.log(MANY / FEW)
    yield Criterion(f"time from {FEW} to {what}, silos^", f"<= {GROWTH}", f"{growth:.2f}", growth <= GROWTH)
    yield from _same_bits(what, found)


def _same_bits(what: str, found: dict[str, Measured]) -> Iterator[Criterion]:
    count = len(found[ONE].runs)
    for name in (TWO, CLUSTER):
        same = sum(one == other for one, other in zip(found[ONE].runs, found[name].runs, strict=True))
        yield Criterion(f"{what}, {name}: seeds with the bits of one process", f"{count}", f"{same}", same == count)


if __name__ == "__main__":
    sys.exit(main())
