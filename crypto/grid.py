"""Fixed point: real numbers on a public grid, as integers that add exactly.

Guarantees: values are clamped to a public bound before they are rounded, never refused for their size; rounding moves
a value by at most half a step (nearest) or less than one step (stochastic, unbiased). Leaves noise and the range of
the rings to others. Step and bound are in the value's own unit.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from crypto.errors import SealError
from crypto.stream import KeyStream

_MAX_INTEGER = 2.0**52
_CHUNK = 1 << 16


def to_grid(x: NDArray[np.float64], step: float, bound: float) -> NDArray[np.int64]:
    """Clamp to [-bound, bound], then round to the nearest multiple of step (ties to even). Any shape.

    Raises `SealError` for NaN, or a step and bound that do not fit 53-bit integers.
    """
    return np.rint(_scaled(x, step, bound)).astype(np.int64)


def to_grid_stochastic(x: NDArray[np.float64], step: float, bound: float, stream: KeyStream) -> NDArray[np.int64]:
    """Clamp to [-bound, bound], then round up with the probability of the remainder (unbiased). Any shape.

    One 64-bit word of the stream a value, of which 53 bits decide. Raises `SealError` as `to_grid` does.
    """
    scaled = _scaled(x, step, bound)
    low = np.floor(scaled)
    rest = (scaled - low).reshape(-1)
    up = np.empty(rest.size, dtype=np.bool_)
    for begin in range(0, rest.size, _CHUNK):
        part = rest[begin : begin + _CHUNK]
        up[begin : begin + _CHUNK] = (stream.words64(part.size) >> np.uint64(11)) * 2.0**-53 < part
    return low.astype(np.int64) + up.reshape(low.shape)


def from_grid(integers: NDArray[np.int64], step: float) -> NDArray[np.float64]:
    """Return integers times step."""
    return np.asarray(integers, dtype=np.float64) * step


def _scaled(x: NDArray[np.float64], step: float, bound: float) -> NDArray[np.float64]:
    if not (math.isfinite(step) and math.isfinite(bound) and step > 0 and 0 < bound / step <= _MAX_INTEGER):
        msg = "step and bound of a grid are positive, with at most 2^52 steps up to the bound; mend the study"
        raise SealError(msg)
    values = np.asarray(x, dtype=np.float64)
    if np.isnan(values).any():
        msg = "a value to be sealed is not a number; the computation before it diverged: lower the learning rate"
        raise SealError(msg)
    return np.clip(values, -bound, bound) / step
