"""How many calls one certificate may have in flight. Pure counting, safe to share between threads.

An honest silo has three calls in flight: it waits for work or does its task, it waits for checkpoints, and it says that
it is alive. After a broken connection the calls of the old one may stay for as long as the keepalive needs.
"""

from __future__ import annotations

import threading
from collections import Counter
from typing import TypeVar

_Key = TypeVar("_Key")

CALLS = 8
"""Most calls of one certificate at once."""
LONG_CALLS = 2
"""Most calls of one certificate at once of one method that waits or streams."""
LONG = frozenset(
    {"Poll", "Witness", "Countersign", "LatestCountersignatures", "Upload", "Download", "GetResults", "GetAuditLog"}
)


class Seats:
    """The calls in flight, by caller and method."""

    def __init__(self, calls: int = CALLS, long_calls: int = LONG_CALLS) -> None:
        self._calls, self._long_calls = calls, long_calls
        self._guard = threading.Lock()
        self._taken: Counter[str] = Counter()
        self._by_method: Counter[tuple[str, str]] = Counter()

    def take(self, caller: str, method: str) -> bool:
        """Count a call that begins. Return False, and count nothing, if the caller has too many."""
        with self._guard:
            crowded = method in LONG and self._by_method[caller, method] >= self._long_calls
            if crowded or self._taken[caller] >= self._calls:
                return False
            self._taken[caller] += 1
            self._by_method[caller, method] += 1
            return True

    def leave(self, caller: str, method: str) -> None:
        """Count a call that has ended."""
        with self._guard:
            _give_back(self._taken, caller)
            _give_back(self._by_method, (caller, method))

    def taken(self, caller: str) -> int:
        """Return how many calls a caller has in flight."""
        with self._guard:
            return self._taken[caller]


def _give_back(counts: Counter[_Key], key: _Key) -> None:
    """Count one less. Who has no call left is not kept."""
    if counts[key] > 1:
        counts[key] -= 1
    else:
        del counts[key]
