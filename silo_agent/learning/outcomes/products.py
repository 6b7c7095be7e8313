"""Sums over records of products that are symmetric, each made once: the heads' Hessians spend their time here.

Guarantees: the results are symmetric to the last bit. Beside arguments and result, memory holds one copy of the
records, or one chunk of products. The order of additions is left open, as `heads.sums.rounding_slack` allows.
"""

from __future__ import annotations

import torch

_VALUES = 1 << 19
"""Values of one chunk of products (4 MiB of float64): more would leave the processor's cache."""
_LEAST_ROWS = 128
"""Records of a chunk at least: with fewer, a matrix product has too little to add up."""


def weighted_gram(z: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Z' diag(weight) Z, (K, K), of `z` (n, K) and `weight` (n,) >= 0."""
    scaled = torch.sqrt(weight)[:, None] * z
    if scaled.device.type != "cpu":
        return scaled.T @ scaled
    # numpy hands a matrix times its own transpose to BLAS's syrk: half the work, for which torch has no function.
    array = scaled.numpy()
    return torch.from_numpy(array.T @ array)


def pairs(size: int) -> int:
    """Number of pairs (i, j), i <= j, of so many values."""
    return size * (size + 1) // 2


def pair_products(values: torch.Tensor) -> torch.Tensor:
    """Products v_i v_j, i <= j, in the order of `torch.triu_indices`: (pairs(r), n) from (r, n)."""
    size = len(values)
    products = values.new_empty(pairs(size), values.shape[1])
    begin = 0
    for i in range(size):
        torch.mul(values[i], values[i:], out=products[begin : begin + size - i])
        begin += size - i
    return products


def rows_at_once(values: int) -> int:
    """How many records go into one chunk, if each brings so many products."""
    return max(_VALUES // values, _LEAST_ROWS)


def kronecker_matrix(sums: torch.Tensor, outer: int, inner: int) -> torch.Tensor:
    """The symmetric matrix (outer inner, outer inner) with block (c, d), entry (i, j) from `sums` (pairs, pairs).

    A row of `sums` is the pair (c, d) of `outer`, a column the pair (i, j) of `inner`. So each block is symmetric too,
    as in a sum of Kronecker products of symmetric matrices.
    """
    place = torch.empty(inner, inner, dtype=torch.int64, device=sums.device)
    i, j = torch.triu_indices(inner, inner, device=sums.device)
    place[i, j] = place[j, i] = torch.arange(len(i), device=sums.device)
    whole = sums.new_empty(outer, inner, outer, inner)
    for block, c, d in zip(sums, *torch.triu_indices(outer, outer).tolist(), strict=True):
        whole[c, :, d] = block[place]
        if c != d:
            whole[d, :, c] = whole[c, :, d]
    return whole.view(outer * inner, outer * inner)
