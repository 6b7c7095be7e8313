"""The log lines that gRPC's core writes to the process's stderr by itself, taken from there.

gRPC has no other way to its lines, and says there alone that a TLS handshake failed. So the process's file descriptor 2
becomes a pipe. Lines in gRPC's form are parsed; all others go on to where stderr led before, unchanged. Python's own
`sys.stderr` leads there too, so nothing that this program says takes the way through the pipe.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

_LINE: Final = re.compile(r"(?P<level>[IWEF])\d{4} [\d:.]+ +\d+ (?P<where>\S+)\] (?P<text>.*)")
_LEVELS: Final = {"I": "info", "W": "warning", "E": "error", "F": "critical"}
_HANDSHAKE: Final = "Handshake failed"
_LETTERS: Final = 500
_JOIN_SECONDS: Final = 2.0


@dataclass(frozen=True)
class CoreLine:
    """One line of gRPC's core."""

    level: str
    """info, warning, error or critical."""
    where: str
    """File and line in gRPC's source."""
    text: str

    @property
    def failed_handshake(self) -> bool:
        """Whether somebody's TLS handshake failed: no certificate, one of another authority, or no TLS at all."""
        return self.text.startswith(_HANDSHAKE)


def parse(line: str) -> CoreLine | None:
    """A line as gRPC's core writes it, without its end; None for any other. Its text is cut at 500 letters."""
    match = _LINE.fullmatch(line)
    if match is None:
        return None
    return CoreLine(_LEVELS[match["level"]], match["where"], match["text"][:_LETTERS])


class Diverted:
    """Lines that wait to be told to somebody, as many as a pipe holds."""

    def __init__(self, reading: int, before: int) -> None:
        self._reading, self._before = reading, before
        self._thread: threading.Thread | None = None

    def tell(self, told: Callable[[CoreLine], None]) -> None:
        """Tell every line of gRPC's core from now on, from a thread of its own. Call at most once."""
        self._thread = threading.Thread(target=self._pass_on, args=(told,), name="grpc-log", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Pass on what is left. The pipe's writing end is closed."""
        if self._thread is None:
            self.tell(_nobody)
        if self._thread is not None:
            self._thread.join(_JOIN_SECONDS)

    def _pass_on(self, told: Callable[[CoreLine], None]) -> None:
        with os.fdopen(self._reading, "rb") as lines:
            for raw in lines:
                line = parse(raw.decode(errors="backslashreplace").rstrip("\n"))
                if line is None:
                    with suppress(OSError):  # nobody reads it any more
                        os.write(self._before, raw)
                else:
                    told(line)


def _nobody(line: CoreLine) -> None:
    del line


@contextmanager
def diverted() -> Iterator[Diverted]:
    """Divert the process's stderr. Set logs up inside, on `sys.stderr`, which leads where it did before."""
    before, kept = os.dup(2), sys.stderr
    reading, writing = os.pipe()
    sys.stderr = os.fdopen(os.dup(2), "w", buffering=1, errors="backslashreplace")
    os.dup2(writing, 2)
    os.close(writing)
    lines = Diverted(reading, before)
    try:
        yield lines
    finally:
        sys.stderr = kept
        os.dup2(before, 2)
        lines.end()
        os.close(before)
