r"""Keyed linear checks: a sum that was changed after it was sealed does not pass. Silos only.

Guarantees: for values v_0, v_1, ... (a tensor's, then its roster slots) and secret words a_0, a_1, ..., uniform in
[0, 2^32), check c = 0..3 is

    sum over k of a_{k+c} v_k  mod 2^64,

so the checks of a sum are the sums of the checks. The words come from the roster's check key and the label: a sum of
another round, attempt or tensor has other ones. Words reach a check as `layout.LIMBS` limbs that add up as integers.

*How a forgery fails* (a multilinear hash, as in Lemire and Kaser, "Strongly universal string hashing is fast", The
Computer Journal 57, 2014; shifted for further checks as in Toeplitz hashing: Krawczyk, CRYPTO '94). Whoever changes a
sealed sum without the check key adds a difference d of the values and e of the checks that is independent of the words:
uploads and sums are covered by masks and pads. The sum passes iff, for every c, the sum over k of a_{k+c} d_k is e_c
mod 2^64. Let d differ from 0, let K be the last place where it does, and 2^z the largest power of two that divides
d_K. Given the words before a_{K+c}, equation c is a_{K+c} d_K = const mod 2^64, which has no solution or fixes a_{K+c}
mod 2^(64-z). Of the 2^32 possible words at most max(1, 2^(z-32)) solve it: it holds with probability at most
2^-min(32, 64-z). Equations 0..c-1 involve only words before a_{K+c}, so all four hold with probability at most the
product, 2^-4min(32, 64-z). If |d_K| < 2^b then z <= b-1, and a check is worth min(32, 65-b) bits. The honest and the
accepted sum both lie within the ring's `max_sum`:

    ring32   |sums| < 2^31     |d| <  2^32    4 x 32 bits: 2^-128
    ckks     |sums| <= 2^35    |d| <= 2^36    4 x 28 bits: 2^-112
    ring64   |sums| <= 2^46    |d| <= 2^47    4 x 17 bits: 2^-68

(2^36 itself has z = 36, 2^47 has z = 47.) To this comes an adversary's advantage in telling AES-256-CTR from random.
Where d is 0, so that only checks were changed, a sum passes only if it is the honest one. Silos know the key: against
them the checks prove nothing.
"""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from crypto.canonical import canonical
from crypto.errors import OpeningRefused
from crypto.rings.rings import Kind
from crypto.secagg.labels import Label
from crypto.secagg.layout import CHECKS, LIMB_BITS, LIMBS
from crypto.stream import KeyStream

_SHIFTS = np.arange(LIMBS, dtype=np.uint64) * np.uint64(LIMB_BITS)


class LinearChecks:
    """The checks of one tensor's values, given part by part in order. Prints only its kind."""

    def __init__(self, key: bytes, kind: Kind, label: Label) -> None:
        """Start before the first value. Raises `SealError` for a key that has not 32 bytes."""
        self._stream = KeyStream(key, canonical("linear check", kind, label.canonical()))
        self._ahead = self._stream.words32(CHECKS - 1)
        self._checks = np.zeros(CHECKS, dtype=np.uint64)

    def update(self, values: NDArray[np.int64]) -> None:
        """Take in the next values (n,); the same checks come out however a vector is cut."""
        n = values.size
        words = np.empty(n + CHECKS - 1, dtype=np.uint64)
        words[: CHECKS - 1] = self._ahead
        words[CHECKS - 1 :] = self._stream.words32(n)
        self._ahead = words[n:].astype(np.uint32)
        # A negative value is 2^64 less than its bits say, which is nothing mod 2^64. Row c holds a_{k+c}.
        self._checks += np.einsum("ck,k->c", sliding_window_view(words, n), values.view(np.uint64))

    def limbs(self) -> NDArray[np.int64]:
        """The checks of all that was taken in, (CHECKS * LIMBS,), each in [0, 2^LIMB_BITS), as the layout has them."""
        limbs = (self._checks[:, None] >> _SHIFTS) & np.uint64((1 << LIMB_BITS) - 1)
        return limbs.astype(np.int64).ravel()

    def require(self, limbs: NDArray[np.int64]) -> None:
        """Raise `OpeningRefused` unless these summed limbs are the checks of all that was taken in."""
        summed = (limbs.reshape(CHECKS, LIMBS).view(np.uint64) << _SHIFTS).sum(axis=1, dtype=np.uint64)
        if not np.array_equal(summed, self._checks):
            msg = "the sum was changed after it was sealed: its check values do not fit; begin a new attempt"
            raise OpeningRefused(msg)

    def __repr__(self) -> str:
        return "LinearChecks(secret)"
