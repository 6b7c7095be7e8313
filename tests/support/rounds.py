"""Parts of rounds and studies without any network: members, answers, headers, and a round driven to any phase."""

from __future__ import annotations

from coordinator.core.round import (
    Added,
    Answered,
    Confirmed,
    Event,
    Limits,
    Phase,
    Round,
    Stopped,
    Total,
    Uploaded,
    open_round,
    step,
)
from protos.messages import Answer, Confirm, Member, Note, Place, Task, Tensor, UploadHeader

STUDY = "5" * 64
SHA = "a" * 64
SILOS = ("north", "south", "west")
LIMITS = Limits(offer=10.0, keys=20.0, train=100.0, open=30.0, solve=40.0)
PLAN = (Tensor.HEADS, Tensor.ENCODER)
TOTAL = Total(65536, SHA)
TASK_OF = {Phase.TAKE: Task.TAKE, Phase.OPEN: Task.OPEN, Phase.ADOPT: Task.ADOPT}


def member(silo: str, key: bytes = b"k") -> Member:
    return Member(silo, b"certificate", key * 32, b"signature")


def session(silo: str, number: int = 1) -> str:
    return f"{silo}-{number}"


def accept(place: Place, silo: str, *, key: bytes = b"k", number: int = 1, model: str = "") -> Answered:
    return Answered(silo, Answer(place, session(silo, number), member=member(silo, key), model=model))


def refuse(place: Place, silo: str, reason: str = "budget_spent") -> Answered:
    return Answered(silo, Answer(place, session(silo), refusal=reason, explanation="policy.budget is spent"))


def upload(place: Place, silo: str, what: Tensor | Note) -> Uploaded:
    if isinstance(what, Note):
        return Uploaded(UploadHeader(place, what, None, silo, 0, 100, SHA))
    return Uploaded(UploadHeader(place, what.ring, what, silo, 9, 65536, SHA))


def confirm(
    place: Place, silo: str, task: Task, tensor: Tensor | None = None, *, model: str = "m", dispute: str = ""
) -> Confirmed:
    return Confirmed(silo, Confirm(place, task, tensor, model, dispute))


def dispute(place: Place, silo: str, task: Task) -> Confirmed:
    return Confirmed(silo, Confirm(place, task, dispute="data", explanation="a row does not fit"))


def offer(
    tensors: tuple[Tensor, ...] = PLAN,
    *,
    silos: tuple[str, ...] = SILOS,
    min_silos: int = 2,
    keyed: tuple[Member, ...] = (),
    now: float = 0.0,
) -> Round:
    return open_round(Round(Place(STUDY, 1, 1), tensors, silos, min_silos, LIMITS, keyed), now)


def wanted(state: Round, model: str = "m") -> list[Event]:
    """What the round waits for, from everybody it waits for; the coordinator's own sum while it adds."""
    place, phase = state.place, state.phase
    if phase is Phase.ADD:
        return [Added(TOTAL)]
    if phase is Phase.OFFER:
        return [accept(place, silo, model=state.model) for silo in state.waiting_for]
    if phase in (Phase.DEAL, Phase.SOLVE):
        return [upload(place, state.actor, Note.KEYS if phase is Phase.DEAL else Note.HEADS)]
    if phase is Phase.GATHER:
        return [upload(place, silo, state.tensors[state.cursor]) for silo in state.waiting_for]
    return [confirm(place, silo, TASK_OF[phase], state.tensor, model=model) for silo in state.waiting_for]


def reach(phase: Phase, state: Round | None = None, now: float = 0.0) -> Round:
    """The first moment of a phase, on the straight way to it."""
    state = offer() if state is None else state
    if phase is Phase.ABORTED:
        return step(state, Stopped("enough"), now)[0]
    while state.phase is not phase:
        for event in wanted(state):
            state, _ = step(state, event, now)
    return state
