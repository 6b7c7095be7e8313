"""Spans of the phases and attempts that end at this coordinator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from protos.messages import Place
from protos.status import PhaseTime
from protos.tracing import Spans

_MOST: Final = 10_000


class RoundTraces:
    """Makes spans of what the engine has stored."""

    def __init__(self, spans: Spans, now: Callable[[], float]) -> None:
        """`now` is the engine's clock, in seconds since the epoch."""
        self._spans, self._now = spans, now
        self._begun: dict[Place, float] = {}
        """When the attempts under way began, as far as this process knows."""

    def ended(self, place: Place, times: Sequence[PhaseTime], outcome: str | None) -> None:
        """Take the phases of an attempt that have ended, and the attempt's outcome if it is over."""
        now = self._now()
        for time_ in times:
            begin = now - time_.seconds
            if len(self._begun) < _MOST:
                self._begun.setdefault(place, begin)
            self._spans.part(place, time_.phase, begin, now, time_.tensor)
        if outcome is not None:
            self._spans.attempt(place, self._begun.pop(place, now), now, outcome)
