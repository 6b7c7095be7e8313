"""Adds sealed contributions frame by frame: homomorphically for CKKS, mod 2^32 or 2^64 for integers, always blindly.

Memory is one frame of the sum and one of a contribution, whatever the model's size. Every frame is checked before it
is added, and every contribution is hashed as it is read. If this machine's disk has altered a contribution since it was
received, the error names the silo. The sum gets its final name only when all of it is on disk, so a contribution that
fails leaves no trace in any sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

from coordinator.errors import CoordinatorError
from crypto.errors import FrameError
from crypto.rings.adding import added
from crypto.rings.rings import ring_of
from protos.chunks import ChunkHasher


class ContentAlteredError(CoordinatorError):
    """Bytes on the coordinator's disk are not the bytes that were uploaded. The message names the silos."""


class _Hashed:
    """Reads a file and hashes what is read."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._hasher = file, ChunkHasher()

    def read(self, size: int) -> bytes:
        data = self._file.read(size)
        self._hasher.update(data)
        return data

    @property
    def digest(self) -> str:
        return self._hasher.digest


def check_content(path: Path, kind: str) -> None:
    """Refuse a file that is not a sequence of well-formed frames of this ring. Raises `FrameError`; OSError."""
    ring = ring_of(kind)
    with path.open("rb") as file:
        while frame := file.read(ring.frame_bytes):
            ring.read(frame)


def add_contents(paths: Sequence[Path], digests: Sequence[str], kind: str, target: Path) -> None:
    """Write the sum of `paths`, which have these digests (`protos.chunks`), to `target`.

    Raises `FrameError` (also if their sizes differ), `ContentAlteredError` and OSError.
    """
    if 0 in (sizes := {path.stat().st_size for path in paths}) or len(sizes) != 1:
        msg = "contributions that are added must have the same size; let the silos send theirs again"
        raise FrameError(msg)
    with ExitStack() as stack:
        files = [_Hashed(stack.enter_context(path.open("rb"))) for path in paths]
        frames = added(kind, files)
        target.parent.mkdir(parents=True, exist_ok=True)
        out = stack.enter_context(target.open("wb"))
        for frame in frames:
            out.write(frame)
    altered = [path.stem for path, file, known in zip(paths, files, digests, strict=True) if file.digest != known]
    if altered:
        msg = (
            f"the contribution of {', '.join(altered)} was altered on the coordinator's disk; check the disk. The next"
            " attempt asks for the contribution again"
        )
        raise ContentAlteredError(msg)
