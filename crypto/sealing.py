"""The two verbs of a silo: seal integers, open a sum. One protocol, two rings.

Guarantees: whatever `seal` returns is masked; a label seals once in the life of a `Sealer`; nothing is sealed that
could overflow in the roster's sum; `open` accepts only a sum over exactly this roster. A CKKS sum that is wrong is
refused; in the integer ring every word is valid, so a wrong sum opens to noise and the payload's own check values must
show it. Leaves durable label bookkeeping, budgets and rounds to the silo.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, assert_never

import numpy as np
from numpy.typing import NDArray

from crypto import ckks_public, ring
from crypto.ckks_secret import CkksKey
from crypto.errors import FrameError, OpeningRefused, SealError
from crypto.labels import Label
from crypto.packages import GroupKeys
from crypto.pads import Pads, mask_ckks, open_ring, seal_ring

Kind = Literal["ckks", "ring"]
"""The two rings in which sums are sealed: ciphertexts, and integers mod 2^32."""


def content_size(kind: Kind, values: int) -> int:
    """Bytes of a sealed vector of so many values."""
    match kind:
        case "ckks":
            return ckks_public.content_size(values)
        case "ring":
            return ring.content_size(values)
        case _:
            assert_never(kind)


def max_value(kind: Kind, silos: int) -> int:
    """Largest magnitude of one silo's value that cannot overflow in the sum of so many silos."""
    match kind:
        case "ckks":
            return min(ckks_public.MAX_VALUE, ckks_public.MAX_SUM // silos)
        case "ring":
            return ring.MAX_SUM // silos
        case _:
            assert_never(kind)


class Sealer:
    """One silo's keys under one roster. Prints only its kind."""

    def __init__(self, keys: GroupKeys, pads: Pads) -> None:
        """Raises `SealError` where keys and pads belong to different rosters or the CKKS key is malformed."""
        if keys.group != pads.group:
            msg = "keys and pads belong to different rosters; take both from the same key package"
            raise SealError(msg)
        self._ckks = CkksKey.from_bytes(keys.ckks)
        self._pads = pads
        self._used: set[str] = set()

    def seal(self, kind: Kind, integers: NDArray[np.int64], label: Label) -> bytes:
        """Seal a vector of integers under a label that was never used.

        Raises `SealError` for a used label, another type or shape, or a value above `max_value`.
        """
        if integers.ndim != 1 or integers.dtype != np.int64:
            msg = "a vector of int64 is sealed; convert it first"
            raise SealError(msg)
        bound = max_value(kind, len(self._pads.names))
        if integers.size and (integers.max() > bound or integers.min() < -bound):
            msg = "a value to be sealed could overflow in the roster's sum; lower the study's bound or coarsen its grid"
            raise SealError(msg)
        if label.digest in self._used:
            msg = "this label was used already: resend the stored upload, or begin a new attempt"
            raise SealError(msg)
        self._used.add(label.digest)
        if kind == "ckks":
            return mask_ckks(self._ckks.encrypt(integers), label, self._pads)
        return seal_ring(integers.astype(np.int32), label, self._pads)

    def open(
        self, kind: Kind, total: bytes, values: int, label: Label, roster_names: Sequence[str]
    ) -> NDArray[np.int64]:
        """Open the sum of the whole roster; `values` integers.

        Raises `OpeningRefused` where the sum is over other silos than this roster's or is no sum of integers in
        range, `FrameError` for malformed bytes.
        """
        if tuple(sorted(roster_names)) != self._pads.names:
            msg = "the sum is not over this silo's roster, so its masks cannot cancel; begin a new attempt"
            raise OpeningRefused(msg)
        if len(total) != content_size(kind, values):
            msg = "the sum has another length than the study gives it; fetch it again"
            raise FrameError(msg)
        if kind == "ckks":
            return self._ckks.decrypt(total, values)
        opened = open_ring(total, label, roster_names, self._pads.group)
        return opened.view(np.int32).astype(np.int64)

    def __repr__(self) -> str:
        return "Sealer(secret)"
