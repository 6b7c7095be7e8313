"""Takes a process's open files away for some seconds, from a chosen write on, by the system's own limit."""

from __future__ import annotations

import os
import resource
import threading
from dataclasses import dataclass
from pathlib import Path

_FIRST = 3
"""With so low a limit no file can be opened that is not standard input or output."""


@dataclass(frozen=True)
class Starving:
    """From the durable write of this number on, for so many seconds, no file and no socket can be opened."""

    number: int
    seconds: float
    note: Path
    """Is made when the limit is lifted again."""

    def install(self) -> None:
        """Stand between the program and its disk, for the life of the process."""
        real, lock = os.fsync, threading.Lock()
        passed = 0

        def counted(handle: int) -> None:
            nonlocal passed
            with lock:
                passed += 1
                if passed == self.number:
                    self._starve()
            real(handle)

        os.fsync = counted  # type: ignore[assignment]  # the same, counted

    def _starve(self) -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (_FIRST, hard))

        def feed() -> None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            self.note.touch()

        timer = threading.Timer(self.seconds, feed)
        timer.daemon = True
        timer.start()
