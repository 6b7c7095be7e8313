"""One attempt at one round as a transition table: offer -> (deal -> take) -> gather -> add -> open -> (solve -> adopt).

`MOVES` is the whole truth: which event is allowed in which phase, and what it does. `step` is pure; the clock comes in
as an argument. An event that repeats what is already so changes nothing; one that is out of turn raises
`OutOfTurnError` and changes nothing. The first effect of every change is `Persist`: the shell stores before it speaks.

Left to others: who is invited and what follows a round (`core.study`), bytes and signatures (`service`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from protos.messages import Answer, Confirm, Member, Note, Place, Task, Tensor, UploadHeader


class Phase(StrEnum):
    """Where an attempt stands."""

    OFFER = "offer"
    DEAL = "deal"
    TAKE = "take"
    GATHER = "gather"
    ADD = "add"
    OPEN = "open"
    SOLVE = "solve"
    ADOPT = "adopt"
    COMMITTED = "committed"
    ABORTED = "aborted"


OVER = frozenset({Phase.COMMITTED, Phase.ABORTED})


class OutOfTurnError(Exception):
    """The event does not fit the phase. Nothing changed."""


@dataclass(frozen=True)
class Limits:
    """Seconds each kind of phase may last."""

    offer: float
    keys: float
    train: float
    open: float
    solve: float

    def of(self, phase: Phase) -> float:
        """Seconds for a phase. Adding may last as long as gathering: only a coordinator in trouble needs so long."""
        seconds = {
            Phase.OFFER: self.offer,
            Phase.DEAL: self.keys,
            Phase.TAKE: self.keys,
            Phase.GATHER: self.train,
            Phase.ADD: self.train,
            Phase.OPEN: self.open,
            Phase.SOLVE: self.solve,
            Phase.ADOPT: self.solve,
        }
        return seconds.get(phase, float("inf"))


@dataclass(frozen=True)
class Seat:
    """A silo that has accepted: the key it brought, the process it lives in, the model it holds."""

    member: Member
    session: str
    model: str


@dataclass(frozen=True)
class Refusal:
    """A silo's no, by name."""

    silo: str
    reason: str
    explanation: str


@dataclass(frozen=True)
class Total:
    """The finished sum of the current tensor."""

    size: int
    sha256: str


@dataclass(frozen=True)
class Round:
    """State of one attempt. `cursor` indexes `tensors`; `done` holds who has acted in the current phase."""

    place: Place
    tensors: tuple[Tensor, ...]
    invited: tuple[str, ...]
    min_silos: int
    limits: Limits
    keyed: tuple[Member, ...] = ()
    phase: Phase = Phase.OFFER
    since: float = 0.0
    cursor: int = 0
    seats: tuple[Seat, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    done: frozenset[str] = frozenset()
    total: Total | None = None
    note: Total | None = None
    model: str = ""
    why: str = ""
    culprits: tuple[str, ...] = field(default=())

    @property
    def names(self) -> tuple[str, ...]:
        """The roster's names."""
        return tuple(seat.member.silo for seat in self.seats)

    @property
    def members(self) -> tuple[Member, ...]:
        """The roster's members, sorted by name."""
        return tuple(seat.member for seat in self.seats)

    @property
    def tensor(self) -> Tensor | None:
        """What is being summed; none before the first sum and after the last."""
        summing = self.phase in (Phase.GATHER, Phase.ADD, Phase.OPEN, Phase.SOLVE, Phase.ADOPT)
        return self.tensors[self.cursor] if summing else None

    @property
    def actor(self) -> str:
        """Who deals keys or solves: it rotates with round and attempt."""
        return self.names[(self.place.round + self.place.attempt) % len(self.seats)]

    @property
    def deadline(self) -> float:
        """When the current phase has lasted too long."""
        return self.since + self.limits.of(self.phase)

    @property
    def waiting_for(self) -> tuple[str, ...]:
        """Silos that must still act in this phase."""
        match self.phase:
            case Phase.OFFER:
                answered = {*self.names, *(refusal.silo for refusal in self.refusals)}
                return tuple(name for name in self.invited if name not in answered)
            case Phase.DEAL | Phase.SOLVE:
                return (self.actor,)
            case Phase.TAKE | Phase.GATHER | Phase.OPEN | Phase.ADOPT:
                return tuple(name for name in self.names if name not in self.done)
        return ()


# --- events ---------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Answered:
    """A silo answered the offer."""

    silo: str
    answer: Answer


@dataclass(frozen=True)
class Uploaded:
    """A silo's content is complete, checked and durable."""

    header: UploadHeader


@dataclass(frozen=True)
class Added:
    """The coordinator has added all contributions to the current tensor."""

    total: Total


@dataclass(frozen=True)
class Confirmed:
    """A silo has taken, opened or adopted, or disputes."""

    silo: str
    confirm: Confirm


@dataclass(frozen=True)
class Restarted:
    """A silo of the roster lives in another process now: the keys it brought are gone."""

    silo: str
    session: str


@dataclass(frozen=True)
class Passed:
    """Time has passed."""


@dataclass(frozen=True)
class Stopped:
    """The operator stops the round."""

    reason: str


Event = Answered | Uploaded | Added | Confirmed | Restarted | Passed | Stopped


# --- effects --------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Persist:
    """Store the new state before anything else happens."""


@dataclass(frozen=True)
class Add:
    """Add the roster's contributions to this tensor, then report `Added`."""

    place: Place
    tensor: Tensor
    silos: tuple[str, ...]


@dataclass(frozen=True)
class Clear:
    """Nobody needs the sealed bytes of this attempt any more."""

    place: Place


Effect = Persist | Add | Clear
Outcome = tuple[Round, list[Effect]]


def step(state: Round, event: Event, now: float) -> Outcome:
    """Return the next state and what the shell must do, in order. Raises `OutOfTurnError`."""
    move = MOVES.get((state.phase, type(event)))
    if move is None:
        msg = f"{type(event).__name__} does not fit the phase {state.phase}"
        raise OutOfTurnError(msg)
    after, effects = move(state, event, now)
    return (state, []) if after == state else (after, [Persist(), *effects])


def open_round(state: Round, now: float) -> Round:
    """An attempt begins with its offer."""
    return replace(state, phase=Phase.OFFER, since=now)


# --- moves ----------------------------------------------------------------------------------------------------------
def _enter(state: Round, phase: Phase, now: float) -> Round:
    return replace(state, phase=phase, since=now, done=frozenset())


def _abort(state: Round, why: str, now: float, culprits: tuple[str, ...] = ()) -> Outcome:
    return replace(_enter(state, Phase.ABORTED, now), why=why, culprits=culprits), [Clear(state.place)]


def _answered(state: Round, event: Answered, now: float) -> Outcome:
    silo, answer = event.silo, event.answer
    if silo not in state.invited:
        msg = f"{silo} is not invited to this attempt"
        raise OutOfTurnError(msg)
    if silo not in state.waiting_for:
        return state, []
    if answer.member is None:
        refusal = Refusal(silo, answer.refusal, answer.explanation)
        state = replace(state, refusals=(*state.refusals, refusal))
    else:
        seats = sorted([*state.seats, Seat(answer.member, answer.session, answer.model)], key=lambda s: s.member.silo)
        state = replace(state, seats=tuple(seats))
    return _close_offer(state, now) if not state.waiting_for else (state, [])


def _close_offer(state: Round, now: float) -> Outcome:
    """Everybody has answered or time is up: the roster is fixed, or there is none."""
    held = [seat.model for seat in state.seats]
    common = max(sorted(set(held)), key=held.count, default="")
    behind = [seat for seat in state.seats if seat.model != common]
    refusals = tuple(Refusal(s.member.silo, "behind", "holds another model than the rest") for s in behind)
    seats = tuple(seat for seat in state.seats if seat.model == common)
    state = replace(state, seats=seats, refusals=(*state.refusals, *refusals), model=common)
    if len(seats) < state.min_silos:
        return _abort(state, f"{len(seats)} silos take part, the study needs {state.min_silos}", now)
    if state.members == state.keyed:
        return _enter(state, Phase.GATHER, now), []
    return _enter(state, Phase.DEAL, now), []


def _noted(state: Round, event: Uploaded, now: float) -> Outcome:
    """The dealer's keys or the solver's heads have arrived."""
    header = event.header
    wanted = Note.KEYS if state.phase is Phase.DEAL else Note.HEADS
    if header.tensor is not None or header.kind != wanted or header.silo != state.actor:
        msg = f"the phase {state.phase} waits for {state.actor}'s {wanted}"
        raise OutOfTurnError(msg)
    following = Phase.TAKE if state.phase is Phase.DEAL else Phase.ADOPT
    state = replace(state, note=Total(header.size, header.sha256))
    return _enter(state, following, now), []


def _gathered(state: Round, event: Uploaded, now: float) -> Outcome:
    header = event.header
    if header.tensor is not state.tensor or header.silo not in state.names:
        msg = f"the phase {state.phase} gathers {state.tensor} from the roster"
        raise OutOfTurnError(msg)
    state = replace(state, done=state.done | {header.silo})
    if state.waiting_for:
        return state, []
    return _enter(state, Phase.ADD, now), [Add(state.place, state.tensors[state.cursor], state.names)]


def _added(state: Round, event: Added, now: float) -> Outcome:
    return replace(_enter(state, Phase.OPEN, now), total=event.total), []


def _confirmed(state: Round, event: Confirmed, now: float) -> Outcome:
    silo, confirm = event.silo, event.confirm
    if silo not in state.names:
        msg = f"{silo} is not in the roster"
        raise OutOfTurnError(msg)
    if confirm.dispute:
        return _abort(state, f"{silo} disputes {confirm.task}: {confirm.dispute}: {confirm.explanation}", now, (silo,))
    expected = {Phase.TAKE: Task.TAKE, Phase.OPEN: Task.OPEN, Phase.ADOPT: Task.ADOPT}.get(state.phase)
    if confirm.task is not expected or (state.phase is Phase.OPEN and confirm.tensor is not state.tensor):
        msg = f"the phase {state.phase} does not wait for {confirm.task}"
        raise OutOfTurnError(msg)
    if state.phase is not Phase.TAKE:
        if state.done and confirm.model != state.model:
            return _abort(state, f"{silo} holds another model after {confirm.task} than the others", now)
        state = replace(state, model=confirm.model)
    state = replace(state, done=state.done | {silo})
    return (state, []) if state.waiting_for else _advance(state, now)


def _advance(state: Round, now: float) -> Outcome:
    """Everybody has confirmed: on to what follows in the plan."""
    if state.phase is Phase.TAKE:
        return _enter(state, Phase.GATHER, now), []
    if state.phase is Phase.OPEN and state.tensor is Tensor.HEADS:
        return _enter(state, Phase.SOLVE, now), []
    if state.cursor + 1 < len(state.tensors):
        return _enter(replace(state, cursor=state.cursor + 1, total=None, note=None), Phase.GATHER, now), []
    return _enter(state, Phase.COMMITTED, now), [Clear(state.place)]


def _restarted(state: Round, event: Restarted, now: float) -> Outcome:
    seat = next((seat for seat in state.seats if seat.member.silo == event.silo), None)
    if seat is None or seat.session == event.session:
        return state, []
    if state.phase is Phase.OFFER:
        return replace(state, seats=tuple(s for s in state.seats if s is not seat)), []
    return _abort(state, f"{event.silo} was restarted and has lost its keys", now, (event.silo,))


def _passed(state: Round, event: Passed, now: float) -> Outcome:  # noqa: ARG001  # the event carries nothing
    if now < state.deadline:
        return state, []
    if state.phase is Phase.OFFER:
        return _close_offer(state, now)
    late = state.waiting_for
    by = ", ".join(late) or "the coordinator"
    return _abort(state, f"no {state.phase} from {by} within {state.limits.of(state.phase):g} s", now, late)


def _stopped(state: Round, event: Stopped, now: float) -> Outcome:
    return _abort(state, event.reason, now)


# Each move takes exactly the event type it is listed under, which a Callable cannot say.
Move = Callable[[Round, Any, float], Outcome]
_LIVE = tuple(phase for phase in Phase if phase not in OVER)
MOVES: dict[tuple[Phase, type[Event]], Move] = {
    (Phase.OFFER, Answered): _answered,
    (Phase.DEAL, Uploaded): _noted,
    (Phase.TAKE, Confirmed): _confirmed,
    (Phase.GATHER, Uploaded): _gathered,
    (Phase.ADD, Added): _added,
    (Phase.OPEN, Confirmed): _confirmed,
    (Phase.SOLVE, Uploaded): _noted,
    (Phase.ADOPT, Confirmed): _confirmed,
    # A silo may say at any time that it cannot do what it was asked; only a dispute is heard in these phases.
    (Phase.DEAL, Confirmed): _confirmed,
    (Phase.GATHER, Confirmed): _confirmed,
    (Phase.SOLVE, Confirmed): _confirmed,
    **dict.fromkeys(((phase, Restarted) for phase in _LIVE), _restarted),
    **dict.fromkeys(((phase, Passed) for phase in _LIVE), _passed),
    **dict.fromkeys(((phase, Stopped) for phase in _LIVE), _stopped),
}
