"""Noise from a cryptographic key stream.

`discrete_gaussian` is exact: its law is the discrete Gaussian of the given `sigma` (a float is a rational number),
with no rounding anywhere. `gaussian` makes the normals of a stochastic encoder's features, and protects nobody: it is
part of the model, and privacy rests on the integer noise of training (`rounded`) whatever its law is. Neither uses
torch's or numpy's generators, so a GPU draws the same numbers as a CPU.

Source: Canonne, Kamath, Steinke 2020, "The Discrete Gaussian for Differential Privacy", Algorithms 2 and 3.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from crypto.stream import KeyStream

MAX_SIGMA = 2.0**40
_UNDECIDED = 2.0**-40
"""Far above the float64 error of exp(-gamma) and of a 64-bit uniform. Both are below 2^-46 for the gammas used here."""
_NORMALS = 4


def discrete_gaussian(stream: KeyStream, sigma: float, n: int) -> NDArray[np.int64]:
    """Draw n integers with P(x) proportional to exp(-x^2 / (2 sigma^2)) over the integers.

    `sigma` is the law's parameter, 0 < sigma <= 2^40. For sigma above 2 it is also the standard deviation, to 1e-30.
    Uses rejection from a discrete Laplace of scale t = floor(sigma) + 1 (Algorithm 3). Raises ValueError for another
    sigma.
    """
    if not 0.0 < sigma <= MAX_SIGMA:
        msg = f"sigma must lie in (0, 2^40], not {sigma}"
        raise ValueError(msg)
    scale = math.floor(sigma) + 1
    variance = Fraction(sigma) ** 2
    kept: list[NDArray[np.int64]] = []
    missing = n
    while missing > 0:
        proposed = _discrete_laplace(stream, scale, 2 * missing + 16)
        distance = np.abs(proposed) - sigma * (sigma / scale)
        exact = partial(_gamma, proposed, scale, variance)
        accepted = _bernoulli_exp(stream, (distance / sigma) ** 2 / 2.0, exact)
        kept.append(proposed[accepted][:missing])
        missing -= len(kept[-1])
    return np.concatenate(kept) if kept else np.zeros(0, np.int64)


def gaussian(stream: KeyStream, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Standard normals of the given shape, float64, for a model's own randomness. They are no noise for privacy.

    Each is half the sum of four inverse-CDF normals of 53-bit uniforms.
    """
    n = math.prod(shape)
    words = stream.words64(_NORMALS * n)
    # One bit is the sign, so that both tails have the resolution of small float64 numbers. 53 bits give half a uniform.
    half = ((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-54
    normals = np.where((words & np.uint64(1)).astype(bool), 1.0, -1.0) * ndtri(half)
    return np.asarray(normals.reshape(_NORMALS, n).sum(axis=0) / math.sqrt(_NORMALS), np.float64).reshape(shape)


def _gamma(proposed: NDArray[np.int64], scale: int, variance: Fraction, i: int) -> Fraction:
    """Algorithm 3's (|y| - sigma^2 / t)^2 / (2 sigma^2) for one proposal."""
    return (abs(int(proposed[i])) - variance / scale) ** 2 / (2 * variance)


def _discrete_laplace(stream: KeyStream, scale: int, n: int) -> NDArray[np.int64]:
    """At most n draws with P(x) proportional to exp(-|x| / scale) (Algorithm 2, without its last division)."""
    low = stream.uniform(scale, n).astype(np.int64)
    low = low[_bernoulli_exp(stream, low / scale, lambda i: Fraction(int(low[i]), scale))]
    high = np.zeros(len(low), np.int64)
    running = np.arange(len(low))
    while len(running):
        running = running[_bernoulli_exp(stream, np.ones(len(running)), lambda _: Fraction(1))]
        high[running] += 1
    size = low + scale * high
    negative = (stream.words64(len(size)) & np.uint64(1)).astype(bool)
    once = ~(negative & (size == 0))
    return np.asarray(np.where(negative, -size, size)[once], np.int64)


def _bernoulli_exp(
    stream: KeyStream, gamma: NDArray[np.float64], exact: Callable[[int], Fraction]
) -> NDArray[np.bool_]:
    """Independent trials of probability exp(-gamma_i), gamma_i >= 0; `exact(i)` is gamma_i as a rational number.

    At first 64 bits of a uniform real number are drawn. If float64 cannot tell on which side of exp(-gamma) the number
    lies, rational bounds decide. They draw more bits if needed.
    """
    words = stream.words64(len(gamma))
    distance = words.astype(np.float64) * 2.0**-64 - np.exp(-gamma)
    below = np.asarray(distance < 0.0)
    for i in np.flatnonzero(np.abs(distance) <= _UNDECIDED):
        below[i] = _is_below(stream, int(words[i]), exact(int(i)))
    return below


def _is_below(stream: KeyStream, word: int, gamma: Fraction) -> bool:
    """Whether the uniform number with the first 64 bits `word` lies below exp(-gamma). Decided by tightening bounds."""
    if gamma == 0:
        return True
    bits = 64
    while True:
        low, high = exp_bounds(gamma, bits)
        if Fraction(word + 1, 1 << bits) <= low:
            return True
        if Fraction(word, 1 << bits) >= high:
            return False
        word = word << 64 | int(stream.words64(1)[0])
        bits += 64


def exp_bounds(gamma: Fraction, bits: int) -> tuple[Fraction, Fraction]:
    """Rational bounds of exp(-gamma), gamma >= 0, closer together than 2^-bits (gamma + 2)."""
    digits = bits // 3 + 20
    with localcontext(Context(prec=digits)):
        value = Fraction((-Decimal(gamma.numerator) / Decimal(gamma.denominator)).exp())
    error = (gamma + 2) / 10 ** (digits - 1)
    return value - error, value + error
