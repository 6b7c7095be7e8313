"""Heads' sums of a large hospital beside numpy: a million records, 64 features, 5 domains; time, and memory.

Both sides get the same float32 features, labels, domains and heads, and give the same curvature and gradient of each
domain in float64. Numpy makes the bare products, of a domain's records at once. A silo also bounds and clips every
record's term, a chunk at a time (`sum_records`). CPU time of one thread; each way has a process of its own for each
turn, so its peak of memory is its own.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from bench.memory import begin_peak, resident
from bench.table import Criterion, judge
from silo_agent.learning.each_record import MOST_ROWS, Rows, sum_records
from silo_agent.learning.heads.sums import pack, packed_size, second_order_sums, unpack
from silo_agent.learning.outcomes.registry import family_of

RECORDS: Final = 1_000_000
WIDTH, DOMAINS, TURNS = 64, 5, 3
TWICE: Final = 2.0
ABOVE: Final = 100.0
"""MB above the data."""
AGREEMENT: Final = 1e-9
"""Largest difference of the two, of the largest value."""
FAMILY: Final = family_of(2)
Sums = tuple[NDArray[np.float64], NDArray[np.float64]]


@dataclass(frozen=True)
class SumsCost:
    """What one way took."""

    seconds: float
    above: float
    """MB."""
    values: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class LargeCohort:
    """Records drawn from a fixed seed. Their norm is below 1, so that the bound of a silo leaves them as they are."""

    features: NDArray[np.float32]
    labels: NDArray[np.int64]
    domains: NDArray[np.int64]
    heads: NDArray[np.float64]

    @classmethod
    def drawn(cls, records: int) -> LargeCohort:
        """Draw it."""
        rng = np.random.default_rng(1)
        features = rng.standard_normal((records, WIDTH), np.float32)
        features *= np.float32(0.99) / np.linalg.norm(features, axis=1, keepdims=True)
        heads = rng.standard_normal((DOMAINS, WIDTH + 1))
        return cls(features, rng.integers(0, 2, records), rng.integers(0, DOMAINS, records), heads)


def by_numpy(cohort: LargeCohort) -> Sums:
    """The bare products: H = Z' diag(p (1 - p)) Z and g = Z' (p - y) of each domain."""
    hessian, gradient = np.zeros((DOMAINS, WIDTH + 1, WIDTH + 1)), np.zeros((DOMAINS, WIDTH + 1))
    for m in range(DOMAINS):
        mine = cohort.domains == m
        z = np.hstack([cohort.features[mine].astype(np.float64), np.ones((int(mine.sum()), 1))])
        p = 1.0 / (1.0 + np.exp(-(z @ cohort.heads[m])))
        hessian[m] = (z * (p * (1.0 - p))[:, None]).T @ z
        gradient[m] = z.T @ (p - cohort.labels[mine])
    return hessian, gradient


def by_silo(cohort: LargeCohort) -> Sums:
    """As a silo makes them for a release. A clip that no term reaches leaves them as they are."""
    size = packed_size(DOMAINS, WIDTH + 1)

    def term(rows: Rows) -> NDArray[np.float64]:
        features = torch.from_numpy(cohort.features[rows])
        sums = second_order_sums(
            features,
            cohort.labels[rows],
            cohort.domains[rows],
            np.ones(len(rows)),
            cohort.heads,
            family=FAMILY,
            pooled=False,
            clip=1.0,
            norm_bound=1.0,
        )
        return pack(*sums, FAMILY)

    total = sum_records(len(cohort.labels), size, term, rows=MOST_ROWS, strict=True)
    return unpack(total, DOMAINS, WIDTH + 1, FAMILY)


WAYS: Final[dict[str, Any]] = {"numpy": by_numpy, "silo": by_silo}


def turn(way: str, records: int) -> SumsCost:
    """Make the data, then measure one way."""
    torch.set_num_threads(1)
    cohort = LargeCohort.drawn(records)
    WAYS[way](LargeCohort.drawn(1000))  # libraries are loaded
    begin_peak()
    before, began = resident("VmRSS"), time.process_time()
    hessian, gradient = WAYS[way](cohort)
    seconds, above = time.process_time() - began, resident("VmHWM") - before
    return SumsCost(seconds, above, np.concatenate([hessian.ravel(), gradient.ravel()]))


def main() -> int:
    """Measure, print, judge."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--records", type=int, default=RECORDS)
    arguments.add_argument("--turns", type=int, default=TURNS)
    asked = arguments.parse_args()
    turns: dict[str, list[SumsCost]] = {way: [] for way in WAYS}
    for _ in range(asked.turns):
        for way, taken in turns.items():
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
                taken.append(pool.submit(turn, way, asked.records).result())
    seconds = {way: statistics.median(one.seconds for one in taken) for way, taken in turns.items()}
    above = {way: max(one.above for one in taken) for way, taken in turns.items()}
    ratio = statistics.median(
        own.seconds / plain.seconds for own, plain in zip(turns["silo"], turns["numpy"], strict=True)
    )
    bare, own = turns["numpy"][0].values, turns["silo"][0].values
    apart = float(np.abs(own - bare).max() / np.abs(bare).max())
    size = f"{asked.records:,} x {WIDTH} x {DOMAINS}"
    times = f"{ratio:.2f} ({seconds['silo']:.2f} / {seconds['numpy']:.2f} s)"
    most = f"{above['silo']:.0f} MB (numpy {above['numpy']:.0f})"
    figures = [
        Criterion(f"{size}: time, silo / numpy", f"<= {TWICE:g}", times, ratio <= TWICE),
        Criterion(f"{size}: memory above the data", f"<= {ABOVE:g} MB", most, above["silo"] <= ABOVE),
        Criterion(f"{size}: largest difference", f"<= {AGREEMENT:g}", f"{apart:.1e}", apart <= AGREEMENT),
    ]
    details = {way: [{**asdict(one), "values": None} for one in taken] for way, taken in turns.items()}
    return judge("sums", figures, details)


if __name__ == "__main__":
    sys.exit(main())
