"""Adds sealed contributions frame by frame: homomorphic for CKKS, mod 2^32 for the ring, blind for both.

Memory is one frame of the sum and one of a contribution, whatever the model's size. Every frame is checked before it
is added; the sum is published under its name only when all of it is on disk, so a contribution that fails leaves no
trace in any sum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from crypto import ckks_public, ring
from crypto.errors import FrameError
from protos.messages import Tensor


@dataclass(frozen=True)
class Ring:
    """The public side of one ring: frame size, check and addition."""

    content_size: Callable[[int], int]
    frame_bytes: int
    check: Callable[[bytes], None]
    add: Callable[[bytearray, bytes], None]


RINGS = {
    "ckks": Ring(ckks_public.content_size, ckks_public.FRAME_BYTES, ckks_public.check_frame, ckks_public.add_frames),
    "ring": Ring(ring.content_size, ring.FRAME_VALUES * 4, ring.check_frame, ring.add_frames),
}


def ring_of(tensor: Tensor) -> Ring:
    """The ring in which a tensor is summed."""
    return RINGS[tensor.ring]


def check_content(path: Path, tensor: Tensor) -> None:
    """Refuse a file that is not a sequence of well-formed frames. Raises `crypto.errors.FrameError`."""
    its_ring = ring_of(tensor)
    with path.open("rb") as file:
        while frame := file.read(its_ring.frame_bytes):
            its_ring.check(frame)


def add_contents(paths: Sequence[Path], tensor: Tensor, target: Path) -> None:
    """Write the sum of `paths` to `target`. Raises `FrameError`, also where their sizes differ; OSError."""
    its_ring = ring_of(tensor)
    if 0 in (sizes := {path.stat().st_size for path in paths}) or len(sizes) != 1:
        msg = "contributions that are added have one size; let the silos send theirs again"
        raise FrameError(msg)
    files = [path.open("rb") for path in paths]
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb") as out:
            while first := files[0].read(its_ring.frame_bytes):
                its_ring.check(first)
                total = bytearray(first)
                for file in files[1:]:
                    frame = file.read(len(first))
                    its_ring.check(frame)
                    its_ring.add(total, frame)
                out.write(total)
    finally:
        for file in files:
            file.close()
