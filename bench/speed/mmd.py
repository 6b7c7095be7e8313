"""One MK-MMD step with 19 kernels: all from one matrix of distances, beside a whole computation for every kernel.

A step is what training the personal model does with a batch: statistics of both features, the kernels' weights
of greatest power, the weighted distance and its gradient by the model's own features. Both sides get the same features
and give the same weights and gradient. CPU time of one thread, in turns; a ratio is of the two in one turn. The
coefficients are timed alone, from mean and covariance.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial

import torch
from torch.nn import functional

from bench import threads
from bench.table import Criterion, judge
from silo_agent.learning.terms.losses.mk_mmd import GAMMAS, coefficients, compare, kernel_weights, power_problem

WANTED = {(64, 64): 3.0, (512, 64): 3.0, (64, 512): 8.0, (512, 512): 8.0}
"""Times as fast, by records of a batch and width."""
MILLISECONDS = 1.0
AGREEMENT = 1e-4
"""Largest difference of the two gradients, of the largest value: float32."""
TURNS = 7
_MANY = 512


def by_kernel(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The gradient, with lengths, distances and exponentials made anew for every kernel: the baseline."""
    x = x.detach().requires_grad_()

    def kernel(a: torch.Tensor, b: torch.Tensor, gamma: float) -> torch.Tensor:
        a, b = functional.normalize(a, dim=1), functional.normalize(b, dim=1)
        squares = (a**2).sum(dim=1)[:, None] + (b**2).sum(dim=1)[None, :] - 2.0 * a @ b.T
        return torch.exp(-squares.clamp(min=0.0) / gamma)

    def statistic(gamma: float) -> torch.Tensor:
        cross = kernel(x, y, gamma), kernel(y, x, gamma)
        return kernel(x, x, gamma) + kernel(y, y, gamma) - cross[0] - cross[1]

    statistics = torch.stack([statistic(gamma) for gamma in GAMMAS])
    weights = torch.tensor(kernel_weights(statistics), dtype=x.dtype)
    (gradient,) = torch.autograd.grad(weights @ statistics.mean(dim=(1, 2)), x)
    return gradient


def at_once(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The gradient as FedWard makes it."""
    x = x.detach().requires_grad_()
    compared = compare(x, y)
    (gradient,) = torch.autograd.grad(compared.mmd(kernel_weights(compared.statistics())), x)
    return gradient


def seconds(run: Callable[[], object], repeats: int) -> float:
    """CPU seconds of one run."""
    began = time.process_time()
    for _ in range(repeats):
        run()
    return (time.process_time() - began) / repeats


@dataclass(frozen=True)
class MmdCost:
    """Of one size: CPU seconds of both sides by turn, of the coefficients, and how far the gradients differ."""

    turns: list[tuple[float, float]]
    coefficients: float
    difference: float


def measure(batch: int, width: int, count: int) -> MmdCost:
    """The same features at both sides, in turns."""
    generator = torch.Generator().manual_seed(batch + width)
    x = torch.randn(batch, width, generator=generator)
    y = x + 0.3 * torch.randn(batch, width, generator=generator) + 0.05
    slow, fast = by_kernel(x, y), at_once(x, y)
    repeats = 20 if batch < _MANY else 2
    sides = partial(by_kernel, x, y), partial(at_once, x, y)
    turns = [(seconds(sides[0], repeats), seconds(sides[1], repeats)) for _ in range(count)]
    alone = partial(coefficients, *power_problem(compare(x, y).statistics()))
    return MmdCost(
        turns,
        statistics.median(seconds(alone, 20) for _ in range(count)),
        float((slow - fast).abs().max() / slow.abs().max()),
    )


def figures_of(name: str, wanted: float, measured: MmdCost) -> list[Criterion]:
    """How many times as fast, and whether both sides agree."""
    ratio = statistics.median(slow / fast for slow, fast in measured.turns)
    slow, fast = (1e3 * statistics.median(turn[side] for turn in measured.turns) for side in (0, 1))
    return [
        Criterion(
            f"{name}: times as fast", f">= {wanted:g}", f"{ratio:.1f} ({fast:.1f} of {slow:.1f} ms)", ratio >= wanted
        ),
        Criterion(
            f"{name}: gradients differ by",
            f"<= {AGREEMENT:g}",
            f"{measured.difference:.1e}",
            measured.difference <= AGREEMENT,
        ),
    ]


def main() -> int | str:
    """Measure, print, judge."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--turns", type=int, default=TURNS)
    count = arguments.parse_args().turns
    if why := threads.several("mmd"):
        return why
    torch.set_num_threads(1)
    measured = {size: measure(*size, count) for size in WANTED}
    figures = [
        figure
        for (batch, width), wanted in WANTED.items()
        for figure in figures_of(f"batch {batch}, width {width}", wanted, measured[batch, width])
    ]
    slowest = 1e3 * max(one.coefficients for one in measured.values())
    figures.append(Criterion("coefficients", f"<= {MILLISECONDS:g} ms", f"{slowest:.2f} ms", slowest <= MILLISECONDS))
    return judge("mmd", figures, {str(size): asdict(one) for size, one in measured.items()})


if __name__ == "__main__":
    sys.exit(main())
