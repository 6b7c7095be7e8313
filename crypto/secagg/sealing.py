"""The two operations of a silo: seal integers, and open a sum. One protocol for three rings.

Guarantees: all output of `seal` is masked. A `Sealer` uses a label only once. It seals nothing that could overflow in a
sum of the whole study. `open` gives a sum only if the sum holds every survivor exactly once and nobody else, and is the
sum of what they sealed (`checks`). Both hold one frame in memory, whatever the length. The durable record of labels,
budgets and rounds are left to the silo, and the secrets of masks to `unmasking`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from crypto.errors import FrameError, OpeningRefused, SealError
from crypto.rings.ckks_secret import CkksKey
from crypto.rings.rings import IntegerRing, Kind, Ring, ring_of
from crypto.secagg.checks import LinearChecks
from crypto.secagg.labels import SumLabel
from crypto.secagg.layout import sealed_values
from crypto.secagg.masks import Masks, Term, Unmasking, apply
from crypto.secagg.packages import GroupKeys

Integers = NDArray[np.int64] | NDArray[np.int32]


class Sealer:
    """One silo's keys under one roster. `repr` prints only its kind."""

    def __init__(self, me: str, keys: GroupKeys, members: Sequence[str]) -> None:
        """Take the names of all silos of the study (`members`). Each has a slot in every vector.

        Raises `SealError` if this silo is none of them, if one is named twice, or if the CKKS key is malformed.
        """
        if me not in members or len(set(members)) != len(members):
            msg = "the study's list of silos must name each silo once, and this silo too; check the study"
            raise SealError(msg)
        self._me = me
        self._keys = keys
        self._members = tuple(sorted(members))
        self._ckks = CkksKey.from_bytes(keys.ckks)
        self._used: set[str] = set()

    def seal(self, kind: Kind, integers: Integers, label: SumLabel, masks: Masks) -> Iterator[bytes]:
        """Check a vector of integers, seal it under a label that was never used, and yield its frames in order.

        The vector may be a file (numpy's memmap) that does not change until the last frame has been yielded. Raises
        `SealError` before the first frame: for a used label, another type or shape, a value above the ring's `limit`,
        or masks of another silo, roster or study.
        """
        ring = ring_of(kind)
        if integers.ndim != 1 or integers.dtype not in (np.int64, np.int32):
            msg = "only a vector of int64 or int32 can be sealed; convert it first"
            raise SealError(msg)
        if masks.me != self._me or masks.group != self._keys.group or not set(masks.pairs) <= set(self._members):
            msg = "the masks are not this silo's under this roster; agree on keys again"
            raise SealError(msg)
        limit = ring.limit(len(self._members))
        if any(part.max() > limit or part.min() < -limit for part in _parts(ring, integers)):
            msg = "a value to be sealed could overflow in the study's sum; lower the study's bound or coarsen its grid"
            raise SealError(msg)
        if label.digest in self._used:
            msg = "this label was used before; resend the stored upload, or begin a new attempt"
            raise SealError(msg)
        self._used.add(label.digest)
        return self._sealed(ring, integers, label, masks.terms(label, kind))

    def open(  # noqa: PLR0917  # what is opened, then the target
        self,
        kind: Kind,
        source: BinaryIO,
        values: int,
        label: SumLabel,
        unmasking: Unmasking,
        target: NDArray[np.int64] | None = None,
    ) -> NDArray[np.int64]:
        """Open the sum that lies in a seekable file from its current position to its end.

        Returns `values` integers, in `target` if it is given. Raises `FrameError` if the sum has another size (before
        anything is read) or malformed frames. Raises `OpeningRefused` if it is no sum in range, does not hold every
        survivor exactly once and nobody else, or was changed; the content of `target` then means nothing. Raises
        `SealError` if `target` has another type or shape.
        """
        opened = np.empty(values, dtype=np.int64) if target is None else target
        if opened.shape != (values,) or opened.dtype != np.int64:
            msg = f"the sum has {values} values; give a vector of {values} int64 as the target"
            raise SealError(msg)
        try:
            self._open(ring_of(kind), source, opened, label, unmasking)
        except (FrameError, OpeningRefused) as refusal:
            msg = f"{label.tensor} of round {label.round}, attempt {label.attempt}: {refusal}"
            raise type(refusal)(msg) from refusal
        return opened

    def _sealed(self, ring: Ring, integers: Integers, label: SumLabel, terms: Sequence[Term]) -> Iterator[bytes]:
        slots = np.array([name == self._me for name in self._members], dtype=np.int64)
        checks = LinearChecks(self._keys.check, ring.kind, label)
        rest = np.empty(0, dtype=np.int64)
        for part in _parts(ring, integers):
            plain: NDArray[np.int64] = part.astype(np.int64, copy=False)
            checks.update(plain)
            if plain.size < ring.frame_values:
                rest = plain
            else:
                yield self._cover(ring, plain, terms)
        checks.update(slots)
        rest = np.concatenate([rest, slots, checks.limbs()])
        for begin in range(0, rest.size, ring.frame_values):
            yield self._cover(ring, rest[begin : begin + ring.frame_values], terms)

    def _cover(self, ring: Ring, plain: NDArray[np.int64], terms: Sequence[Term]) -> bytes:
        words: NDArray[np.unsignedinteger]
        words = plain.astype(ring.word) if isinstance(ring, IntegerRing) else self._ckks.encrypt(plain)
        apply(ring, words, terms)
        return ring.write(words)

    def _open(
        self, ring: Ring, source: BinaryIO, opened: NDArray[np.int64], label: SumLabel, unmasking: Unmasking
    ) -> None:
        if unmasking.group != self._keys.group or not set(unmasking.own) <= set(self._members):
            msg = "the survivors do not belong to this roster and study; begin a new attempt"
            raise OpeningRefused(msg)
        values, size = opened.size, sealed_values(opened.size, len(self._members))
        _require_size(source, ring.content_size(size))
        terms = unmasking.terms(label, ring.kind)
        checks = LinearChecks(self._keys.check, ring.kind, label)
        tail = np.empty(size - values, dtype=np.int64)
        for begin in range(0, size, ring.frame_values):
            plain = self._uncover(ring, source, min(ring.frame_values, size - begin), terms)
            # Everything after the values belongs to the tail.
            inside = min(plain.size, max(0, values - begin))
            opened[begin : begin + inside] = plain[:inside]
            tail[begin + inside - values :][: plain.size - inside] = plain[inside:]
            checks.update(plain[:inside])
        slots, limbs = np.split(tail, [len(self._members)])
        self._require_survivors(slots, unmasking)
        checks.update(slots)
        checks.require(limbs)

    def _uncover(self, ring: Ring, source: BinaryIO, count: int, terms: Sequence[Term]) -> NDArray[np.int64]:
        words = ring.read(source.read(ring.content_size(count)))
        apply(ring, words, terms)
        if not isinstance(ring, IntegerRing):
            return self._ckks.decrypt(words, count)
        plain = words.view(f"<i{ring.word.itemsize}").astype(np.int64)
        if plain.size != count or plain.max() > ring.max_sum or plain.min() < -ring.max_sum:
            raise OpeningRefused(_UNMASKED_TO_NOISE)
        return plain

    def _require_survivors(self, slots: NDArray[np.int64], unmasking: Unmasking) -> None:
        if slots.min() < 0 or slots.max() > len(self._members):
            raise OpeningRefused(_UNMASKED_TO_NOISE)
        faults = []
        for name, times in zip(self._members, slots.tolist(), strict=True):
            survives = name in unmasking.own
            if times != survives:
                fault = "foreign" if not survives else "doubled" if times else "missing"
                faults.append(f"{name} {times} times ({fault})")
        if faults:
            msg = f"the sum holds {', '.join(faults)}; begin a new attempt"
            raise OpeningRefused(msg)

    def __repr__(self) -> str:
        return "Sealer(secret)"


_UNMASKED_TO_NOISE = (
    "the masks do not cancel: an upload is missing, is counted twice, was made for another roster, model, round or"
    " attempt, or was changed; begin a new attempt"
)


def _parts(ring: Ring, vector: Integers) -> Iterator[Integers]:
    """Yield the vector's values in parts, one for each frame."""
    for begin in range(0, vector.size, ring.frame_values):
        yield vector[begin : begin + ring.frame_values]


def _require_size(source: BinaryIO, size: int) -> None:
    here = source.tell()
    bytes_left = source.seek(0, os.SEEK_END) - here
    source.seek(here)
    if bytes_left != size:
        msg = f"the sum has {bytes_left} bytes, but must have {size} in this study; fetch it again"
        raise FrameError(msg)
