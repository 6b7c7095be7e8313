"""At most one coordinator uses a folder of data: two would write into one spool and one database.

Guarantees: a second one is refused at once, by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from common.file_lock import lock_at_once
from coordinator.errors import CoordinatorError

LOCK_FILE = "lock"


class FolderBusyError(CoordinatorError):
    """Another coordinator uses the folder."""


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Hold the lock of a file in the folder. Raises `FolderBusyError`, OSError."""
    with (folder / LOCK_FILE).open("a") as file:
        try:
            lock_at_once(file)
        except BlockingIOError:
            msg = f"{folder} is used by another coordinator; stop that one, or give another `data` in coordinator.yaml"
            raise FolderBusyError(msg) from None
        yield
