"""The one durable write of both programs: a file is whole under its name and survives a power cut, or is not there.

Guarantees: content is synced before it gets its name, and the folder is synced after; so whoever has returned from here
finds the file after any crash, and nobody ever finds a part of it.

It lies beside the ledger, which stands or falls with it, because both programs may import `policies`. The floors forbid
this to `crypto`, whose `pki.key_files` makes each file once and never replaces it: that is a write of another kind, and
has its own folder sync. What the bytes are, and that only one process writes a name at a time, is the caller's.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path


def write_whole(path: Path, content: bytes) -> None:
    """Write a file completely or not at all, durably, readable by its owner alone. Raises OSError."""
    write_pieces(path, (content,))


def write_pieces(path: Path, pieces: Iterable[bytes]) -> None:
    """`write_whole` for content that comes in pieces. What they raise leaves no trace."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    fresh = path.with_name(path.name + ".new")
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            for piece in pieces:
                file.write(piece)
        put_in_place(fresh, path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise


def put_in_place(fresh: Path, path: Path) -> None:
    """Give a finished file its name, in place of what had it. Both lie in one folder. Raises OSError."""
    with fresh.open("rb") as file:
        os.fsync(file.fileno())
    fresh.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make durable which files lie in a folder. Raises OSError."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
