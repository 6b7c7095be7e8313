"""Masks and pads that leave one silo's upload meaningless and the roster's sum intact. Silos only.

Guarantees: each upload is covered by key stream that the coordinator, even with every silo but two of the roster,
cannot know; the pair masks of a roster cancel in the sum, bit for bit; the group pads, one per silo, hide even the
sum of the integer ring until a silo takes them off (design: sealed-sums.md, layers 2 and 4). Leaves it to the silo's
durable store that no label is used twice: two uploads under one label would leak their difference.

One key stream per (secret, label), drawn frame by frame in order.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from crypto import ckks_public, ring
from crypto.agreement import PairSecrets
from crypto.canonical import canonical
from crypto.errors import FrameError, SealError
from crypto.labels import Label
from crypto.stream import KEY_BYTES, KeyStream


@dataclass(frozen=True)
class Pads:
    """One silo's secrets for masking under one roster. Prints only its kind."""

    me: str
    pairs: PairSecrets = field(repr=False)
    group: bytes = field(repr=False)
    """32 bytes that every silo of the roster knows."""

    def __post_init__(self) -> None:
        if self.me in self.pairs or not self.pairs or len(self.group) != KEY_BYTES:
            msg = "masks need a secret with every other silo of the roster, and a group key; agree on keys again"
            raise SealError(msg)

    @property
    def names(self) -> tuple[str, ...]:
        """The roster, sorted."""
        return tuple(sorted((self.me, *self.pairs)))

    def pair_streams(self, purpose: str, label: Label) -> list[tuple[bool, KeyStream]]:
        """For every other silo: whether this one adds (it comes first by name), and the stream both know."""
        info = canonical("pair mask", purpose, label.canonical())
        return [(self.me < other, KeyStream(secret, info)) for other, secret in self.pairs.items()]


def seal_ring(values: NDArray[np.int32] | NDArray[np.uint32], label: Label, pads: Pads) -> bytes:
    """Cover values mod 2^32 with the pair masks and this silo's own group pad; `ring.content_size` bytes.

    Raises `SealError` for an array that is not one-dimensional int32 or uint32.
    """
    if values.ndim != 1 or values.dtype not in (np.int32, np.uint32):
        msg = "the integer ring seals a vector of 32-bit integers; convert and range-check it first"
        raise SealError(msg)
    covered = np.array(values, dtype=values.dtype.newbyteorder("<")).view("<u4")
    streams = [*pads.pair_streams("ring", label), (True, _group_stream(pads.group, label, pads.me))]
    _apply(covered, streams)
    return covered.tobytes()


def open_ring(total: bytes, label: Label, roster_names: Iterable[str], group: bytes) -> NDArray[np.uint32]:
    """Take every silo's group pad off a sum. Raises `FrameError` unless it has whole words.

    A sum that is not the whole roster's, or was sealed under other labels, opens to noise.
    """
    if len(total) % ring.VALUE_BYTES:
        msg = "a sum of the integer ring has whole words; fetch it again"
        raise FrameError(msg)
    opened = np.frombuffer(total, dtype="<u4").copy()
    _apply(opened, [(False, _group_stream(group, label, name)) for name in roster_names])
    return opened.astype(np.uint32, copy=False)


def mask_ckks(frames: bytes, label: Label, pads: Pads) -> bytes:
    """Add pair masks, uniform mod the data prime, to c0 of every ciphertext frame.

    The masks protect a silo's ciphertext even from holders of the CKKS key; in the roster's sum they cancel. Raises
    `FrameError` for malformed frames.
    """
    if len(frames) % ckks_public.FRAME_BYTES:
        msg = "ciphertexts come in whole frames; encrypt the vector again"
        raise FrameError(msg)
    masked = np.frombuffer(frames, dtype="<u8").reshape(-1, ckks_public.FRAME_WORDS).copy()
    streams = pads.pair_streams("ckks", label)
    prime = np.uint64(ckks_public.PRIME)
    for frame in masked:
        ckks_public.check_frame(frame.tobytes())
        c0 = frame[: ckks_public.DEGREE]
        for adds, stream in streams:
            mask = stream.uniform(ckks_public.PRIME, ckks_public.DEGREE)
            # Minus a mask is the prime minus it, but minus zero is zero.
            ckks_public.add_residues(c0, mask if adds else (prime - mask) % prime)
    return masked.tobytes()


def _group_stream(group: bytes, label: Label, silo: str) -> KeyStream:
    return KeyStream(group, canonical("group pad", silo, label.canonical()))


def _apply(words: NDArray[np.uint32], streams: list[tuple[bool, KeyStream]]) -> None:
    for begin in range(0, words.size, ring.FRAME_VALUES):
        frame = words[begin : begin + ring.FRAME_VALUES]
        for adds, stream in streams:
            pad = stream.words32(frame.size)
            (np.add if adds else np.subtract)(frame, pad, out=frame)
