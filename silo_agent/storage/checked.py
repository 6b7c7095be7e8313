"""Files that later rounds read, each with its digest beside it, so that a damaged one is found before a charge.

Guarantees: `read_checked` returns what `write_checked` was given last, byte for byte, or raises. A crash between its
writes does no harm: what may be there is written first (the content before, or that there was none, and the content to
come), and once the file is there, its own digest alone. A file without a digest was written by version 0.6 and is taken
as it is. The digests are plain, because whoever holds them holds the file, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Final

from silo_agent.storage.durable import write_whole
from silo_agent.storage.errors import LocalFileError
from silo_agent.storage.own_files import own_files

_SUFFIX: Final = ".sha256"
_ABSENT: Final = "absent"
"""Stands for the digest of a file that need not be there: its first content is about to be written."""


def digests_of(path: Path) -> Path:
    """The file with the digests of a checked file."""
    return path.with_name(path.name + _SUFFIX)


def write_checked(path: Path, content: bytes) -> None:
    """Replace a file durably; a crash leaves the content before or this one, and either is read. Raises OSError."""
    with own_files():
        held = _digest(path.read_bytes()) if path.exists() else _ABSENT
        # What is damaged or lost already does not become right by this.
        before = [held] if _fits(path, held) else []
    digest = _digest(content)
    write_whole(digests_of(path), "\n".join([*before, digest]).encode())
    write_whole(path, content)
    write_whole(digests_of(path), digest.encode())


def read_checked(path: Path) -> bytes:
    """The content of a checked file. Raises `LocalFileError` if it is gone or not what was written; `ShortageError`."""
    try:
        with own_files():
            content = path.read_bytes()
            fits = _fits(path, _digest(content))
    except FileNotFoundError:
        raise LocalFileError(_lost(path, "is gone")) from None
    if not fits:
        raise LocalFileError(_lost(path, "is damaged"))
    return content


def checked_files(folder: Path) -> Iterator[Path]:
    """The checked files of a folder, in order of name: those that are lost too, but none that was not yet written."""
    for digests in sorted(folder.glob(f"*{_SUFFIX}")):
        path = digests.with_name(digests.name.removesuffix(_SUFFIX))
        if path.exists() or not _fits(path, _ABSENT):
            yield path


def _fits(path: Path, digest: str) -> bool:
    digests = digests_of(path)
    return not digests.exists() or digest in digests.read_text("ascii", "replace").split()


def _digest(content: bytes) -> str:
    return sha256(content).hexdigest()


def _lost(path: Path, what: str) -> str:
    return f"{path} {what}; restore it from a backup of the state folder"
