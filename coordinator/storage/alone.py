"""At most one coordinator uses a folder of data: two would write into one spool and one database.

Guarantees: a second one is refused at once, by name. The kernel frees the lock when its holder dies.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from coordinator.errors import CoordinatorError

LOCK_FILE = "lock"


class FolderBusyError(CoordinatorError):
    """Another coordinator uses the folder."""


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Hold an exclusive flock on a file in the folder. Raises `FolderBusyError`, OSError.

    The file stays, so that two never lock two different files.
    """
    with (folder / LOCK_FILE).open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            msg = f"{folder} is used by another coordinator; stop that one, or give another `data` in coordinator.yaml"
            raise FolderBusyError(msg) from None
        yield
