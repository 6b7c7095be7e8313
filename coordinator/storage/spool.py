"""Sealed bytes on disk: partial uploads, complete uploads and sums, each with the list of its chunks beside it.

Guarantees: bytes appear under their final name only when they are complete, checked and synced. File names come from
validated identifiers, never from a peer's text. Partial uploads and lists are not synced. Both can be checked against
the content's digest, and are made again if a power cut destroyed them. This module does not know what the bytes mean.

All files lie below a folder that has the epoch of the coordinator's lease as its name. Who takes over gives it the name
of the new epoch: whatever a former coordinator still writes or deletes, it does where nobody looks.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Collection
from pathlib import Path
from typing import Final

from common.durable import put_in_place
from common.os_errors import explained
from coordinator.errors import CoordinatorError
from coordinator.storage.closing import close_to_others
from coordinator.storage.shortage import Shortage, ShortError
from protos.chunks import ChunkList
from protos.messages import MAX_CHUNK, MessageError, Place

SUM_FILE = "_sum"
"""The sum's file has this name in place of a silo's. No silo can have it."""
_DIGEST_DIGITS: Final = 64


class SpoolError(CoordinatorError):
    """The spool cannot be used. The message says why."""


class SpoolFullError(ShortError):
    """The disk has no room. Everything stored before is intact. The silo resumes as soon as there is room."""

    def __init__(self, error: OSError) -> None:
        self.shortage = Shortage("disk", explained(error))
        super().__init__("the coordinator's spool has no room; free space below its data folder, then resume")


class Spool:
    """Files below `<root>/<epoch>/<study>/<round>-<attempt>/<slot>/`."""

    def __init__(self, root: Path, epoch: int) -> None:
        """Take over a folder, which is open to its owner alone from now on. `epoch` is that of the lease.

        Raises `SpoolError`, OSError.
        """
        close_to_others(root)
        self._root = _taken_over(root, epoch)
        self._own: set[Path] = set()
        """Partial uploads that nobody else can have open."""

    @property
    def used(self) -> int:
        """Bytes of all its files. Files that go meanwhile count nothing. Raises OSError."""
        return sum(_size(path) for path in self._root.rglob("*"))

    @property
    def free(self) -> int:
        """Bytes that are free on its disk."""
        return shutil.disk_usage(self._root).free

    def partial(self, place: Place, slot: str, silo: str) -> Path:
        """Return the path of an upload that is still growing."""
        return self._folder(place) / slot / f"{silo}.partial"

    def complete(self, place: Place, slot: str, silo: str) -> Path:
        """Return the path of a complete upload, or of the sum (`SUM_FILE`)."""
        return self._folder(place) / slot / f"{silo}.sealed"

    def chunks(self, place: Place, slot: str, silo: str) -> Path:
        """Return the path of the list of an upload's chunks. It exists from the first byte of the upload on."""
        return self._folder(place) / slot / f"{silo}.chunks"

    def length(self, path: Path) -> int:
        """Return the number of bytes stored so far; 0 if there is no file."""
        return path.stat().st_size if path.exists() else 0

    def append(self, path: Path, offset: int, data: bytes) -> None:
        """Write at `offset`, which must be the current length. Raises `SpoolFullError`."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if not offset:
                self._own.add(path)
            with path.open("ab") as file:
                if file.tell() != offset:
                    msg = f"offset {offset} is not the length {file.tell()}"
                    raise ValueError(msg)
                file.write(data)
        except OSError as error:
            raise _full_or(error) from error

    def claim(self, path: Path) -> None:
        """Have nobody else write into a partial upload: a former coordinator may have it open. Raises OSError."""
        if path in self._own or not path.exists():
            return
        fresh = path.with_name(path.name + ".claimed")
        try:
            shutil.copyfile(path, fresh)
        except OSError as error:
            raise _full_or(error) from error
        fresh.replace(path)
        self._own.add(path)

    def cut(self, path: Path, length: int) -> None:
        """Cut the file to `length` bytes."""
        if self.length(path) > length:
            os.truncate(path, length)

    def keep_chunk_list(self, path: Path, chunks: ChunkList) -> None:
        """Store a list in place of any other. Raises `SpoolFullError`."""
        fresh = path.with_name(path.name + ".new")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            fresh.write_bytes(chunks.to_bytes())
            fresh.replace(path)
        except OSError as error:
            raise _full_or(error) from error

    def chunk_list(self, path: Path) -> ChunkList | None:
        """Return the stored list, or None if there is none or it was cut. The caller checks whether it is right."""
        try:
            return ChunkList.from_bytes(path.read_bytes())
        except (FileNotFoundError, MessageError):
            return None

    def publish(self, partial: Path, complete: Path) -> None:
        """Give a finished file its final name, durably."""
        self._own.discard(partial)
        try:
            put_in_place(partial, complete)
        except OSError as error:
            raise _full_or(error) from error

    def discard(self, path: Path) -> None:
        """Delete a file, if it exists."""
        self._own.discard(path)
        path.unlink(missing_ok=True)

    def probe(self) -> None:
        """Write, sync and delete a file of one chunk. Raises OSError, `SpoolFullError` if that cannot be done now."""
        partial = self._root / "probe.partial"
        try:
            partial.write_bytes(bytes(MAX_CHUNK))
            self.publish(partial, self._root / "probe")
        except OSError as error:
            raise _full_or(error) from error
        finally:
            for name in ("probe.partial", "probe"):
                self.discard(self._root / name)

    def clear(self, place: Place) -> None:
        """Delete all sealed bytes of an attempt."""
        self._remove(self._folder(place))

    def sweep(self, kept: Collection[Place]) -> None:
        """Delete all attempts but these. A crash between storing an attempt's end and clearing it leaves such files."""
        folders = {self._folder(place) for place in kept}
        for folder in self._root.glob("*/*"):
            if folder not in folders:
                self._remove(folder)

    def _remove(self, folder: Path) -> None:
        self._own = {path for path in self._own if folder not in path.parents}
        shutil.rmtree(folder, ignore_errors=True)

    def _folder(self, place: Place) -> Path:
        return self._root / place.study / f"{place.round}-{place.attempt}"


def _taken_over(root: Path, epoch: int) -> Path:
    """Give the files of the epoch before the name of this one, and delete what is of others. Raises `SpoolError`."""
    own = root / str(epoch)
    folders = [one for one in root.iterdir() if one.is_dir()]
    epochs = sorted((one for one in folders if one.name.isdigit() and len(one.name) < _DIGEST_DIGITS), key=_epoch)
    if epochs and _epoch(epochs[-1]) > epoch:
        msg = (
            f"{root} was used under epoch {epochs[-1].name}, and the lease of the database has {epoch}; is it another?"
        )
        raise SpoolError(msg)
    if epochs and epochs[-1] != own:
        epochs[-1].rename(own)
    for left in epochs[:-1]:  # what a former coordinator wrote after it was left behind
        shutil.rmtree(left, ignore_errors=True)
    own.mkdir(exist_ok=True)
    for study in folders:
        if len(study.name) == _DIGEST_DIGITS:  # versions up to 0.6 knew no epochs
            study.rename(own / study.name)
    return own


def _size(path: Path) -> int:
    try:
        found = path.stat()
    except FileNotFoundError:
        return 0
    return found.st_size if stat.S_ISREG(found.st_mode) else 0


def _epoch(folder: Path) -> int:
    return int(folder.name)


def _full_or(error: OSError) -> Exception:
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return SpoolFullError(error)
    return error
