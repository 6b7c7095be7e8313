"""Which silos have called, and when. It is stored now and then, so a restart forgets no silence.

Guarantees: nothing here waits for the engine's lock, so a silo's call is noted at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet

from coordinator.metrics import CoordinatorMetrics
from coordinator.storage.store import Store

STORED_SECONDS = 30.0
"""How often it is stored which silos have called."""


class Presence:
    """When each silo was last heard, and whose certificate was revoked since."""

    def __init__(self, store: Store, metrics: CoordinatorMetrics, clock: Callable[[], float]) -> None:
        """`clock`: seconds since the epoch. What was stored counts, as after a restart."""
        self._store, self._metrics, self._clock = store, metrics, clock
        self._heard = store.seen()
        self._stored = dict(self._heard)
        self._due = 0.0
        self._cut_off: set[str] = set()
        for silo, at in self._heard.items():
            metrics.last_seen.labels(silo).set(at)

    @property
    def heard(self) -> Mapping[str, float]:
        """When each silo last called, in seconds since the epoch."""
        return self._heard

    @property
    def cut_off(self) -> AbstractSet[str]:
        """Silos whose certificates were revoked since they last called."""
        return self._cut_off

    def called(self, silo: str) -> None:
        """Note that a silo has called."""
        self._heard[silo] = self._clock()
        self._cut_off.discard(silo)
        self._metrics.last_seen.labels(silo).set(self._heard[silo])

    def revoked(self, silos: Iterable[str]) -> None:
        """Note that these silos' certificates count no more."""
        self._cut_off.update(silos)

    def store(self) -> None:
        """Store which silos have called since, if it is time. It is tried again later if the database raises."""
        if (now := time.monotonic()) < self._due:
            return
        self._due = now + STORED_SECONDS
        called = {silo: at for silo, at in self._heard.copy().items() if self._stored.get(silo) != at}
        if called:
            self._store.see(called)
            self._stored |= called
