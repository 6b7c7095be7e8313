"""What was predicted over what happened, of one domain from its opened, noised cells, with a 95 % interval.

Source: docs/design/evaluation.md, "Expected over observed". The predictions' sum is read off the counts, as for the
calibration error (`Family.claimed`). Where the counts leave it open, the interval is wider by as much, or there is no
figure: of a rare outcome most scores lie in the lowest bin, which has no lower end.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from silo_agent.learning.figures.fitted_auc import Fit
from silo_agent.learning.figures.intervals import Interval, quotient
from silo_agent.learning.outcomes.family import OfClasses

LARGEST_RATIO: Final = 100.0
"""Beyond this there is no figure, and no interval says more."""
_MOST_OPEN: Final = 0.5
"""Largest share of the predictions' sum that may be open."""
_ALONE: Final = 0.25
"""How far the mean within a bin may lie off the estimate, as a share of its width, if its neighbours are empty."""


def expected_observed(
    cells: NDArray[np.float64], noise_sd: float, edges: NDArray[np.float64], family: OfClasses, fit: Fit | None
) -> Interval | None:
    """(ratio, low, high) from the domain's cells (C, bins) or (C, 2 bins), or from the risk that is fitted to them.

    `edges` (bins + 1,): the family's edges of the score's bins. `noise_sd`: standard deviation of the noise on every
    cell. None if the cells do not tell whether anything happened at all, or what was predicted.
    """
    bins = len(edges) - 1
    pair, summed = family.calibration_cells(cells)
    counts = pair[:bins] + pair[bins:]
    claims = family.claimed(edges, counts).sum(axis=0)
    below, above = _open(np.maximum(counts if fit is None else fit.patients, 0.0), claims, family.ends(edges))
    expected = float(claims @ (counts if fit is None else fit.patients))
    if expected <= 0.0 or below + above > _MOST_OPEN * expected:
        return None
    if fit is None:
        ratio = quotient(np.tile(claims, 2), np.repeat([0.0, 1.0], bins), pair, noise_sd * math.sqrt(summed))
    else:
        ratio = fit.expected_observed(claims)
    if ratio is None or ratio[0] > LARGEST_RATIO:
        return None
    value, low, high = ratio[0], ratio[1] * (1.0 - below / expected), ratio[2] * (1.0 + above / expected)
    return value, min(max(low, 0.0), value), max(min(high, LARGEST_RATIO), value)


def _open(counts: NDArray[np.float64], claims: NDArray[np.float64], ends: NDArray[np.float64]) -> tuple[float, float]:
    """How far the predictions' sum may lie below and above the estimate, for counts (B,) and claims of a patient (B,).

    `ends` (B, 2): least and largest claim that a bin can hold. The claims in the first and last bin may lie anywhere in
    it, because scores pile up there. In a bin between, neighbours that hold as many patients tell the slope; a bin
    without them may hold its patients at one place.
    """
    means = np.clip(claims, ends[:, 0], ends[:, 1])
    within = np.stack([means - ends[:, 0], ends[:, 1] - means], axis=1)
    share = np.ones(len(counts))
    beside = (counts[:-2] + counts[2:]) / 2.0
    alone = 1.0 - np.minimum(beside / np.maximum(counts[1:-1], 1.0), 1.0)
    share[1:-1] = 2.0 * _ALONE * alone**2
    below, above = (counts * share) @ within
    return float(below), float(above)
