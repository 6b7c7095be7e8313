"""Hessians of the heads in closed form against `torch.func.hessian` of the same loss: how many times faster.

Both sides get the same float64 records, weights and heads, a bias included, and give the same matrix. The closed form
is the family's (`silo_agent.learning.outcomes`): probabilities from the head, then the sum. Each side makes logits in
the way that is faster for it. CPU time of one thread, in turns: one of `torch.func.hessian`, some of the closed form; a
ratio is of the two in one turn. Beside it stands what a silo does for a release, `second_order_sums`, which bounds and
clips every record and makes the gradient as well.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np
import torch
from torch.nn import functional

from bench import threads
from bench.table import Criterion, judge
from silo_agent.learning.heads.sums import second_order_sums
from silo_agent.learning.outcomes.registry import family_of

WANTED = {(1, 16): 40.0, (1, 64): 40.0, (1, 256): 30.0, (9, 16): 40.0, (9, 64): 20.0}
"""By rows of a head and features."""
RECORDS, TURNS, REPEATS = 10_000, 7, 5
AGREEMENT = 1e-10
"""Largest difference of the two matrices, of the largest value."""


@dataclass(frozen=True)
class WayCost:
    """CPU seconds of each way."""

    automatic: float
    closed: float
    release: float


def main() -> int | str:
    """Measure, print, judge."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--turns", type=int, default=TURNS)
    count = arguments.parse_args().turns
    if why := threads.several("hessian"):
        return why
    torch.set_num_threads(1)
    figures: list[Criterion] = []
    details: dict[str, object] = {}
    for (rows, width), wanted in WANTED.items():
        problem = Problem(rows, width, RECORDS)
        difference = problem.difference()
        turns = [problem.turn() for _ in range(count)]
        details[f"{rows}, {width}"] = {"difference": difference, "turns": [asdict(turn) for turn in turns]}
        figures += figures_of(f"C = {rows}, k = {width}", wanted, difference, turns)
    return judge("hessian", figures, details)


class Problem:
    """Records and heads drawn from a fixed seed, one label's family: `rows` logits, `width` features."""

    def __init__(self, rows: int, width: int, records: int) -> None:
        generator = torch.Generator().manual_seed(1)
        self.family = family_of(2 if rows == 1 else rows)
        phi = torch.randn(records, width, dtype=torch.float64, generator=generator)
        self.features = phi / phi.norm(dim=1, keepdim=True)
        self.z = torch.cat([self.features, torch.ones(records, 1, dtype=torch.float64)], dim=1)
        self.labels = torch.randint(0, max(rows, 2), (records,), generator=generator)
        self.weight = torch.ones(records, dtype=torch.float64)
        self.head = torch.randn(rows, width + 1, dtype=torch.float64, generator=generator)

    def automatic(self) -> torch.Tensor:
        """By forward over reverse differentiation, (W, W)."""

        def loss(head: torch.Tensor) -> torch.Tensor:
            return self.family.losses(self.z @ head.T, self.labels).sum()

        size = self.head.numel()
        hessian: torch.Tensor = torch.func.hessian(loss)(self.head)
        return hessian.reshape(size, size)

    def closed(self) -> torch.Tensor:
        """By the family's formula, (W, W)."""
        expected = self.family.expected(functional.linear(self.z, self.head))
        return self.family.curvature_sum(expected, self.z, self.weight)

    def release(self) -> torch.Tensor:
        """As a silo makes it for a release, with the gradient; the clip of 1 shortens no record."""
        labels, domains = self.labels.numpy(), np.zeros(len(self.labels), np.int64)
        heads, weights = self.head.numpy().reshape(1, -1), self.weight.numpy()
        sums = second_order_sums(self.features, labels, domains, weights, heads, family=self.family, pooled=True)
        return torch.from_numpy(sums[0][0])

    def difference(self) -> float:
        """Largest difference of the closed forms to the automatic one, over its largest value."""
        expected = self.automatic()
        largest = max(float((own - expected).abs().max()) for own in (self.closed(), self.release()))
        return largest / float(expected.abs().max())

    def turn(self) -> WayCost:
        """Each way in turn, the closed forms several times, of which the median counts."""
        return WayCost(
            seconds(self.automatic),
            statistics.median(seconds(self.closed) for _ in range(REPEATS)),
            statistics.median(seconds(self.release) for _ in range(REPEATS)),
        )


def seconds(work: Callable[[], object]) -> float:
    """CPU seconds of this process."""
    began = time.process_time()
    work()
    return time.process_time() - began


def figures_of(name: str, wanted: float, difference: float, turns: list[WayCost]) -> list[Criterion]:
    """The ratio that is judged, that of a whole release, and whether the matrices are equal."""
    automatic, closed = (statistics.median(getattr(turn, way) for turn in turns) for way in ("automatic", "closed"))
    ratio = statistics.median(turn.automatic / turn.closed for turn in turns)
    release = statistics.median(turn.automatic / turn.release for turn in turns)
    least, most = (pick(turn.automatic / turn.closed for turn in turns) for pick in (min, max))
    times = f"{1e3 * automatic:.1f} / {1e3 * closed:.2f} ms"
    return [
        Criterion(
            f"{name}: torch.func.hessian / closed form",
            f">= {wanted:g}",
            f"{ratio:.1f} ({times}; turns {least:.0f} to {most:.0f})",
            ratio >= wanted,
        ),
        Criterion(f"{name}: torch.func.hessian / all sums of a release", "shown", f"{release:.1f}", met=True),
        Criterion(f"{name}: largest difference", f"<= {AGREEMENT:g}", f"{difference:.1e}", difference <= AGREEMENT),
    ]


if __name__ == "__main__":
    sys.exit(main())
