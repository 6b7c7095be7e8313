"""Kill -9 at a chosen moment around a process's durable writes, many lives a second.

A life is a function that runs in a forked process and says what it has done; what it said before it died must hold
after it. Numbered are the moments before and after a file is opened for writing (which empties it), synced, renamed or
linked, before and after every commit of the databases, and before every statement of a ledger's transaction. Moments
inside SQLite's own commit are not: for those a limit on the size of files kills in the middle of a write (`torn`).
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sqlalchemy.engine.default import DefaultDialect

from policies.ledger.ledger import Ledger
from policies.ledger.store import LedgerFile

Say = Callable[[str], None]
WATCHED = (
    (os, "open"),
    (Path, "open"),
    (os, "fsync"),
    (os, "link"),
    (Path, "replace"),
    (DefaultDialect, "do_commit"),
    (LedgerFile, "append"),
)
"""What writes, and what makes durable: of files, of the agent's and the coordinator's database, of the ledger."""
_WRITING = os.O_WRONLY | os.O_RDWR
END = "points"
FAULT = "fault"


class Failpoints:
    """Counts the moments of this process, and kills it at one of them; at none where `fatal` is 0."""

    def __init__(self, fatal: int) -> None:
        self.passed, self._fatal = 0, fatal

    def here(self, *_: object) -> None:
        """One of them."""
        self.passed += 1
        if self.passed == self._fatal:
            os.kill(os.getpid(), signal.SIGKILL)

    def install(self) -> None:
        """Stand around every durable write, for the rest of this process's life."""
        for owner, name in WATCHED:
            self._around(owner, name)

    def watch(self, ledger: Ledger) -> None:
        """Before every statement of its transactions too."""
        ledger._store._connection.set_trace_callback(self.here)

    def _around(self, owner: Any, name: str) -> None:
        real = getattr(owner, name)

        def around(*arguments: Any, **named: Any) -> Any:
            if name == "open" and not _writes(*arguments[1:2], **named):
                return real(*arguments, **named)
            self.here()
            done = real(*arguments, **named)
            self.here()
            return done

        setattr(owner, name, around)


def _writes(mode: int | str = "r", **_: object) -> bool:
    return bool(mode & _WRITING) if isinstance(mode, int) else mode[0] in "wax"


def run(live: Callable[[Failpoints, Say], None], fatal: int = 0) -> list[str]:
    """A life in a process of its own; what it said, the number of moments last where it did not die."""

    def whole(say: Say) -> None:
        failpoints = Failpoints(fatal)
        failpoints.install()
        live(failpoints, say)
        say(f"{END} {failpoints.passed}")

    return _forked(whole)


def torn(live: Callable[[Say], None], limit: int) -> list[str]:
    """A life that is killed where it writes to a file beyond so many bytes; what it said."""

    def whole(say: Say) -> None:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        live(say)

    return _forked(whole)


def points(said: list[str]) -> int:
    """How many moments an undisturbed life had."""
    assert said[-1].startswith(END), said
    return int(said[-1].split()[1])


def _forked(live: Callable[[Say], None]) -> list[str]:
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside threads that sleep
        child = os.fork()
    if child == 0:
        os.close(reading)

        def say(text: str) -> None:
            os.write(writing, f"{text}\n".encode())

        try:
            live(say)
        except BaseException as error:  # noqa: BLE001 - whatever it was, the test is to hear of it
            with contextlib.suppress(OSError):
                say(f"{FAULT} {error!r}")
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        said = pipe.read().splitlines()
    os.waitpid(child, 0)
    assert not any(line.startswith(FAULT) for line in said), said
    return said
