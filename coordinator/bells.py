"""Who waits for news, by name. Whoever has news for a name rings; nobody else is woken.

A waiting silo is woken when there is something for it to do, and not at each of the hundreds of events of a round. What
is rung for is looked up by whoever hears. So a bell that rings once too often does no harm, and one that rings before
anybody listens is missed: whoever begins to listen looks once more afterwards.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

Hear = Callable[[], object]
"""Called in the thread that rings, perhaps under its locks: it must neither wait nor raise."""


class Bells:
    """Those who listen. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listening: dict[str, list[Hear]] = {}

    def listen(self, name: str, hear: Hear) -> Callable[[], None]:
        """Have `hear` called at each ring for `name`, until the function is called that this returns."""
        with self._lock:
            self._listening.setdefault(name, []).append(hear)

        def leave() -> None:
            with self._lock:
                left = [one for one in self._listening.get(name, ()) if one is not hear]
                if left:
                    self._listening[name] = left
                else:
                    self._listening.pop(name, None)

        return leave

    def ring(self, names: Iterable[str]) -> None:
        """Call those who listen for these names."""
        with self._lock:
            hearers = [hear for name in names for hear in self._listening.get(name, ())]
        for hear in hearers:
            hear()
