"""Integer noise for training, fast: the floor of a normal variable, drawn exactly.

Guarantees: the law is that of floor(X), where X is normal with mean 0 and deviation `sigma`, with no rounding anywhere;
only values of X beyond 32 sigma are left out, which have a chance of 2^-738 (docs/design/noise.md, "Integer noise").
Integers + floor(X) = floor(integers + X), so a sum of integers with this noise is post-processing of the Gaussian
mechanism, and the accountant's Gaussian covers it without an addition.

How: a table of buckets of equal width stands above the density. A bucket is drawn by its mass (an alias table of
integers), the place in it is uniform, and the draw is kept with the ratio of the density to the table. For 98 of 100
draws twelve bits decide that, for nearly all others float64, and rational bounds for the rest. One 64-bit word gives a
value.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from crypto.stream import KeyStream
from silo_agent.learning.noise.gaussian import exp_bounds

LEAST_SIGMA, MOST_SIGMA = 1.0, 2.0**27
_COLUMN_BITS, _MASS_BITS, _PLACE_BITS, _KEEP_BITS = 12, 18, 22, 12
"""What the 64 bits of a word are for, from the top: a column of the alias table, own bucket or alias, the place in the
bucket, whether it is kept."""
_BUCKETS = 1 << _COLUMN_BITS
_HALF = _BUCKETS // 2
_MASSES = 1 << (_COLUMN_BITS + _MASS_BITS)
_KEEP = (1 << _KEEP_BITS) - 1
_CHUNK = 1 << 14
"""Values that are drawn together: what they need fits the processor's second cache."""
_FINE = 2.0**-36
"""Far above the float64 error of a bucket's mass and of the ratio of the densities, which is below 2^-39."""
_MORE_BITS = 64

Integers = NDArray[np.int64]


class _Table(NamedTuple):
    """Buckets of width 2^`shift`; number `at` of them begins at (at - _HALF) 2^shift.

    A draw with place x in a bucket is kept with probability `scale` exp(-x^2 / (2 sigma^2)) / mass, at most 1.
    """

    shift: int
    scale: int
    masses: Integers
    """Chance of each bucket times 2^30: the integers add up to 2^30."""
    thresholds: NDArray[np.uint64]
    """By column: words below this one take the column's own bucket, others its alias."""
    choices: Integers
    """First all aliases, then the own buckets: where the bucket begins, times 2^12, plus how many of the 2^12 values of
    the last bits are kept for certain."""


class RoundedGaussian:
    """Draws floor(X) for one `sigma`, from 1 to 2^27."""

    def __init__(self, sigma: float) -> None:
        """Raises ValueError for another sigma."""
        if not LEAST_SIGMA <= sigma <= MOST_SIGMA:
            msg = f"sigma must lie in [1, 2^27], not {sigma}"
            raise ValueError(msg)
        self.sigma = float(sigma)
        self._variance = Fraction(self.sigma) ** 2
        self._table = _table(self.sigma)
        self._words, self._limits = np.empty(_CHUNK, "<u8"), np.empty(_CHUNK, np.uint64)
        self._columns, self._own = np.empty(_CHUNK, np.uint64), np.empty(_CHUNK, np.bool_)
        self._chosen, self._kept = np.empty(_CHUNK, np.int64), np.empty(_CHUNK, np.int64)

    def draw(self, stream: KeyStream, n: int) -> Integers:
        """The next n values, int64 (n,). The same stream gives the same values on every machine."""
        out = np.empty(n, np.int64)
        for begin in range(0, n, _CHUNK):
            self._fill(stream, out[begin : begin + _CHUNK])
        return out

    def _fill(self, stream: KeyStream, out: Integers) -> None:
        """Overwrite `out`, at most `_CHUNK` values. Values that are not kept are drawn again in their places."""
        n, table = len(out), self._table
        words, limits, own = self._words[:n], self._limits[:n], self._own[:n]
        columns, chosen, kept = self._columns[:n].view(np.int64), self._chosen[:n], self._kept[:n]
        stream.fill(words)
        np.right_shift(words, np.uint64(64 - _COLUMN_BITS), out=self._columns[:n])
        # `clip` is how `take` writes into an array without a copy; every index is in range.
        table.thresholds.take(columns, out=limits, mode="clip")
        np.less(words, limits, out=own)
        np.multiply(own, _BUCKETS, out=chosen)
        np.add(columns, chosen, out=columns)
        table.choices.take(columns, out=chosen, mode="clip")
        np.bitwise_and(words.view(np.int64), _KEEP, out=kept)
        np.bitwise_and(chosen, _KEEP, out=columns)
        unsure = np.flatnonzero(np.greater_equal(kept, columns, out=own))
        np.right_shift(chosen, _KEEP_BITS, out=chosen)
        np.right_shift(words, np.uint64(_KEEP_BITS), out=words)
        np.bitwise_and(words, np.uint64((1 << table.shift) - 1), out=words)
        np.add(chosen, words.view(np.int64), out=out)
        if len(unsure):
            buckets = (chosen[unsure] >> table.shift) + _HALF
            lost = unsure[~self._is_kept(stream, out[unsure], buckets, kept[unsure])]
            if len(lost):
                again = np.empty(len(lost), np.int64)
                self._fill(stream, again)
                out[lost] = again

    def _is_kept(self, stream: KeyStream, x: Integers, buckets: Integers, bits: Integers) -> NDArray[np.bool_]:
        """Whether each draw is kept, given its floor, its bucket and the first 12 bits of its uniform number."""
        more, places = stream.words64(len(x)), stream.words64(len(x))
        uniform = (bits + more * 2.0**-_MORE_BITS) * 2.0**-_KEEP_BITS
        at = x + places * 2.0**-_MORE_BITS
        over = uniform - self._table.scale / self._table.masses[buckets] * np.exp(-0.5 * (at / self.sigma) ** 2)
        kept = np.asarray(over < 0.0)
        for i in np.flatnonzero(np.abs(over) <= _FINE):
            word = int(bits[i]) << _MORE_BITS | int(more[i])
            mass = int(self._table.masses[buckets[i]])
            kept[i] = self._is_below(stream, int(x[i]), int(places[i]), mass, word)
        return kept

    def _is_below(self, stream: KeyStream, x: int, place: int, mass: int, word: int) -> bool:
        """Whether the uniform number that begins with the 76 bits `word` lies below the ratio at X.

        Of X its floor and 64 bits after it are known. More bits of both are drawn until the bounds decide. No bucket
        has zero inside, so within it the ratio is monotone.
        """
        place_bits, bits = _MORE_BITS, _KEEP_BITS + _MORE_BITS
        while True:
            ends = [abs(x + Fraction(place + end, 1 << place_bits)) for end in (0, 1)]
            low, high = (
                Fraction(self._table.scale, mass) * exp_bounds(end**2 / (2 * self._variance), bits + 32)[which]
                for which, end in enumerate((max(ends), min(ends)))
            )
            if Fraction(word + 1, 1 << bits) <= low:
                return True
            if Fraction(word, 1 << bits) >= high:
                return False
            first, second = (int(own) for own in stream.words64(2))
            place, place_bits = place << _MORE_BITS | first, place_bits + _MORE_BITS
            word, bits = word << _MORE_BITS | second, bits + _MORE_BITS


@lru_cache(maxsize=16)
def _table(sigma: float) -> _Table:
    # Buckets are 1/64 to 1/32 of sigma wide, and one wide where sigma is below 64. So 2048 of them reach 32 sigma.
    shift = max(0, math.floor(math.log2(sigma)) - 5)
    ends = np.exp(-0.5 * (np.arange(_HALF + 1) * (2.0**shift / sigma)) ** 2)
    near, far = ends[:-1], ends[1:]
    # Every mass is rounded up, and is 1 at least; the two buckets beside zero take what is left of 2^30.
    scale = math.floor((_MASSES - 2 * _BUCKETS) / (2.0 * float(near.sum()) * (1.0 + _FINE)))
    half = np.maximum(np.ceil(scale * near * (1.0 + _FINE)), 1.0).astype(np.int64)
    half[0] += (_MASSES - 2 * int(half.sum())) // 2
    certain = np.floor(2.0**_KEEP_BITS * (1.0 - _FINE) * scale * far / half).astype(np.int64)
    masses = np.concatenate([half[::-1], half])
    begins = (np.arange(_BUCKETS) - _HALF) << shift
    choices = begins << _KEEP_BITS | np.minimum(np.concatenate([certain[::-1], certain]), _KEEP)
    own, aliases = _alias_table(masses.tolist(), 1 << _MASS_BITS)
    columns = np.arange(_BUCKETS, dtype=np.uint64) << np.uint64(64 - _COLUMN_BITS)
    thresholds = columns + (np.array(own, np.uint64) << np.uint64(64 - _COLUMN_BITS - _MASS_BITS))
    return _Table(shift, scale, masses, thresholds, np.concatenate([choices[aliases], choices]))


def _alias_table(masses: list[int], size: int) -> tuple[list[int], list[int]]:
    """Columns of `size` units: the first `own` of each belong to its own bucket, the rest to its alias.

    The masses are integers that add up to `size` for each bucket; every bucket gets exactly its own (Vose 1991). A full
    column is its own alias, and says 0 units of its own.
    """
    own, aliases, rest = [0] * len(masses), list(range(len(masses))), list(masses)
    small = [at for at, mass in enumerate(rest) if mass < size]
    large = [at for at, mass in enumerate(rest) if mass >= size]
    while small:
        short, long = small.pop(), large[-1]
        own[short], aliases[short] = rest[short], long
        rest[long] -= size - rest[short]
        if rest[long] < size:
            small.append(large.pop())
    return own, aliases
