"""One attempt at one round as a transition table.

offer (-> wait -> offer)* -> (deal -> take) -> (share -> catch up) -> gather -> add -> open -> (solve -> adopt).

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

from coordinator.core.events import (
    Add,
    Added,
    Answered,
    Clear,
    Confirmed,
    Effect,
    Event,
    Passed,
    Persist,
    Restarted,
    Returned,
    Stopped,
    Total,
    Uploaded,
)
from protos.messages import Member, Note, Place, Task, Tensor


class Phase(StrEnum):
    """Where an attempt stands."""

    OFFER = "offer"
    WAIT = "wait"
    """The offer's time is up with too few seats; it is opened again when somebody absent is heard of."""
    DEAL = "deal"
    TAKE = "take"
    SHARE = "share"
    CATCH_UP = "catch_up"
    GATHER = "gather"
    ADD = "add"
    OPEN = "open"
    SOLVE = "solve"
    ADOPT = "adopt"
    COMMITTED = "committed"
    ABORTED = "aborted"


OVER = frozenset({Phase.COMMITTED, Phase.ABORTED})
RELAYED = {
    Phase.DEAL: (Note.KEYS, Phase.TAKE),
    Phase.SHARE: (Note.MODEL, Phase.CATCH_UP),
    Phase.SOLVE: (Note.HEADS, Phase.ADOPT),
}
"""What the actor seals for the others in a phase, and the phase that follows, in which they fetch it."""
CONFIRMED = {
    Phase.TAKE: Task.TAKE,
    Phase.CATCH_UP: Task.CATCH_UP,
    Phase.OPEN: Task.OPEN,
    Phase.ADOPT: Task.ADOPT,
}
"""What everybody concerned confirms before a phase ends."""


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
            Phase.SHARE: self.open,
            Phase.CATCH_UP: self.open,
            Phase.GATHER: self.train,
            Phase.ADD: self.train,
            Phase.OPEN: self.open,
            Phase.SOLVE: self.solve,
            Phase.ADOPT: self.solve,
        }
        return seconds.get(phase, float("inf"))


@dataclass(frozen=True)
class Seat:
    """A silo that has accepted: the key it brought, the key store it has it in, the model it holds."""

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
class Round:
    """State of one attempt. `cursor` indexes `tensors`; `done` holds who has acted in the current phase."""

    place: Place
    tensors: tuple[Tensor, ...]
    invited: tuple[str, ...]
    min_silos: int
    limits: Limits
    keyed: tuple[Member, ...] = ()
    expected: str | None = None
    """Keyed digest of the model after the last committed round. None where version 0.1 did not store it: then what most
    seats hold stands for it."""
    absent: frozenset[str] = frozenset()
    """Silos that are asked but not waited for."""
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
    def agreed(self) -> str:
        """Digest of the model that the round builds on."""
        held = [seat.model for seat in self.seats]
        return max(sorted(set(held)), key=held.count, default="") if self.expected is None else self.expected

    @property
    def behind(self) -> tuple[str, ...]:
        """Seats that came with another model than the one the round builds on."""
        return tuple(seat.member.silo for seat in self.seats if seat.model != self.agreed)

    @property
    def tensor(self) -> Tensor | None:
        """What is being summed; none before the first sum and after the last."""
        summing = self.phase in (Phase.GATHER, Phase.ADD, Phase.OPEN, Phase.SOLVE, Phase.ADOPT)
        return self.tensors[self.cursor] if summing else None

    @property
    def actor(self) -> str:
        """Who deals keys, shares the model or solves: it rotates with round and attempt among those who can."""
        sharing = self.phase in (Phase.SHARE, Phase.CATCH_UP)
        able = [name for name in self.names if not sharing or name not in self.behind]
        return able[(self.place.round + self.place.attempt) % len(able)]

    @property
    def deadline(self) -> float:
        """When the current phase has lasted too long."""
        return self.since + self.limits.of(self.phase)

    @property
    def unanswered(self) -> tuple[str, ...]:
        """Invited silos that have neither accepted nor refused."""
        answered = {*self.names, *(refusal.silo for refusal in self.refusals)}
        return tuple(name for name in self.invited if name not in answered)

    @property
    def lacking(self) -> str:
        """What the seats lack for a roster; empty where they lack nothing."""
        if len(self.seats) < self.min_silos:
            return f"{len(self.seats)} silos take part, the study needs {self.min_silos}"
        if len(self.behind) == len(self.seats):
            return f"none of {', '.join(self.names)} holds the model of the last committed round"
        return ""

    @property
    def asked(self) -> tuple[str, ...]:
        """Silos that are given something to do in this phase."""
        match self.phase:
            case Phase.OFFER:
                return self.unanswered
            case Phase.DEAL | Phase.SHARE | Phase.SOLVE:
                return (self.actor,)
            case Phase.CATCH_UP:
                return tuple(name for name in self.behind if name not in self.done)
            case Phase.TAKE | Phase.GATHER | Phase.OPEN | Phase.ADOPT:
                return tuple(name for name in self.names if name not in self.done)
        return ()

    @property
    def waiting_for(self) -> tuple[str, ...]:
        """Silos without which this phase does not end: those asked, and absent ones only where nobody else is left."""
        if self.phase in (Phase.OFFER, Phase.WAIT):
            return tuple(name for name in self.unanswered if name not in self.absent) or self.unanswered
        return self.asked


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
    """An attempt begins with its offer; one that waits begins it again, and keeps its seats."""
    return replace(state, phase=Phase.OFFER, since=now, why="")


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
    if silo not in state.unanswered:
        return state, []
    state = _present(state, silo, now)
    if answer.member is None:
        refusal = Refusal(silo, answer.refusal, answer.explanation)
        return _consider(replace(state, refusals=(*state.refusals, refusal)), now)
    seats = sorted([*state.seats, Seat(answer.member, answer.session, answer.model)], key=lambda s: s.member.silo)
    return _consider(replace(state, seats=tuple(seats)), now)


def _consider(state: Round, now: float) -> Outcome:
    """The offer ends when nobody present owes an answer and the seats suffice, or never will; or when time is up."""
    due = now >= state.deadline
    if not due and not state.absent.issuperset(state.unanswered):
        return state, []
    if not state.lacking:
        return _close_offer(state, now)
    possible = len(state.seats) + len(state.unanswered) >= state.min_silos
    if not state.unanswered or not possible:
        return _abort(state, state.lacking, now)
    if not due:
        return state, []
    state = replace(state, absent=state.absent.union(state.unanswered))
    why = f"{state.lacking}; waits for {', '.join(state.unanswered)}"
    return replace(_enter(state, Phase.WAIT, now), why=why), []


def _close_offer(state: Round, now: float) -> Outcome:
    """The roster is fixed. Who has not answered is away."""
    agreed, absent = state.agreed, state.absent.union(state.unanswered)
    state = replace(state, expected=agreed, model=agreed, absent=absent)
    if state.members == state.keyed:
        return _keyed(state, now), []
    return _enter(state, Phase.DEAL, now), []


def _keyed(state: Round, now: float) -> Round:
    """The whole roster has its keys: who is behind catches up before anything is summed."""
    return _enter(state, Phase.SHARE if state.behind else Phase.GATHER, now)


def _noted(state: Round, event: Uploaded, now: float) -> Outcome:
    """The actor's note has arrived: keys, the model, or solved heads."""
    header, (wanted, following) = event.header, RELAYED[state.phase]
    if header.tensor is not None or header.kind != wanted or header.silo != state.actor:
        msg = f"the phase {state.phase} waits for {state.actor}'s {wanted}"
        raise OutOfTurnError(msg)
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


def _disputed(state: Round, event: Confirmed, now: float) -> Outcome:
    """A silo of the roster may say at any time that it cannot do what it was asked."""
    silo, confirm = event.silo, event.confirm
    if silo not in state.names:
        msg = f"{silo} is not in the roster"
        raise OutOfTurnError(msg)
    if not confirm.dispute:
        msg = f"the phase {state.phase} does not wait for {confirm.task}"
        raise OutOfTurnError(msg)
    return _abort(state, f"{silo} disputes {confirm.task}: {confirm.dispute}: {confirm.explanation}", now, (silo,))


def _confirmed(state: Round, event: Confirmed, now: float) -> Outcome:
    silo, confirm = event.silo, event.confirm
    concerned = state.behind if state.phase is Phase.CATCH_UP else state.names
    due = confirm.task is CONFIRMED[state.phase] and (state.phase is not Phase.OPEN or confirm.tensor is state.tensor)
    if confirm.dispute or silo not in concerned or not due:
        return _disputed(state, event, now)
    if state.phase is Phase.CATCH_UP and confirm.model != state.model:
        why = f"{silo} holds another model after {confirm.task} than the last committed round's"
        return _abort(state, why, now, (silo,))
    if state.phase in (Phase.OPEN, Phase.ADOPT):
        if state.done and confirm.model != state.model:
            return _abort(state, f"{silo} holds another model after {confirm.task} than the others", now)
        state = replace(state, model=confirm.model)
    state = replace(state, done=state.done | {silo})
    return (state, []) if state.waiting_for else _advance(state, now)


def _advance(state: Round, now: float) -> Outcome:
    """Everybody has confirmed: on to what follows in the plan."""
    if state.phase is Phase.TAKE:
        return _keyed(state, now), []
    if state.phase is Phase.CATCH_UP:
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
    if state.phase in (Phase.OFFER, Phase.WAIT):
        seats = tuple(s for s in state.seats if s is not seat)
        return _present(replace(state, seats=seats), event.silo, now), []
    return _abort(state, f"{event.silo} was restarted and has lost its keys", now, (event.silo,))


def _returned(state: Round, event: Returned, now: float) -> Outcome:
    return (_present(state, event.silo, now) if event.silo in state.absent else state), []


def _present(state: Round, silo: str, now: float) -> Round:
    """The silo is heard of: an offer waits for it again, and one that waited for somebody goes on."""
    state = replace(state, absent=state.absent - {silo})
    return open_round(state, now) if state.phase is Phase.WAIT else state


def _passed(state: Round, event: Passed, now: float) -> Outcome:  # noqa: ARG001  # the event carries nothing
    """Who is late is away from now on; nobody leaves for it."""
    if now < state.deadline:
        return state, []
    if state.phase is Phase.OFFER:
        return _consider(state, now)
    late = state.waiting_for
    by = ", ".join(late) or "the coordinator"
    state = replace(state, absent=state.absent.union(late))
    return _abort(state, f"no {state.phase} from {by} within {state.limits.of(state.phase):g} s", now, late)


def _stopped(state: Round, event: Stopped, now: float) -> Outcome:
    return _abort(state, event.reason, now)


# Each move takes exactly the event type it is listed under, which a Callable cannot say.
Move = Callable[[Round, Any, float], Outcome]
_LIVE = tuple(phase for phase in Phase if phase not in OVER)
MOVES: dict[tuple[Phase, type[Event]], Move] = {
    (Phase.OFFER, Answered): _answered,
    (Phase.WAIT, Answered): _answered,
    (Phase.GATHER, Uploaded): _gathered,
    (Phase.GATHER, Confirmed): _disputed,
    (Phase.ADD, Added): _added,
    **dict.fromkeys(((phase, Uploaded) for phase in RELAYED), _noted),
    **dict.fromkeys(((phase, Confirmed) for phase in RELAYED), _disputed),
    **dict.fromkeys(((phase, Confirmed) for phase in CONFIRMED), _confirmed),
    **dict.fromkeys(((phase, Restarted) for phase in _LIVE), _restarted),
    **dict.fromkeys(((phase, Returned) for phase in _LIVE), _returned),
    **dict.fromkeys(((phase, Passed) for phase in _LIVE if phase is not Phase.WAIT), _passed),
    **dict.fromkeys(((phase, Stopped) for phase in _LIVE), _stopped),
}
