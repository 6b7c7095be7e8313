"""A study as a sequence of rounds: created -> running (<-> waiting, paused) -> finished, ended or aborted.

Round 0 deals keys and sums the domain counts; rounds 1..R train. Who is lost in a round that goes on without it is
asked again with the next offer, where it is behind and catches up. A round that aborts is attempted anew with the silos
that still take part, until the study's attempts are used up; where survivors of it were listed to be signed, with these
alone, and the study waits for them. A silo that refuses leaves the study by name; one that is
silent is away until it is heard of again. The study goes on while enough silos remain, and waits while too few of them
are present. While the operator has paused it its clock stands still: what silos still send counts, time does not.

Pure: the clock comes in as an argument.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from coordinator.core.events import Effect, Event, Persist, Stopped
from coordinator.core.round import open_round, step
from coordinator.core.state import Limits, Listed, Phase, Round
from coordinator.errors import CoordinatorError
from protos.messages import Member, Place, Tensor


class Life(StrEnum):
    """Where a study stands."""

    CREATED = "created"
    RUNNING = "running"
    PAUSED = "paused"
    """By the operator, until the operator resumes it."""
    WAITING = "waiting"
    """Too few silos are present; goes on by itself when one of the others is heard of."""
    FINISHED = "finished"
    ENDED = "ended"
    ABORTED = "aborted"


LIVE = frozenset({Life.RUNNING, Life.PAUSED, Life.WAITING})
OVER = frozenset({Life.FINISHED, Life.ENDED, Life.ABORTED})


class StudyStateError(CoordinatorError):
    """The study is not in a state that allows this. Nothing changed."""


@dataclass(frozen=True)
class Silo:
    """One invited silo: `why` is empty while it takes part, else why it left; `away` while nothing is heard of it."""

    name: str
    why: str = ""
    away: bool = False


@dataclass(frozen=True)
class Script:
    """What the coordinator needs to know of a study: names, numbers, time limits."""

    study: str
    name: str
    silos: tuple[str, ...]
    min_silos: int
    colluders: int
    recovers: bool
    """Whether a round goes on without a silo that is lost on the way."""
    tensors: tuple[tuple[Tensor, ...], ...]
    """Of each round from 0 to R."""
    limits: Limits
    max_attempts: int


@dataclass(frozen=True)
class Progress:
    """State of one study."""

    script: Script
    silos: tuple[Silo, ...]
    life: Life = Life.CREATED
    round: Round | None = None
    why: str = ""
    paused_at: float = 0.0
    """When the clock was stopped, while it is."""

    @property
    def active(self) -> tuple[str, ...]:
        """Silos that still take part."""
        return tuple(silo.name for silo in self.silos if not silo.why)

    @property
    def away(self) -> tuple[str, ...]:
        """Silos that take part and of which nothing is heard."""
        return tuple(silo.name for silo in self.silos if silo.away and not silo.why)

    def clock(self, now: float) -> float:
        """The study's own time: it stands still during a pause."""
        return self.paused_at if self.life is Life.PAUSED else now


Outcome = tuple[Progress, list[Effect]]


def create(script: Script) -> Progress:
    """A study that nobody has been asked to join yet."""
    return Progress(script, tuple(Silo(name) for name in script.silos))


def start(state: Progress, now: float) -> Outcome:
    """Begin with round 0. Raises `StudyStateError` unless the study was just created."""
    if state.life is not Life.CREATED:
        msg = f"the study is {state.life}; only a created one can start"
        raise StudyStateError(msg)
    place = Place(state.script.study, 0, 1)
    return replace(state, life=Life.RUNNING, round=_attempt(state, place, now)), [Persist()]


def pause(state: Progress, reason: str, now: float) -> Outcome:
    """Hand out no more work; time stands still. Raises `StudyStateError` unless the study is running or waiting."""
    if state.life not in (Life.RUNNING, Life.WAITING):
        msg = f"the study is {state.life}; only a running or waiting one can be paused"
        raise StudyStateError(msg)
    return replace(state, life=Life.PAUSED, why=reason, paused_at=now), [Persist()]


def resume(state: Progress, now: float) -> Outcome:
    """Go on where the study stood, with the time that was left; who was waited for is asked again.

    Raises `StudyStateError` unless the study is paused or waiting.
    """
    if state.round is None or state.life not in (Life.PAUSED, Life.WAITING):
        msg = f"the study is {state.life}; only a paused or waiting one can be resumed"
        raise StudyStateError(msg)
    round_ = replace(state.round, since=state.round.since + now - state.clock(now))
    if round_.phase is Phase.WAIT:
        round_ = open_round(round_, now)
    return _in_tune(replace(state, life=Life.RUNNING, round=round_, paused_at=0.0)), [Persist()]


def restart_clock(state: Progress, now: float) -> Outcome:
    """Time while the coordinator was down does not count: the current phase of a running study begins anew."""
    if state.round is None or state.life is not Life.RUNNING:
        return state, []
    return replace(state, round=replace(state.round, since=now)), [Persist()]


def abort(state: Progress, reason: str, now: float) -> Outcome:
    """Stop for good. Raises `StudyStateError` where the study is over already."""
    if state.life in OVER:
        msg = f"the study is {state.life} already"
        raise StudyStateError(msg)
    if state.round is None:
        return replace(state, life=Life.ABORTED, why=reason), [Persist()]
    round_, effects = step(state.round, Stopped(reason), state.clock(now))
    return replace(state, life=Life.ABORTED, why=reason, round=round_), effects


def advance(state: Progress, event: Event, now: float) -> Outcome:
    """Hand an event to the current round, and go on to the next where it is over. Raises `OutOfTurnError`."""
    if state.round is None or state.life not in LIVE:
        msg = f"the study is {state.life}"
        raise StudyStateError(msg)
    now = state.clock(now)
    round_, effects = step(state.round, event, now)
    if not effects:
        return state, []
    silos = tuple(replace(silo, away=silo.name in round_.absent) for silo in state.silos)
    state = replace(state, round=round_, silos=silos)
    if round_.phase is Phase.COMMITTED:
        state = _after_commit(state, round_, now)
    elif round_.phase is Phase.ABORTED:
        state = _after_abort(state, round_, now)
    return _in_tune(state), effects


def _in_tune(state: Progress) -> Progress:
    """Whether a study runs or waits is its round's word; a pause and an end are not."""
    if state.round is None or state.life not in (Life.RUNNING, Life.WAITING):
        return state
    waits = state.round.phase is Phase.WAIT
    return replace(state, life=Life.WAITING if waits else Life.RUNNING, why=state.round.why)


def _attempt(
    state: Progress,
    place: Place,
    now: float,
    *,
    expected: str = "",
    keyed: tuple[Member, ...] = (),
    listed: tuple[Listed, ...] = (),
) -> Round:
    script = state.script
    blank = Round(
        place=place,
        tensors=script.tensors[place.round],
        invited=state.active,
        listed=listed,
        min_silos=script.min_silos,
        colluders=script.colluders,
        recovers=script.recovers,
        limits=script.limits,
        keyed=keyed,
        expected=expected,
        absent=frozenset(state.away),
    )
    return open_round(replace(blank, invited=blank.required or blank.invited), now)


def _without(state: Progress, round_: Round) -> Progress:
    """Those who refused have left, by name."""
    reasons = {r.silo: f"{r.reason}: {r.explanation}" for r in round_.refusals}
    return replace(state, silos=tuple(replace(s, why=s.why or reasons.get(s.name, "")) for s in state.silos))


def _after_commit(state: Progress, round_: Round, now: float) -> Progress:
    state = _without(state, round_)
    following = round_.place.round + 1
    if following == len(state.script.tensors):
        return replace(state, life=Life.FINISHED, why="all rounds are committed")
    place = Place(state.script.study, following, 1)
    return replace(state, round=_attempt(state, place, now, expected=round_.model, keyed=round_.members))


def _after_abort(state: Progress, round_: Round, now: float) -> Progress:
    state = _without(state, round_)
    place = round_.place
    if len(state.active) < state.script.min_silos:
        left = "; ".join(f"{s.name} left ({s.why})" for s in state.silos if s.why)
        return replace(state, life=Life.ENDED, why=f"{round_.why}; {left}" if left else round_.why)
    if gone := sorted(set(round_.required).difference(state.active)):
        why = f"{round_.why}; round {place.round} cannot be made anew without {', '.join(gone)}, whose sum was signed"
        return replace(state, life=Life.ENDED, why=why)
    if place.attempt >= state.script.max_attempts:
        return replace(state, life=Life.ENDED, why=f"attempt {place.attempt} of round {place.round}: {round_.why}")
    # New keys for every new attempt after a failure: whoever caused it may have kept the old ones.
    following = Place(place.study, place.round, place.attempt + 1)
    return replace(state, round=_attempt(state, following, now, expected=round_.expected, listed=round_.listed))
