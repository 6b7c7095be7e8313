"""First weights of a layer: orthogonal matrices from public random bits, with the same bits on every machine.

There are two ways, and `model.start` names one. `gram-schmidt` orthogonalises even numbers, in a time that grows with
the cube of the width. `hadamard` mixes by signs, permutations and Hadamard matrices in integers: its matrices are
orthogonal without any rounding, in a time that grows with the number of weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from silo_agent.learning.encoder.orthonormal import gram_schmidt

Floats = NDArray[np.float64]
Integers = NDArray[np.int32]

MIXINGS: Final = 3
"""How often `hadamard` mixes. After one mixing a weight depends on the inputs of its block, after three nearly always
on all. The integers stay below 2^31 up to a length of 4^10."""
_VALUES: Final = 1 << 18
"""Values that are mixed at once: 1 MiB, which stays near the processor."""


def orthogonal(generator: np.random.PCG64, rows: int, widths: Iterable[int], start: str) -> Floats:
    """Orthogonal matrices (rows, w) side by side, one for each width w above 0, scaled to the size of one.

    Of each, the rows or the columns are orthonormal before the scaling, whichever are fewer. `start` is `model.start`
    of a study.
    """
    blocks = [_oriented(_MAKE[start], generator, rows, width) for width in widths if width]
    return np.hstack(blocks) / math.sqrt(len(blocks))


def _oriented(make: _Make, generator: np.random.PCG64, rows: int, columns: int) -> Floats:
    basis = make(generator, min(rows, columns), max(rows, columns))
    return basis if rows <= columns else basis.T.copy()


def even(generator: np.random.PCG64, count: int) -> Floats:
    """Numbers (count,) spread evenly over [-1, 1), the same on every platform."""
    return (generator.random_raw(count) >> np.uint64(11)).astype(np.float64) * 2.0**-52 - 1.0


def _orthogonalised(generator: np.random.PCG64, count: int, length: int) -> Floats:
    return gram_schmidt(even(generator, count * length).reshape(count, length))[0]


def hadamard(generator: np.random.PCG64, count: int, length: int) -> Floats:
    """Rows (count, length) that are orthonormal to the last bit; count <= length.

    They are rows of a product of permutations, signs and Hadamard matrices, whose sizes are powers of 4, so that their
    norms are integers. Every value is an integer times a power of two: it is scaled once, exactly.
    """
    sizes = _powers_of_4(length)
    most = math.isqrt(sizes[0])
    picked = _shuffled(generator, length)[:count]
    mixings = [(_signs(generator, length), _shuffled(generator, length)) for _ in range(MIXINGS)]
    basis = np.empty((count, length))
    together = max(_VALUES // length, 1)
    for begin in range(0, count, together):
        part = slice(begin, min(begin + together, count))
        rows = np.zeros((part.stop - begin, length), np.int32)
        rows[np.arange(len(rows)), picked[part]] = 1
        for signs, order in mixings:
            rows = _mixed((rows * signs)[:, order], sizes, most)
        basis[part] = rows
    basis *= 1.0 / most**MIXINGS
    return basis


_Make = Callable[[np.random.PCG64, int, int], Floats]
_MAKE: Final[dict[str, _Make]] = {"gram-schmidt": _orthogonalised, "hadamard": hadamard}


def _powers_of_4(length: int) -> list[int]:
    """The fewest powers of 4 whose sum is `length`, the largest first."""
    sizes = []
    while length:
        sizes.append(4 ** ((length.bit_length() - 1) // 2))
        length -= sizes[-1]
    return sizes


def _shuffled(generator: np.random.PCG64, count: int) -> NDArray[np.intp]:
    return np.argsort(generator.random_raw(count), kind="stable")


def _signs(generator: np.random.PCG64, count: int) -> Integers:
    return np.where(generator.random_raw(count) >> np.uint64(63), -1, 1).astype(np.int32)


def _mixed(rows: Integers, sizes: list[int], most: int) -> Integers:
    """Multiply neighbouring columns by Hadamard matrices of these sizes, all scaled to the norm `most`."""
    mixed, begin = np.empty_like(rows), 0
    for size in sizes:
        part = rows[:, begin : begin + size]
        mixed[:, begin : begin + size] = _transformed(part) * np.int32(most // math.isqrt(size))
        begin += size
    return mixed


def _transformed(rows: Integers) -> Integers:
    """The rows (n, 2^k) times Sylvester's Hadamard matrix, by halving (the fast Walsh-Hadamard transform)."""
    count, size = rows.shape
    half = 1
    while half < size:
        pairs = rows.reshape(count, size // (2 * half), 2, half)
        first, second = pairs[:, :, 0], pairs[:, :, 1]
        rows = np.stack([first + second, first - second], axis=2).reshape(count, size)
        half *= 2
    return rows
