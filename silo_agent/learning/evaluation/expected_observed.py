"""What was predicted over what happened, of one domain from its opened, noised cells, with a 95 % interval.

Source: docs/design/evaluation.md, "Expected over observed". The predictions' sum is read off the counts, as for the
calibration error (`Family.claimed`).
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from silo_agent.learning.evaluation.fitted import Fit
from silo_agent.learning.evaluation.intervals import Interval, quotient
from silo_agent.learning.families.family import OfClasses

LARGEST_RATIO: Final = 100.0
"""No ratio is said to be larger."""


def expected_observed(
    cells: NDArray[np.float64], noise_sd: float, edges: NDArray[np.float64], family: OfClasses, found: Fit | None
) -> Interval | None:
    """(ratio, low, high) from the domain's cells (C, bins) or (C, 2 bins), or from the risk that is fitted to them.

    `edges` (bins + 1,): the family's edges of the score's bins. `noise_sd`: standard deviation of the noise on every
    cell. None if the cells do not tell whether anything happened at all.
    """
    bins = len(edges) - 1
    pair, summed = family.calibration_cells(cells)
    counts = pair[:bins] + pair[bins:]
    claims = family.claimed(edges, counts).sum(axis=0)
    if found is None:
        ratio = quotient(np.tile(claims, 2), np.repeat([0.0, 1.0], bins), pair, noise_sd * math.sqrt(summed))
    else:
        ratio = found.expected_observed(claims)
    if ratio is None:
        return None
    value, low, high = (min(max(part, 0.0), LARGEST_RATIO) for part in ratio)
    return value, low, high
