"""Fixed point: real numbers on a public grid, as integers that add exactly.

Guarantees: values are clamped to a public bound before they are rounded, and never refused for their size. Rounding
moves a value by at most half a step (nearest) or by less than one step (stochastic, unbiased). The memory needed beside
input and output is one chunk. Noise and the range of the rings are left to others. Step and bound are in the unit of
the values.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from crypto.errors import SealError
from crypto.stream import KeyStream

_MAX_INTEGER = 2.0**52
_CHUNK = 1 << 16


def to_grid(x: NDArray[np.float64], step: float, bound: float) -> NDArray[np.int64]:
    """Clamp to [-bound, bound], then round to the nearest multiple of step (ties to even). Any shape.

    Raises `SealError` for NaN, or if step and bound do not fit 53-bit integers.
    """
    return _on_grid(x, step, bound, np.rint)


def to_grid_stochastic(
    x: NDArray[np.float64], step: float, bound: float, stream: KeyStream, *, in_place: bool = False
) -> NDArray[np.int64]:
    """Clamp to [-bound, bound], then round up with the probability of the remainder (unbiased). Any shape.

    Each value takes one 64-bit word of the stream, of which 53 bits decide. With `in_place` the integers take the
    memory of `x`, whose values are gone then. Raises `SealError` as `to_grid` does.
    """

    def rounded(scaled: NDArray[np.float64]) -> NDArray[np.float64]:
        low = np.floor(scaled)
        return low + ((stream.words64(scaled.size) >> np.uint64(11)) * 2.0**-53 < scaled - low)

    return _on_grid(x, step, bound, rounded, x.reshape(-1).view(np.int64) if in_place else None)


def from_grid(integers: NDArray[np.int64], step: float) -> NDArray[np.float64]:
    """Return integers times step."""
    return np.asarray(integers, dtype=np.float64) * step


def _on_grid(
    x: NDArray[np.float64],
    step: float,
    bound: float,
    rounded: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    out: NDArray[np.int64] | None = None,
) -> NDArray[np.int64]:
    """Clamp, scale and round chunk by chunk, so that memory does not hold a long vector several times."""
    if not (math.isfinite(step) and math.isfinite(bound) and step > 0 and 0 < bound / step <= _MAX_INTEGER):
        msg = "step and bound of a grid must be positive, with at most 2^52 steps up to the bound; fix the study"
        raise SealError(msg)
    values = np.asarray(x).reshape(-1)
    integers = np.empty(values.size, dtype=np.int64) if out is None else out
    for begin in range(0, values.size, _CHUNK):
        part = values[begin : begin + _CHUNK].astype(np.float64)
        if np.isnan(part).any():
            msg = "a value to be sealed is not a number: the computation before it diverged; lower the learning rate"
            raise SealError(msg)
        np.clip(part, -bound, bound, out=part)
        part /= step
        integers[begin : begin + _CHUNK] = rounded(part)
    return integers.reshape(np.shape(x))
