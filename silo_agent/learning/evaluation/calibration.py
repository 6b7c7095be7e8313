"""Expected calibration error of one domain from its opened, noised cells, with a 95 % interval.

What is estimated: sum over score bins of |right - claimed| / n, where of two classes `right` is the share of positives
and `claimed` the mean probability of the positive label, and of more classes the share of right predictions and the
mean confidence. The cells hold no means, so they are read off the counts around (`_claimed_binary`, `_claimed_top`).
With ten bins that was measured to be wrong by .003 at most, and by .01 where scores spread over two bins only.

Noise alone makes a sum of absolute values large, whatever the truth. So neither the sum itself nor its percentiles are
given, but the errors under which the observed sum would be the median, or in a tail of 2.5 % (test inversion).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from policies.documents.study import BINARY

Cells = NDArray[np.float64]
_DRAWS = 2000
_LOWER, _MIDDLE, _UPPER = 97.5, 50.0, 2.5
_HALVINGS = 20
_NODES = 33
_LEAST_COUNT = 1e-3
_POWERS = (1e-3, 10.0)


def calibration_error(
    cells: Cells, noise_sd: float, edges: NDArray[np.float64], rng: np.random.Generator
) -> tuple[float, float, float]:
    """(estimate, low, high) of the domain's cells (C, bins) or (C, 2 bins), which must hold patients.

    `edges` (bins + 1,): of the bins, in logits of the positive label or in confidence. `noise_sd` is on every cell.
    """
    total = float(cells.sum())
    binary = len(cells) == BINARY
    # Of more classes only right and wrong matter here.
    pair = (cells if binary else cells.reshape(len(cells), 2, -1).sum(axis=0)).ravel()
    variances = np.maximum(pair, 0.0) + noise_sd**2 * (1 if binary else len(cells))
    bins = len(edges) - 1
    claimed = (_claimed_binary if binary else _claimed_top)(edges, pair[:bins] + pair[bins:])
    gaps = np.concatenate([np.zeros((bins, bins)), np.eye(bins)], axis=1) - np.tile(claimed, 2)
    observed = gaps @ pair
    # As if every bin were wrong by the same share. Along the gaps observed, less what noise explains of them, intervals
    # were measured to hold the truth in as few as 82 of 100 cases.
    direction = np.maximum(pair[:bins] + pair[bins:], 0.0)
    length = float(direction.sum())
    noise = (rng.normal(size=(_DRAWS, len(pair))) * np.sqrt(variances)) @ gaps.T
    statistic = float(np.abs(observed).sum())

    def error(percentile: float) -> float:
        low, high = 0.0, total / length
        for _ in range(_HALVINGS):
            middle = (low + high) / 2.0
            sums = np.abs(middle * direction + noise).sum(axis=1)
            low, high = (middle, high) if np.percentile(sums, percentile) < statistic else (low, middle)
        return min(low * length / total, 1.0)

    return error(_MIDDLE), error(_LOWER), error(_UPPER)


def _claimed_binary(edges: NDArray[np.float64], counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rows (bins, bins): sum of the probabilities in a bin of logits, from its own and its neighbours' `counts`.

    Within a bin the density is taken as linear, with the slope between its neighbours. The two open bins may reach far:
    there p, and 1 - p at the other end, are taken as power laws.
    """
    bins, width = len(edges) - 1, edges[-1] - edges[-2]
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    place, weights = nodes / 2.0, weights / 2.0
    p = expit((edges[:-1, None] + edges[1:, None]) / 2.0 + width * place)
    rows = np.diag(p @ weights)
    tilt = p @ (weights * place) / 2.0
    for b in range(1, bins - 1):
        rows[b, b + 1] += tilt[b]
        rows[b, b - 1] -= tilt[b]
    low, high = expit(edges[1:3]), expit(-edges[-2:-4:-1])
    rows[0, 0] = _power_means(low[0], low[1], counts[0], counts[1])[0]
    rows[-1, -1] = 1.0 - _power_means(high[0], high[1], counts[-1], counts[-2])[0]
    return rows


def _claimed_top(edges: NDArray[np.float64], counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """The same for bins of confidence.

    Confidence piles up at 1: where the last bin holds more than the one before, 1 - confidence is taken as a power law
    over the two.
    """
    bins, width = len(edges) - 1, edges[1] - edges[0]
    rows = np.diag((edges[:-1] + edges[1:]) / 2.0)
    for b in range(1, bins - 1):
        rows[b, b + 1] += width / 24.0
        rows[b, b - 1] -= width / 24.0
    if counts[-1] > max(counts[-2], 0.0):
        last, before = _power_means(width, 2.0 * width, counts[-1], counts[-2])
        rows[-2:] = 0.0
        rows[-1, -1], rows[-2, -2] = 1.0 - last, 1.0 - before
    return rows


def _power_means(near: float, far: float, inner: float, outer: float) -> tuple[float, float]:
    """Mean of t over [0, near] and over [near, far] where P(below t) ~ t^power, which the counts of the two give."""
    inner, outer = max(inner, _LEAST_COUNT), max(outer, 0.0)
    power = float(np.clip(np.log((inner + outer) / inner) / np.log(far / near), *_POWERS))
    mean = power / (power + 1.0)
    return mean * near, mean * (far ** (power + 1.0) - near ** (power + 1.0)) / (far**power - near**power)
