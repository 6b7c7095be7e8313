"""What a statistic answers, and the tests that its answers rest on.

`FIVE_SIGMA` and `RARE` are the chances that a single comparison condemns right code. The seeds in this folder are
fixed, so right code passes always or never. The rates say how likely a change of the seeds, or of the order of draws,
is to raise a false alarm.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from scipy.stats import binomtest, chisquare, norm

SIGMAS = 5.0
FIVE_SIGMA = 5.7e-7
RARE = 1e-6
_LEAST_EXPECTED = 8.0


@dataclass(frozen=True)
class Verdict:
    """Whether the code looks as it should, and what was seen."""

    holds: bool
    seen: str


def all_of(verdicts: Iterable[Verdict]) -> Verdict:
    """A verdict that holds if all of these hold."""
    parts = list(verdicts)
    return Verdict(all(part.holds for part in parts), "; ".join(part.seen for part in parts))


def near(name: str, value: float, expected: float, sd: float) -> Verdict:
    """`value` lies within five standard deviations of the expected one, two-sided. Rate: `FIVE_SIGMA`."""
    away = abs(value - expected) / sd
    return Verdict(bool(away < SIGMAS), f"{name} {value:.5g} for {expected:.5g}, {away:.1f} sigma away")


def noise_like(name: str, values: np.ndarray, sd: float) -> Verdict:
    """Mean 0, deviation `sd`, two-sided. Rate: 2 x `FIVE_SIGMA`. At 1e5 values a deviation 1.1 % off is found."""
    n = values.size
    return all_of(
        (
            near(f"deviation of {name}", float(np.sqrt(np.mean(values**2))) / sd, 1.0, 1.0 / np.sqrt(2.0 * n)),
            near(f"mean of {name}", float(values.mean()) / sd, 0.0, 1.0 / np.sqrt(n)),
        )
    )


def tailed(name: str, values: np.ndarray, sd: float, sigmas: float = 4.0) -> Verdict:
    """As many values lie beyond as a Gaussian of this deviation has there, two-sided, exactly counted. Rate: `RARE`.

    At four sigma 4e5 values have 25 there; that none is has a chance of 1e-11.
    """
    beyond = int((np.abs(values) > sigmas * sd).sum())
    p = binomtest(beyond, values.size, 2.0 * norm.sf(sigmas)).pvalue
    return Verdict(p > RARE, f"{beyond} of {values.size} {name} beyond {sigmas:g} sigma: p = {p:.2g}")


def distributed_as(name: str, values: np.ndarray, law) -> Verdict:
    """Chi-square of integers against a frozen scipy law; its tails are joined to 8 expected in a cell. Rate: `RARE`."""
    n = len(values)
    low, high = int(law.ppf(_LEAST_EXPECTED / n)), int(law.isf(_LEAST_EXPECTED / n))
    inner = np.arange(low, high)
    expected = n * np.concatenate([[law.cdf(low - 1)], law.pmf(inner), [law.sf(high - 1)]])
    cells = np.clip(values, low - 1, high) - (low - 1)
    keep = np.cumsum(expected) > 0
    found = np.bincount(cells.astype(np.int64), minlength=len(expected))
    p = float(chisquare(found[keep], expected[keep]).pvalue)
    return Verdict(p > RARE, f"{name}: mean {values.mean():.3f}, variance {values.var():.3f}, p = {p:.2g}")


def uniform(name: str, cells: np.ndarray, count: int) -> Verdict:
    """Chi-square of cells 0 .. count - 1 against equal chances. Rate: `RARE`."""
    p = float(chisquare(np.bincount(cells, minlength=count)).pvalue)
    return Verdict(p > RARE, f"{name}: p = {p:.2g}")
