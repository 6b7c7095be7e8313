"""The writer's seat: at most one process writes a ledger.

Guarantees: a second holder, in this or another process on the machine, is refused at once and by name; the kernel
frees the seat when its holder dies, so nothing has to be cleaned up. Left to others: what is done on the seat.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from policies.errors import LedgerBusyError, LedgerWriteError


class WriterLock:
    """An exclusive flock on a file of its own beside the ledger: SQLite's locks on the ledger file stay untouched."""

    def __init__(self, path: Path) -> None:
        """Take the seat. Raises `LedgerBusyError` where it is taken, `LedgerWriteError` where it cannot be made."""
        try:
            self._file: int | None = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            msg = f"the ledger's lock file cannot be opened ({error.strerror}); give the agent's user its folder"
            raise LedgerWriteError(msg) from None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._file)
            msg = "the ledger is held by another process; stop the other agent of this data set first"
            raise LedgerBusyError(msg) from None

    def leave(self) -> None:
        """Free the seat; again does nothing. The lock file stays: without it two processes could hold two files."""
        if self._file is not None:
            # Once only: the kernel may have given the number to another file since.
            os.close(self._file)
            self._file = None
