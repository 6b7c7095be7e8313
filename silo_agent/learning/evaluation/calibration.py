"""Expected calibration error of one domain from its opened, noised cells, with a 95 % interval.

What is estimated: sum over score bins of |happened - claimed| / n. The family says what is claimed: of two classes
the probability of the positive label, of more that its prediction is right. The cells hold no means of claims, so they
are read off the counts around (`Family.claimed`). With ten bins that was measured to be wrong by .003 at most, and by
.01 where scores spread over two bins only.

Noise alone makes a sum of absolute values large, whatever the truth. So neither the sum itself nor its percentiles are
given, but the errors under which the observed sum would be the median, or in a tail of 2.5 % (test inversion).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from silo_agent.learning.families.family import Family

Cells = NDArray[np.float64]
_DRAWS = 2000
_LOWER, _MIDDLE, _UPPER = 97.5, 50.0, 2.5
_HALVINGS = 20


def calibration_error(
    cells: Cells, noise_sd: float, edges: NDArray[np.float64], rng: np.random.Generator, family: Family
) -> tuple[float, float, float]:
    """(estimate, low, high) of the domain's cells (C, bins) or (C, 2 bins), which must hold patients.

    `edges` (bins + 1,): of the score's bins, the family's. `noise_sd` is on every cell.
    """
    total = float(cells.sum())
    pair, summed = family.calibration_cells(cells)
    variances = np.maximum(pair, 0.0) + noise_sd**2 * summed
    bins = len(edges) - 1
    claimed = family.claimed(edges, pair[:bins] + pair[bins:])
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
