"""FedDAR's domain weights u_m = L / (M L_m), from the counts' sum, which is charged, noised and sealed.

Source: docs/design/heads.md, "Domain weights".
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def domain_counts(domains: NDArray[np.int64], weights: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """Patients by domain, float64 (M,), from records' domains (n,) and weights (n,), as in `Records.weights`.

    The l2 sensitivity is 1: a patient in several domains is divided by records.
    """
    return np.bincount(domains, weights=weights, minlength=count).astype(np.float64)


def domain_weights(counts: NDArray[np.float64], weight_clip: float) -> NDArray[np.float64]:
    """u_m in [1 / weight_clip, weight_clip] from the opened, noised counts (M,). Each L_m counts as at least 1.

    This is post-processing of a released value. Without the clip, a domain with almost no patients could dominate the
    gradient.
    """
    floored = np.maximum(counts, 1.0)
    weights = floored.sum() / (len(floored) * floored)
    return np.asarray(np.clip(weights, 1.0 / weight_clip, weight_clip), np.float64)
