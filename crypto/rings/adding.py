"""Adds sealed contributions frame by frame, blindly: the coordinator does it, and silos that add its uploads again.

Guarantees: every frame is checked before it is added. In memory lie one frame of the sum and one of a contribution.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from crypto.errors import FrameError
from crypto.rings.rings import Ring, ring_of


class Readable(Protocol):
    """What is read in parts."""

    def read(self, size: int, /) -> bytes:
        """Return the next bytes: `size` of them, fewer at the end."""
        ...


def added(kind: str, contents: Sequence[Readable]) -> Iterator[bytes]:
    """Yield the frames of the sum of contents of equal size, in order. Raises `FrameError`, also if sizes differ."""
    return _frames(ring_of(kind), contents)


def _frames(ring: Ring, contents: Sequence[Readable]) -> Iterator[bytes]:
    while True:
        first, *others = [content.read(ring.frame_bytes) for content in contents]
        if any(len(other) != len(first) for other in others):
            msg = "contributions that are added must have the same size; let the silos send theirs again"
            raise FrameError(msg)
        if not first:
            return
        total = ring.read(first)
        for other in others:
            ring.add(total, ring.read(other))
        yield ring.write(total)
