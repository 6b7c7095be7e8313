"""A study as a sequence of rounds: created -> running -> finished, ended or aborted.

Round 0 deals keys and sums the domain counts; rounds 1..R train. A round that aborts is attempted anew with the silos
that still take part, until the study's attempts are used up. A silo that refuses leaves the study by name; the study
goes on while enough silos remain. Pure: the clock comes in as an argument.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from coordinator.core.round import Effect, Event, Limits, Persist, Phase, Round, Stopped, open_round, step
from protos.messages import Member, Place, Tensor


class Life(StrEnum):
    """Where a study stands."""

    CREATED = "created"
    RUNNING = "running"
    FINISHED = "finished"
    ENDED = "ended"
    ABORTED = "aborted"


OVER = frozenset({Life.FINISHED, Life.ENDED, Life.ABORTED})


class StudyStateError(Exception):
    """The study is not in a state that allows this. Nothing changed."""


@dataclass(frozen=True)
class Silo:
    """One invited silo: `why` is empty while it takes part, else why it left."""

    name: str
    why: str = ""


@dataclass(frozen=True)
class Script:
    """What the coordinator needs to know of a study: names, numbers, time limits."""

    study: str
    name: str
    silos: tuple[str, ...]
    min_silos: int
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

    @property
    def active(self) -> tuple[str, ...]:
        """Silos that still take part."""
        return tuple(silo.name for silo in self.silos if not silo.why)


def create(script: Script) -> Progress:
    """A study that nobody has been asked to join yet."""
    return Progress(script, tuple(Silo(name) for name in script.silos))


def start(state: Progress, now: float) -> tuple[Progress, list[Effect]]:
    """Begin with round 0. Raises `StudyStateError` unless the study was just created."""
    if state.life is not Life.CREATED:
        msg = f"the study is {state.life}; only a created one can start"
        raise StudyStateError(msg)
    return replace(state, life=Life.RUNNING, round=_attempt(state, 0, 1, (), now)), [Persist()]


def abort(state: Progress, reason: str, now: float) -> tuple[Progress, list[Effect]]:
    """Stop for good. Raises `StudyStateError` where the study is over already."""
    if state.life in OVER:
        msg = f"the study is {state.life} already"
        raise StudyStateError(msg)
    if state.round is None or state.life is Life.CREATED:
        return replace(state, life=Life.ABORTED, why=reason), [Persist()]
    round_, effects = step(state.round, Stopped(reason), now)
    return replace(state, life=Life.ABORTED, why=reason, round=round_), effects


def advance(state: Progress, event: Event, now: float) -> tuple[Progress, list[Effect]]:
    """Hand an event to the current round, and go on to the next where it is over. Raises `OutOfTurnError`."""
    if state.round is None or state.life is not Life.RUNNING:
        msg = f"the study is {state.life}"
        raise StudyStateError(msg)
    round_, effects = step(state.round, event, now)
    if not effects:
        return state, []
    state = replace(state, round=round_)
    if round_.phase is Phase.COMMITTED:
        state = _after_commit(state, round_, now)
    elif round_.phase is Phase.ABORTED:
        state = _after_abort(state, round_, now)
    return state, effects


def _attempt(state: Progress, number: int, attempt: int, keyed: tuple[Member, ...], now: float) -> Round:
    script = state.script
    blank = Round(
        place=Place(script.study, number, attempt),
        tensors=script.tensors[number],
        invited=state.active,
        min_silos=script.min_silos,
        limits=script.limits,
        keyed=keyed,
    )
    return open_round(blank, now)


def _without(state: Progress, round_: Round) -> Progress:
    """Those who refused have left, by name."""
    reasons = {r.silo: f"{r.reason}: {r.explanation}" for r in round_.refusals}
    return replace(state, silos=tuple(replace(s, why=s.why or reasons.get(s.name, "")) for s in state.silos))


def _after_commit(state: Progress, round_: Round, now: float) -> Progress:
    state = _without(state, round_)
    following = round_.place.round + 1
    if following == len(state.script.tensors):
        return replace(state, life=Life.FINISHED, why="all rounds are committed")
    return replace(state, round=_attempt(state, following, 1, round_.members, now))


def _after_abort(state: Progress, round_: Round, now: float) -> Progress:
    state = _without(state, round_)
    place = round_.place
    if len(state.active) < state.script.min_silos:
        left = "; ".join(f"{s.name} left ({s.why})" for s in state.silos if s.why)
        return replace(state, life=Life.ENDED, why=f"{round_.why}; {left}" if left else round_.why)
    if place.attempt >= state.script.max_attempts:
        return replace(state, life=Life.ENDED, why=f"attempt {place.attempt} of round {place.round}: {round_.why}")
    # New keys for every new attempt after a failure: whoever caused it may have kept the old ones.
    return replace(state, round=_attempt(state, place.round, place.attempt + 1, (), now))
