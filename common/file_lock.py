"""Exclusive locks on files, which keep processes of one machine apart.

Guarantees: of all who hold the same file open, in whatever process, one at a time has its lock. The kernel frees a lock
when its file is closed, and so when its holder dies: nothing has to be cleaned up. A lock file stays where it is. If it
were deleted, two processes could hold locks on two different files. What a lock protects is left to others.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from common.durable import give_to_owner

_Open = int | IO[bytes] | IO[str]
"""An open file, or its descriptor."""


def lock(file: _Open) -> None:
    """Wait until nobody else has the lock of an open file, and take it until the file is closed. Raises OSError."""
    fcntl.flock(file, fcntl.LOCK_EX)


def lock_at_once(file: _Open) -> None:
    """`lock` that does not wait. Raises BlockingIOError if somebody else has the lock, OSError."""
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextmanager
def one_at_a_time(path: Path) -> Iterator[None]:
    """Wait until nobody else is in here with this lock file, and keep others out meanwhile. Raises OSError.

    The file is made if it is not there, and so is its folder, both for their owner alone.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    held = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    with os.fdopen(held, "wb"):
        give_to_owner(held, path.parent)
        lock(held)
        yield
