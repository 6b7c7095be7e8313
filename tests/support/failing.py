"""A machine that lacks something at a chosen moment: the n-th write of this process fails once, as the system fails it.

Moments are those of `failpoints`: before a file is opened for writing, synced, renamed or linked, before a commit of a
database, and before an entry of a ledger.
"""

from __future__ import annotations

import errno
import inspect
import os
import sqlite3
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy.engine.default import DefaultDialect

from policies.errors import LedgerShortError
from policies.ledger.store import LedgerFile
from support.failpoints import WATCHED, _writes

ERRORS = (errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.EIO)


class FailingWrites:
    """Counts the writes of this process; the one of this number (none for 0), and those that follow, fails."""

    def __init__(self, number: int, *, times: int = 1, spare: Collection[str] = ()) -> None:
        self.passed, self.failed = 0, 0
        self._fatal = range(number, number + times) if number else range(0)
        self._spare, self._lock = spare, threading.Lock()

    def here(self, owner: object, name: str) -> None:
        """One write: raise if it is to fail."""
        if self._spare and _within(self._spare):
            return
        with self._lock:
            self.passed += 1
            if self.passed not in self._fatal:
                return
            self.failed += 1
        if owner is DefaultDialect:
            msg = "database or disk is full"
            raise sqlite3.OperationalError(msg)
        if owner is LedgerFile:
            msg = "the ledger's disk is full"
            raise LedgerShortError(msg)
        number = ERRORS[self.passed % len(ERRORS)]
        raise OSError(number, os.strerror(number), "/of/ours")


@contextmanager
def failing_writes(number: int, *, times: int = 1, spare: Collection[str] = ()) -> Iterator[FailingWrites]:
    """Within it, the writes of this number and those that follow it fail; none that a function of these names makes."""
    failing = FailingWrites(number, times=times, spare=spare)
    with pytest.MonkeyPatch.context() as bent:
        for owner, name in WATCHED:
            bent.setattr(owner, name, _around(failing, owner, name))
        yield failing


def _within(names: Collection[str]) -> bool:
    frame = inspect.currentframe()
    while frame is not None and frame.f_code.co_name not in names:
        frame = frame.f_back
    return frame is not None


def _around(failing: FailingWrites, owner: Any, name: str) -> Any:
    real = getattr(owner, name)

    def around(*arguments: Any, **named: Any) -> Any:
        if name != "open" or _writes(*arguments[1:2], **named):
            failing.here(owner, name)
        return real(*arguments, **named)

    return around
