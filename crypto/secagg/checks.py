"""Keyed linear checks: a sum whose parts were changed after sealing does not pass. Only silos use this module.

Guarantees: for values v_0, v_1, ... (a tensor's, then its roster slots) and secret words a_0, a_1, ..., uniform in
[0, 2^32), check c = 0..3 is

    sum over k of a_{k+c} v_k  mod 2^64,

so the checks of a sum are the sums of the checks. The words come from the roster's check key and the label, so each
round, attempt and tensor has its own words. A check travels as `layout.LIMBS` limbs that add up as integers.

Who changes a sealed sum without the check key passes with a probability of at most 2^-128 (`ring32`), 2^-112 (`ckks`)
or 2^-68 (`ring64`), plus the advantage in telling AES-256-CTR from random (docs/design/sums.md, "Checks"). Silos know
the key, so the checks prove nothing against silos.
"""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from crypto.canonical import canonical
from crypto.errors import OpeningRefused
from crypto.rings.rings import Kind
from crypto.secagg.labels import SumLabel
from crypto.secagg.layout import CHECKS, LIMB_BITS, LIMBS
from crypto.stream import KeyStream

_SHIFTS = np.arange(LIMBS, dtype=np.uint64) * np.uint64(LIMB_BITS)


class LinearChecks:
    """The checks of one tensor's values, which arrive part by part in order. `repr` prints only its kind."""

    def __init__(self, key: bytes, kind: Kind, label: SumLabel) -> None:
        """Start before the first value. Raises `SealError` unless the key has 32 bytes."""
        self._stream = KeyStream(key, canonical("linear check", kind, label.canonical()))
        self._ahead = self._stream.words32(CHECKS - 1)
        self._checks = np.zeros(CHECKS, dtype=np.uint64)

    def update(self, values: NDArray[np.int64]) -> None:
        """Take in the next values (n,). The checks do not depend on how a vector is cut into parts."""
        n = values.size
        words = np.empty(n + CHECKS - 1, dtype=np.uint64)
        words[: CHECKS - 1] = self._ahead
        words[CHECKS - 1 :] = self._stream.words32(n)
        self._ahead = words[n:].astype(np.uint32)
        # A negative value is 2^64 less than its bits say, which is nothing mod 2^64. Row c holds a_{k+c}.
        self._checks += np.einsum("ck,k->c", sliding_window_view(words, n), values.view(np.uint64))

    def limbs(self) -> NDArray[np.int64]:
        """Return the limbs of the checks so far, shape (CHECKS * LIMBS,), in the layout's order.

        Each limb is in [0, 2^LIMB_BITS).
        """
        limbs = (self._checks[:, None] >> _SHIFTS) & np.uint64((1 << LIMB_BITS) - 1)
        return limbs.astype(np.int64).ravel()

    def require(self, limbs: NDArray[np.int64]) -> None:
        """Raise `OpeningRefused` unless these summed limbs are the checks of all values taken in so far."""
        summed = (limbs.reshape(CHECKS, LIMBS).view(np.uint64) << _SHIFTS).sum(axis=1, dtype=np.uint64)
        if not np.array_equal(summed, self._checks):
            msg = "the sum was changed after it was sealed: its check values do not fit; begin a new attempt"
            raise OpeningRefused(msg)

    def __repr__(self) -> str:
        return "LinearChecks(secret)"
