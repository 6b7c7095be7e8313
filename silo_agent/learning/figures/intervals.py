"""95 % intervals from noised counts of patients: for a share, a mean of shares, and a number.

They cover the noise, whose size is public. The intervals of shares also cover the sampling of patients. All are closed
formulas of elementary operations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Interval = tuple[float, float, float]
"""(estimate, low, high)."""
_Z = 1.959963984540054
"""97.5 % of the standard normal distribution lie below."""


def least_patients(noise_sd: float, cells: int) -> float:
    """The fewest patients that a noised sum of `cells` cells must hold, so that a share of them means anything."""
    return max(1.0, 2.0 * noise_sd * math.sqrt(cells))


def share(cells: NDArray[np.float64], right: NDArray[np.float64], noise_sd: float) -> Interval | None:
    """The share of patients in cells where `right` is 1, not clipped. None if the cells hold too few patients.

    The interval holds the shares a with (R - a n)^2 <= z^2 Var(R - a n) under a. Without noise this is Wilson's
    interval, with noise alone it is Fieller's (Wilson 1927, Fieller 1954).
    """
    n, hits, count = float(cells.sum()), float((right * cells).sum()), len(cells)
    if n < least_patients(noise_sd, count):
        return None
    noise, squared, chosen = noise_sd**2, _Z**2, float(right.sum())
    a = n**2 + squared * (n - noise * count)
    b = hits * n + squared * (n / 2.0 - noise * chosen)
    c = hits**2 - squared * noise * chosen
    root = math.sqrt(max(b**2 - a * c, 0.0))
    estimate = hits / n
    return estimate, min((b - root) / a, estimate), max((b + root) / a, estimate)


def quotient(
    above: NDArray[np.float64], below: NDArray[np.float64], cells: NDArray[np.float64], noise_sd: float
) -> Interval | None:
    """The sum of `above` times the cells over that of `below` times the cells, by Fieller (1954); patients as Poisson.

    None if the sum below could be 0.
    """
    held, noise, squared = np.maximum(cells, 0.0), noise_sd**2, _Z**2
    top, bottom = float(above @ cells), float(below @ cells)
    a = bottom**2 - squared * float(below**2 @ (held + noise))
    b = top * bottom - squared * float((above * below) @ (held + noise))
    c = top**2 - squared * float(above**2 @ (held + noise))
    if a <= 0.0 or bottom <= 0.0:
        return None
    root, estimate = math.sqrt(max(b**2 - a * c, 0.0)), top / bottom
    return estimate, min((b - root) / a, estimate), max((b + root) / a, estimate)


def mean(shares: Sequence[Interval | None]) -> Interval | None:
    """The mean of independent shares, or None if one is missing. Limits by MOVER (Donner and Zou 2012)."""
    known = [share for share in shares if share is not None]
    if len(known) < len(shares):
        return None
    estimates, lows, highs = (np.array(column) for column in zip(*known, strict=True))
    estimate = float(estimates.mean())
    below = math.sqrt(float(((estimates - lows) ** 2).sum())) / len(known)
    above = math.sqrt(float(((highs - estimates) ** 2).sum())) / len(known)
    return estimate, estimate - below, estimate + above


def complement(interval: Interval | None) -> Interval | None:
    """The share of all others, or None if this one is missing."""
    return None if interval is None else (1.0 - interval[0], 1.0 - interval[2], 1.0 - interval[1])


def difference(one: Interval, other: Interval) -> Interval:
    """One figure less another that is independent of it. Limits by MOVER (Donner and Zou 2012)."""
    value = one[0] - other[0]
    below = math.hypot(one[0] - one[1], other[2] - other[0])
    above = math.hypot(one[2] - one[0], other[0] - other[1])
    return value, value - below, value + above


def number(cells: NDArray[np.float64], noise_sd: float) -> Interval:
    """How many patients the cells hold. The interval covers only the noise, because these patients were counted."""
    n, half = float(cells.sum()), _Z * noise_sd * math.sqrt(len(cells))
    return max(n, 0.0), max(n - half, 0.0), max(n + half, 0.0)


def clipped(interval: Interval) -> Interval:
    """The interval of a share, clipped to [0, 1]."""
    estimate, low, high = (min(max(value, 0.0), 1.0) for value in interval)
    return estimate, low, high
