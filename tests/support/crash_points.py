"""Kills the process it runs in before or after its n-th durable write: what a power cut does, at a chosen moment.

A durable write is a synced file, a committed transaction that changed something, or a ledger entry. Every one is noted
in a file first, so that an undisturbed run tells how many there are and what they were.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from sqlalchemy import Engine, event
from sqlalchemy.engine.default import DefaultDialect


@dataclass(frozen=True)
class Crash:
    """When to die: before or after the write of this number, from 1."""

    when: Literal["before", "after"]
    number: int


class CrashPoints:
    """Counts the durable writes of this process and dies at one of them, after the process that started it if asked."""

    def __init__(self, notes: Path, crash: Crash | None, *, with_parent: bool = False) -> None:
        self._notes, self._crash = notes, crash
        self._victims = [os.getppid] * with_parent + [os.getpid]
        self._count = 0
        self._guard = threading.Lock()

    def install(self) -> None:
        """Stand between the program and its disk, for the life of the process."""
        os.fsync = self._counted(os.fsync, lambda handle: f"sync {_name(handle)}")  # type: ignore[assignment]  # the same, counted
        self._watch_transactions()
        from policies.ledger.store import LedgerFile  # noqa: PLC0415  # only once the counting is in place

        LedgerFile.append = self._counted(LedgerFile.append, lambda *_: "ledger")  # type: ignore[method-assign]  # the same, counted

    def _watch_transactions(self) -> None:
        changed: set[int] = set()

        @event.listens_for(Engine, "before_cursor_execute")
        def _(connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
            if statement.lstrip()[:6].upper() in ("INSERT", "UPDATE", "DELETE"):
                changed.add(id(connection.connection.dbapi_connection))

        commit = DefaultDialect.do_commit

        def do_commit(dialect: Any, connection: Any) -> None:
            key = id(connection.dbapi_connection)
            if key in changed:
                changed.discard(key)
                self._counted(commit, lambda *_: "commit")(dialect, connection)
            else:
                commit(dialect, connection)

        DefaultDialect.do_commit = do_commit  # type: ignore[method-assign]  # the same, counted

    def _counted(self, write: Callable[..., Any], label: Callable[..., str]) -> Callable[..., Any]:
        def counted(*arguments: Any) -> Any:
            with self._guard:
                self._count += 1
                number = self._count
                with self._notes.open("a", encoding="utf-8") as file:
                    file.write(label(*arguments) + "\n")
            self._die(Crash("before", number))
            result = write(*arguments)
            self._die(Crash("after", number))
            return result

        return counted

    def _die(self, moment: Crash) -> None:
        if moment == self._crash:
            for victim in self._victims:
                os.kill(victim(), signal.SIGKILL)


def _name(handle: int) -> str:
    """Of a synced file or folder, without what differs from run to run."""
    path = Path(f"/proc/self/fd/{handle}").readlink()
    return path.name.split("-")[0].split(".")[0][:24]
