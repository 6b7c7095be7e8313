"""FedDAR's Algorithm 2: a linear representation with orthonormal columns (docs/design/recipes.md, "FedDAR-linear").

The heads are solved in closed form from the sums at the common heads, as `second-order` solves them: of a squared loss
Newton's step is the least squares. Then the representation takes one common step, and its QR follows here.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from silo_agent.learning.encoder.orthonormal import gram_schmidt

Floats = NDArray[np.float64]


def orthonormalised(matrix: Floats, heads: Floats) -> tuple[Floats, Floats]:
    """Q' (k, d) of the representation B' (k, d) with B = Q R, and heads (M, K) that predict with Q as before with B.

    The first k weights of a head are those of the representation. A representation that has lost a direction stays as
    it is, because it has no Q. The result has the same bits on every machine.
    """
    with np.errstate(all="ignore"):
        basis, triangle = gram_schmidt(matrix)
    if not np.isfinite(basis).all() or (np.diag(triangle) <= _LOST * np.abs(triangle).max()).any():
        return matrix, heads
    turned, k = heads.copy(), len(matrix)
    turned[:, :k] = sum(heads[:, i : i + 1] * triangle[i] for i in range(k))
    return basis, turned


_LOST = 1e-6
"""A direction that keeps less than this share of its length beside the others is the error of rounding to float32."""
