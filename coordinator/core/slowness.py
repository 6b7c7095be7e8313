"""How much waiting each silo has cost a study, and what follows: a budget of slowness.

Silence cannot be proven: that a silo was late is this coordinator's word. So nothing here excludes a silo for good, and
nothing here goes below the number of silos that must take part. Waiting for a silo beyond what is neutral comes out of
its budget, which is as long as one round of the study may last. Whose budget is spent is not waited for beyond what is
neutral any more. A silo at whose silence `LOST` attempts have ended is not asked; every `FADES` committed rounds
without another such attempt, one of them is forgotten. The operator may forgive all of it.

Neutral is twice the time that most of those asked needed, and at least a share of the phase's limit. As long as fewer
than half have answered, nobody is slow. A silo that acts alone may take a larger share of the limit.

Pure: seconds come in.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from coordinator.core.state import Phase, PhaseLimits, Round

LOST: Final = 2
"""So many attempts may end at one silo's silence before the others go on without it."""
FADES: Final = 2
"""After so many committed rounds one of these attempts is forgotten."""
FREE: Final = 0.05
"""The share of a phase's limit that is never slow."""
ALONE: Final = 0.25
"""The same where one silo acts for all, and nobody else's time says what is usual."""


@dataclass(frozen=True)
class Taken:
    """What one silo has cost the study."""

    silo: str
    seconds: float = 0.0
    """Seconds of waiting beyond what was neutral."""
    attempts: int = 0
    """Attempts that ended at its silence, as far as they are remembered."""
    since: int = 0
    """Committed rounds since the last of them, or since one was forgotten."""


@dataclass(frozen=True)
class Act:
    """A silo has done its part of the current phase, so many seconds after it began."""

    silo: str
    seconds: float


@dataclass(frozen=True)
class Slowness:
    """The memory of one study."""

    taken: tuple[Taken, ...] = ()
    acts: tuple[Act, ...] = ()
    """Who has acted in the current phase."""

    def of(self, silo: str) -> Taken:
        """Return what a silo has taken."""
        return self._by_name.get(silo) or Taken(silo)

    def with_taken(self, changed: Iterable[Taken]) -> Slowness:
        """Return the memory with these entries in place of the ones before."""
        held = {one.silo: one for one in (*self.taken, *changed)}
        return replace(self, taken=tuple(held[name] for name in sorted(held)))

    @cached_property
    def _by_name(self) -> dict[str, Taken]:
        return {one.silo: one for one in self.taken}


def budget(limits: PhaseLimits, tensors: Sequence[int]) -> float:
    """Return the seconds of each silo: as long as the study's longest round may last. `tensors`: sums of each round."""
    before = limits.offer + 4 * limits.keys + 2 * limits.open
    each = 2 * limits.train + 3 * limits.open + 2 * limits.solve
    return before + max(tensors, default=1) * each


def neutral(state: Round, acts: Sequence[Act]) -> float:
    """Return the seconds after which a silo of the current phase is slow; infinite as long as nobody can tell."""
    limit = state.limits.of(state.phase)
    asked = {one.silo for one in acts}.union(state.waiting_for)
    if not asked:
        return math.inf  # the coordinator itself is at work
    if len(asked) == 1:
        return ALONE * limit
    times = sorted(one.seconds for one in acts)
    middle = math.ceil(len(asked) / 2)
    return max(2 * times[middle - 1], FREE * limit) if len(times) >= middle else math.inf


def patience(slowness: Slowness, state: Round, most: float) -> float:
    """Return how many seconds the current phase may last, if each silo that it waits for may take `most` in all."""
    left = [max(most - slowness.of(name).seconds, 0.0) for name in state.waiting_for]
    return neutral(state, slowness.acts) + max(left, default=math.inf)


def observed(slowness: Slowness, before: Round, after: Round, now: float, *, most: float, silent: bool) -> Slowness:
    """Return the memory after an event has changed a round.

    `silent`: the event was that time had passed, or that a silo had lost its keys. Then it is this event that ended the
    attempt at those that the round names.
    """
    elapsed, waited = max(now - before.since, 0.0), before.waiting_for
    ended = _stand(before) != _stand(after)
    if not ended:
        still = frozenset(after.waiting_for)
        waited = tuple(name for name in waited if name not in still)
    acts = (*slowness.acts, *(Act(name, elapsed) for name in waited))
    if not ended:
        return replace(slowness, acts=acts)
    usual = neutral(before, acts) if acts else math.inf
    late = [one for one in acts if one.seconds > usual]
    charged = [
        replace(slowness.of(one.silo), seconds=min(slowness.of(one.silo).seconds + one.seconds - usual, most))
        for one in late
    ]
    following = replace(slowness.with_taken(charged), acts=())
    if silent and after.phase is Phase.ABORTED:
        lost = [following.of(name) for name in after.culprits]
        following = following.with_taken(replace(one, attempts=one.attempts + 1, since=0) for one in lost)
    return following


def _stand(state: Round) -> tuple[object, ...]:
    return state.place, state.phase, state.cursor, state.actor, state.since


def committed(slowness: Slowness) -> Slowness:
    """Return the memory after another committed round: what is old enough fades."""

    def older(one: Taken) -> Taken:
        if not one.attempts:
            return one
        if one.since + 1 < FADES:
            return replace(one, since=one.since + 1)
        return replace(one, attempts=one.attempts - 1, since=0)

    return replace(slowness, taken=tuple(map(older, slowness.taken)))


def forgiven(slowness: Slowness, silo: str) -> Slowness:
    """Return the memory without what one silo has taken."""
    return replace(slowness, taken=tuple(one for one in slowness.taken if one.silo != silo))


def spared(slowness: Slowness, active: Sequence[str], needed: int, away: Sequence[str] = ()) -> tuple[str, ...]:
    """Return those of `active` that are asked: all but those at whose silence too much ended, and never below `needed`.

    Others who are `away` do not count as there.
    If not all of these can be missed, those at which most ended are left out first.
    """
    slow = [name for name in active if slowness.of(name).attempts >= LOST]
    slow.sort(key=lambda name: (-slowness.of(name).attempts, -slowness.of(name).seconds, name))
    missing = len(set(away).difference(slow))
    without = set(slow[: max(len(active) - missing - needed, 0)])
    return tuple(name for name in active if name not in without)
