"""How long a round has been without each silo that it needs, and who is missed too long.

If a list of survivors was given out in a round, no other silo can stand in for one of the list. Time in which the round
is offered or waits, and in which such a silo has no seat, is counted for this silo alone, over all attempts at the
round. So nobody is taken as gone because of others, and nobody holds up a round longer by coming and going. Pauses do
not count. The count ends with the round, or when the list binds nobody any more.

Pure: the clock comes in as an argument.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from coordinator.core.state import Phase, Round

LISTED_DAYS: Final = 30
LISTED_SECONDS: Final = LISTED_DAYS * 86400.0
"""Longest time for which a round is without one silo of its list, all its absences together."""
NOTICE_SECONDS: Final = 86400.0
"""What is left of it at least when the coordinator begins again: nobody could come back while it was down."""


@dataclass(frozen=True)
class Missed:
    """How long a round has been without one silo of its list."""

    silo: str
    seconds: float = 0.0
    """Its earlier absences together."""
    since: float | None = None
    """The time at which its current absence began; None while it has a seat."""

    def total(self, now: float) -> float:
        """Return its absences together, with the current one."""
        return self.seconds + (0.0 if self.since is None else now - self.since)


def counted(before: tuple[Missed, ...], round_: Round | None, now: float) -> tuple[Missed, ...]:
    """Return the counts after a change of the round: whoever has no seat is missed from now on, if not yet."""
    if round_ is None or not round_.required:
        return ()
    without = round_.unanswered if round_.phase in (Phase.OFFER, Phase.WAIT) else ()
    held = {one.silo: one for one in before}
    counts = (held.get(name, Missed(name)) for name in round_.required)
    return tuple(_begun(one, now) if one.silo in without else _stopped(one, now) for one in counts)


def _begun(one: Missed, now: float) -> Missed:
    return replace(one, since=now) if one.since is None else one


def _stopped(one: Missed, now: float) -> Missed:
    return one if one.since is None else Missed(one.silo, one.total(now))


def stood(counts: tuple[Missed, ...], begin: float, now: float) -> tuple[Missed, ...]:
    """Return the counts without the time from `begin` to `now`, in which nobody could come back."""
    return tuple(one if one.since is None else replace(one, since=now - max(begin - one.since, 0.0)) for one in counts)


def noticed(counts: tuple[Missed, ...], now: float) -> tuple[Missed, ...]:
    """Return the counts with `NOTICE_SECONDS` left at least for everybody who is missed."""
    most = LISTED_SECONDS - NOTICE_SECONDS
    return tuple(
        one if one.since is None or one.total(now) <= most else Missed(one.silo, most, since=now) for one in counts
    )


def until(counts: tuple[Missed, ...]) -> tuple[tuple[str, float], ...]:
    """Return by when each silo that is missed must be back; after that it has left for good."""
    return tuple((one.silo, one.since + LISTED_SECONDS - one.seconds) for one in counts if one.since is not None)


def gone(counts: tuple[Missed, ...], now: float) -> tuple[str, ...]:
    """Return the silos that have not come back in time."""
    return tuple(silo for silo, time in until(counts) if now >= time)
