"""Poisson sampling of patients, with one random record of each (docs/design/noise.md, "DP-SGD").

Guarantees that every patient enters a step independently, with probability at most `rate`, by a cryptographic stream.
A patient enters with one record, even if it has many.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from crypto.stream import KeyStream


class PatientSampler:
    """Draws the record indices for one step after the other."""

    def __init__(self, patients: NDArray[np.int64], rate: float, stream: KeyStream) -> None:
        self._order = np.argsort(patients, kind="stable")
        self._sizes = np.bincount(patients).astype(np.uint64) if len(patients) else np.zeros(0, np.uint64)
        self._starts = np.cumsum(self._sizes) - self._sizes
        self._limit = int(rate * 2**64)
        self._stream = stream

    def draw(self) -> NDArray[np.int64]:
        """Record indices for one step, int64 (b,). With P patients, b is Binomial(P, rate), and may be 0."""
        words = self._stream.words64(len(self._sizes))
        everyone = self._limit >= 2**64
        chosen = np.arange(len(words)) if everyone else np.flatnonzero(words < np.uint64(self._limit))
        # The choice among a patient's own records may be uneven by 2^-32. Privacy does not rest on it.
        which = (self._stream.words32(len(chosen)).astype(np.uint64) * self._sizes[chosen]) >> np.uint64(32)
        return np.asarray(self._order[(self._starts[chosen] + which).astype(np.int64)], np.int64)
