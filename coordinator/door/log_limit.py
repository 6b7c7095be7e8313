"""Few log lines for each caller: whoever is refused a thousand times a second must not fill the disk with them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

LINES = 20
"""Lines of one caller in one span. Metrics count everything."""
SPAN_SECONDS = 60.0
_MOST = 1024


class LogLimit:
    """Says whether a line about a caller is logged. Safe to share between threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._spans: dict[str, tuple[float, int]] = {}

    def allows(self, caller: str) -> bool:
        """Count a line about a caller, and return whether it is one of the first in this span."""
        now = self._clock()
        with self._lock:
            since, lines = self._spans.get(caller, (now, 0))
            if now - since >= SPAN_SECONDS:
                since, lines = now, 0
            if len(self._spans) >= _MOST:
                self._spans.clear()
            self._spans[caller] = (since, lines + 1)
        return lines < LINES
