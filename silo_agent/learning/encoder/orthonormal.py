"""Orthonormal rows, with the same bits on every machine: silos that compute them alone still hold one model.

LAPACK's QR is not used, because it differs between machines in the last bits.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def gram_schmidt(rows: Floats) -> tuple[Floats, Floats]:
    """Q (n, d) with orthonormal rows and a lower triangular T (n, n) with a diagonal above 0: `rows` = T Q, n <= d.

    Modified Gram-Schmidt in elementwise float64 operations in a fixed order. Rows that depend on each other give values
    that are not finite.
    """
    basis, triangle = np.array(rows, np.float64), np.zeros((len(rows), len(rows)))
    for i in range(len(basis)):
        triangle[i, i] = np.sqrt(row_sums(basis[i : i + 1] ** 2))[0]
        basis[i] /= triangle[i, i]
        rest = basis[i + 1 :]
        triangle[i + 1 :, i] = row_sums(rest * basis[i])
        rest -= triangle[i + 1 :, i][:, None] * basis[i]
    return basis, triangle


def row_sums(values: Floats) -> Floats:
    """Sum each row by halving: the same additions in the same order everywhere."""
    while values.shape[1] > 1:
        half = values.shape[1] // 2
        paired = values[:, :half] + values[:, half : 2 * half]
        values = np.concatenate([paired, values[:, 2 * half :]], axis=1)
    return values[:, 0]
