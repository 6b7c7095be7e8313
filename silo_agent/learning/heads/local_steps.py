"""A silo's own heads after local steps: the first half of FedDAR's Algorithm 1.

Only for data declared public: after many steps on a silo's own records nobody can bound what one patient adds.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from policies.documents.study import HeadPlan

Floats = NDArray[np.float64]
Sums = Callable[[Floats], tuple[Floats, Floats]]
"""Curvature (D, W, W) and gradient (D, W) of a silo's patients at heads (D, W), summed over its patients."""
_NOTHING = 1e-12
"""Below this a curvature is rounding error: the silo has no patient of the domain."""


def local_heads(sums: Sums, heads: Floats, plan: HeadPlan) -> Floats:
    """Heads (D, W) after `plan.steps` gradient steps from the common `heads` (D, W), none of which goes too far.

    A step's length is `plan.learning_rate` over the largest curvature at heads of zero, which for two classes and for
    a number is the largest that there is. A head ends within `plan.max_step` of the common one, because the records of
    one silo may be separable, and their best head infinitely long.
    """
    largest = np.linalg.eigvalsh(sums(np.zeros_like(heads))[0])[:, -1:]
    length = np.where(largest > _NOTHING, plan.learning_rate / np.maximum(largest, _NOTHING), 0.0)
    local = heads
    for _ in range(plan.steps):
        moved = local - length * sums(local)[1] - heads
        norms = np.linalg.norm(moved, axis=1, keepdims=True)
        local = heads + moved * np.minimum(1.0, plan.max_step / np.maximum(norms, _NOTHING))
    return local
