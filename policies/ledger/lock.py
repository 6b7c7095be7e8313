"""The writer's lock: at most one process writes a ledger.

Guarantees: a second holder, in this or another process on the machine, is refused at once with its own error. The
kernel frees the lock when its holder dies, so nothing has to be cleaned up. Left to others: what the holder does.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from policies.errors import LedgerBusyError, LedgerWriteError


class WriterLock:
    """An exclusive flock on a separate file beside the ledger. SQLite's locks on the ledger file are not affected."""

    def __init__(self, path: Path) -> None:
        """Take the lock. Raises `LedgerBusyError` if it is taken, `LedgerWriteError` if its file cannot be opened."""
        try:
            self._file: int | None = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            msg = (
                f"the ledger's lock file cannot be opened ({error.strerror}); let the agent's user write the ledger's"
                " folder"
            )
            raise LedgerWriteError(msg) from None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._file)
            msg = "the ledger is held by another process; stop the other agent of this data set first"
            raise LedgerBusyError(msg) from None

    def leave(self) -> None:
        """Free the lock. Leaving again does nothing.

        The lock file stays. If it were deleted, two processes could hold locks on two different files.
        """
        if self._file is not None:
            # Close it only once: the kernel may have given the descriptor's number to another file since.
            os.close(self._file)
            self._file = None
