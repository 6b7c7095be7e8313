"""Adds sealed contributions frame by frame: homomorphic for CKKS, mod 2^32 or 2^64 for integers, blind for all.

Memory is one frame of the sum and one of a contribution, whatever the model's size. Every frame is checked before it
is added, and every contribution hashed as it is read: one that this machine's disk has altered since it was taken in is
named. The sum is published under its name only when all of it is on disk, so a contribution that fails leaves no trace
in any sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from coordinator.errors import CoordinatorError
from crypto.errors import FrameError
from crypto.rings.rings import ring_of
from protos.chunks import ChunkHasher


class ContentAlteredError(CoordinatorError):
    """What lies on the coordinator's disk is not what was uploaded. Names whose it was."""


def check_content(path: Path, kind: str) -> None:
    """Refuse a file that is not a sequence of well-formed frames of this ring. Raises `FrameError`; OSError."""
    ring = ring_of(kind)
    with path.open("rb") as file:
        while frame := file.read(ring.frame_bytes):
            ring.read(frame)


def add_contents(paths: Sequence[Path], digests: Sequence[str], kind: str, target: Path) -> None:
    """Write the sum of `paths`, which have these digests (`protos.chunks`), to `target`.

    Raises `FrameError`, also where their sizes differ; `ContentAlteredError`; OSError.
    """
    ring = ring_of(kind)
    if 0 in (sizes := {path.stat().st_size for path in paths}) or len(sizes) != 1:
        msg = "contributions that are added have one size; let the silos send theirs again"
        raise FrameError(msg)
    with ExitStack() as stack:
        files = [stack.enter_context(path.open("rb")) for path in paths]
        target.parent.mkdir(parents=True, exist_ok=True)
        out = stack.enter_context(target.open("wb"))
        hashers = [ChunkHasher() for _ in files]
        while first := files[0].read(ring.frame_bytes):
            hashers[0].update(first)
            total = ring.read(first)
            for file, hasher in zip(files[1:], hashers[1:], strict=True):
                frame = file.read(len(first))
                hasher.update(frame)
                ring.add(total, ring.read(frame))
            out.write(ring.write(total))
    altered = [path.stem for path, hasher, known in zip(paths, hashers, digests, strict=True) if hasher.digest != known]
    if altered:
        msg = (
            f"what {', '.join(altered)} sent was altered on the coordinator's disk; look after the disk, the next"
            " attempt asks for it again"
        )
        raise ContentAlteredError(msg)
