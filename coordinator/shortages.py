"""What this machine lacks at the moment, and when it is tried again: after waits that grow while it goes on lacking.

Guarantees: a shortage uses up no attempt and no silo's time. While one stands, the engine lets no time pass for the
studies that it concerns. The log says it once for every wait, with file, cause and fix. A shortage counts as over only
if nothing was short for the whole of the last wait; one that comes back soon goes on with the wait that it had.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import structlog

from coordinator.metrics import CoordinatorMetrics
from coordinator.storage.shortage import Shortage, shortage_of

log = structlog.get_logger()
WAITS: Final = (0.5, 1.0, 2.0, 5.0, 10.0, 15.0)
"""Seconds until a shortage is looked at again. The last is longer than a silo's longest pause between two tries."""
STEADY_SECONDS: Final = 60.0
"""A shortage that comes back within this time goes on with its former wait."""
MACHINE: Final = ""
"""The key of what concerns all studies. Other keys are digests of studies whose sums cannot be made."""


@dataclass
class _Spell:
    """One shortage, or one that was over not long ago (`ended`)."""

    shortage: Shortage
    since: float
    times: int = 0
    due: float = 0.0
    ended: float | None = None


class Shortages:
    """All shortages of one coordinator. Safe to share between threads."""

    def __init__(self, metrics: CoordinatorMetrics, clock: Callable[[], float] = time.monotonic) -> None:
        self._metrics, self._clock = metrics, clock
        self._lock = threading.Lock()
        self._spells: dict[str, _Spell] = {}

    def note(self, error: BaseException, key: str = MACHINE) -> Shortage | None:
        """Note what an error says is lacking; return it, or None if the error says something else."""
        shortage = shortage_of(error)
        if shortage is None:
            return None
        now = self._clock()
        with self._lock:
            spell = self._spells.get(key)
            if spell is None or (spell.ended is not None and now - spell.ended > STEADY_SECONDS):
                spell = self._spells[key] = _Spell(shortage, now)
            fresh = spell.ended is not None or not spell.times
            if spell.ended is not None:
                spell.since, spell.ended = now, None
            # Many calls may fail at once: the wait grows once for each time that it has passed.
            longer = fresh or now >= spell.due
            if longer:
                spell.times = min(spell.times + 1, len(WAITS))
            wait = WAITS[spell.times - 1]
            spell.shortage, spell.due = shortage, now + wait
            self._measure()
        if fresh:
            self._metrics.shortages.labels(shortage.lack).inc()
        if longer:
            study = key[:12] or None
            log.error("the machine is short", lack=shortage.lack, why=shortage.told, study=study, again_in=wait)
        return shortage

    def due(self) -> list[str]:
        """Return the keys whose wait is over: try again what failed."""
        now = self._clock()
        with self._lock:
            return [key for key, spell in self._spells.items() if spell.ended is None and spell.due <= now]

    def over(self, key: str = MACHINE) -> None:
        """Note that what failed has been done, or is not wanted any more."""
        now = self._clock()
        with self._lock:
            spell = self._spells.get(key)
            if spell is None or spell.ended is not None:
                return
            spell.ended = now
            self._measure()
        log.info("the machine is no longer short", lack=spell.shortage.lack, after=round(now - spell.since, 1))

    def standing(self, study: str) -> Shortage | None:
        """Return what keeps a study from going on now; None if nothing does."""
        with self._lock:
            spells = (self._spells.get(key) for key in (MACHINE, study))
            return next((spell.shortage for spell in spells if spell is not None and spell.ended is None), None)

    def _measure(self) -> None:
        self._metrics.short.set(sum(spell.ended is None for spell in self._spells.values()))
