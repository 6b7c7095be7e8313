"""Sealed bytes on disk: partial uploads, complete uploads, sums, and the list of each one's chunks beside it.

Guarantees: bytes appear under their final name only when they are complete, checked and synced; names come from
validated identifiers, never from a peer's text. Neither a partial upload nor a list is synced: both can be checked
against the content's digest, and are made anew where a power cut has taken them. What the bytes mean is unknown here.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Collection
from pathlib import Path

from coordinator.errors import CoordinatorError
from policies.durable import put_in_place
from protos.chunks import ChunkList
from protos.messages import MessageError, Place

SUM_FILE = "_sum"
"""Whose file the sum is: a name that no silo can bear."""


class SpoolFullError(CoordinatorError):
    """The disk has no room. What was stored before is intact; the silo resumes when there is room."""


class Spool:
    """Files below `<root>/<study>/<round>-<attempt>/<slot>/`."""

    def __init__(self, root: Path) -> None:
        self._root = root
        root.mkdir(parents=True, exist_ok=True)

    def partial(self, place: Place, slot: str, silo: str) -> Path:
        """Where an upload grows."""
        return self._folder(place) / slot / f"{silo}.partial"

    def complete(self, place: Place, slot: str, silo: str) -> Path:
        """Where a complete upload, or the sum (`SUM_FILE`), lies."""
        return self._folder(place) / slot / f"{silo}.sealed"

    def chunks(self, place: Place, slot: str, silo: str) -> Path:
        """Where the list of its chunks lies, from the first byte on."""
        return self._folder(place) / slot / f"{silo}.chunks"

    def length(self, path: Path) -> int:
        """Bytes stored so far; 0 where nothing is."""
        return path.stat().st_size if path.exists() else 0

    def append(self, path: Path, offset: int, data: bytes) -> None:
        """Write at `offset`, which must be the current length. Raises `SpoolFullError`."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("ab") as file:
                if file.tell() != offset:
                    msg = f"offset {offset} is not the length {file.tell()}"
                    raise ValueError(msg)
                file.write(data)
        except OSError as error:
            raise _full_or(error) from error

    def cut(self, path: Path, length: int) -> None:
        """Forget what lies behind `length`."""
        if self.length(path) > length:
            os.truncate(path, length)

    def keep_chunk_list(self, path: Path, chunks: ChunkList) -> None:
        """Keep a list in place of another. Raises `SpoolFullError`."""
        fresh = path.with_name(path.name + ".new")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            fresh.write_bytes(chunks.to_bytes())
            fresh.replace(path)
        except OSError as error:
            raise _full_or(error) from error

    def chunk_list(self, path: Path) -> ChunkList | None:
        """The list that was kept, None where none is or it was cut. The caller compares it with what it is to be."""
        try:
            return ChunkList.from_bytes(path.read_bytes())
        except (FileNotFoundError, MessageError):
            return None

    def publish(self, partial: Path, complete: Path) -> None:
        """Give a finished file its final name, durably."""
        try:
            put_in_place(partial, complete)
        except OSError as error:
            raise _full_or(error) from error

    def discard(self, path: Path) -> None:
        """Forget a file, present or not."""
        path.unlink(missing_ok=True)

    def clear(self, place: Place) -> None:
        """Forget all sealed bytes of an attempt."""
        shutil.rmtree(self._folder(place), ignore_errors=True)

    def sweep(self, kept: Collection[Place]) -> None:
        """Forget all attempts but these: what a crash left between storing an attempt's end and clearing it."""
        folders = {self._folder(place) for place in kept}
        for folder in self._root.glob("*/*"):
            if folder not in folders:
                shutil.rmtree(folder, ignore_errors=True)

    def _folder(self, place: Place) -> Path:
        return self._root / place.study / f"{place.round}-{place.attempt}"


def _full_or(error: OSError) -> Exception:
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return SpoolFullError("the coordinator's spool has no room; free space below its data folder, then resume")
    return error
