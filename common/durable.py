"""The one durable write of both programs: a file is complete under its name and survives a power cut, or it is absent.

Guarantees: the content is synced before the file gets its name, and the folder is synced afterwards. So once a write
has returned, the file is there after any crash, and nobody ever finds a part of it.

The caller decides what the bytes are, and ensures that only one process writes a name at a time.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Self


def write_whole(path: Path, content: bytes) -> None:
    """Write a file durably, completely or not at all, readable by its owner alone. Raises OSError."""
    write_pieces(path, (content,))


def write_pieces(path: Path, pieces: Iterable[bytes]) -> None:
    """`write_whole` for content that comes in pieces. If a piece raises, nothing is left behind. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    fresh = path.with_name(path.name + ".new")
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        give_to_owner(handle, path.parent)
        with _Placed(handle, path) as file:
            for piece in pieces:
                file.write(piece)
        put_in_place(fresh, path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise


def give_to_owner(handle: int, folder: Path) -> None:
    """If the administrator writes into the folder of a service's user, let the file belong to that user."""
    owner = folder.stat()
    if os.geteuid() == 0 and owner.st_uid != 0:
        os.fchown(handle, owner.st_uid, owner.st_gid)


class _Placed:
    """An open file whose errors say which file was written, how far it came, and how much room there is."""

    def __init__(self, handle: int, path: Path) -> None:
        self._file, self._path, self._bytes = os.fdopen(handle, "wb"), path, 0

    def __enter__(self) -> Self:
        return self

    def write(self, piece: bytes) -> None:
        """Append bytes. Raises OSError."""
        self._bytes += len(piece)
        try:
            self._file.write(piece)
        except OSError as error:
            raise self._placed(error) from None

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self._file.close()
        except OSError as error:
            if kind is None:
                raise self._placed(error) from None

    def _placed(self, error: OSError) -> OSError:
        free = shutil.disk_usage(self._path.parent).free
        said = f"{error.strerror}, while {self._bytes} bytes were written; {free} bytes are free there"
        return OSError(error.errno, said, str(self._path))


def write_new(path: Path, content: bytes) -> None:
    """Write a file durably under a name that is free, completely or not at all. Raises FileExistsError and OSError.

    The finished file gets its name by a link, which fails if the name is taken, even if it was taken just now.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with _Placed(handle, path) as file:
            file.write(content)
        _sync(Path(name))
        os.link(name, path)
    finally:
        Path(name).unlink()
    sync_folder(path.parent)


def write_over(path: Path, content: bytes) -> None:
    """Write a file that others may read, in the place of any. It is not synced. Raises OSError that names the file."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    with _Placed(handle, path) as file:
        file.write(content)


def put_in_place(fresh: Path, path: Path) -> None:
    """Give a finished file its name, replacing any file of that name in the same folder. Raises OSError."""
    _sync(fresh)
    fresh.replace(path)
    sync_folder(path.parent)


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def sync_file(file: IO[bytes] | IO[str]) -> None:
    """Put what was written into an open file on the disk. For files that are appended to. Raises OSError."""
    file.flush()
    os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable. Raises OSError."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_folder(folder: Path, contents: Mapping[str, bytes]) -> tuple[Path, ...]:
    """Write files by name into a folder that appears whole or not at all, each readable by its owner alone.

    The folder must not exist, or be empty. Raises FileExistsError and OSError.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FileExistsError(errno.EEXIST, "is there already and is never overwritten; give a new folder", str(folder))
    folder.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    try:
        for name, content in contents.items():
            write_whole(made / name, content)
        made.replace(folder)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise
    sync_folder(folder.parent)
    return tuple(folder / name for name in sorted(contents))
