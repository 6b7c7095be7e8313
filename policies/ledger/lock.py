"""The writer's lock: at most one process writes a ledger.

Guarantees: a second holder, in this or another process on the machine, is refused at once with its own error. Left to
others: what the holder does.
"""

from __future__ import annotations

import os
from pathlib import Path

from common.file_lock import lock_at_once
from policies.errors import LedgerBusyError, LedgerWriteError


class WriterLock:
    """The lock of a separate file beside the ledger. SQLite's locks on the ledger file are not affected."""

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
            lock_at_once(self._file)
        except OSError:
            os.close(self._file)
            msg = "the ledger is held by another process; stop the other agent of this data set first"
            raise LedgerBusyError(msg) from None

    def leave(self) -> None:
        """Free the lock. Leaving again does nothing."""
        if self._file is not None:
            # Close it only once: the kernel may have given the descriptor's number to another file since.
            os.close(self._file)
            self._file = None
