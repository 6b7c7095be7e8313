"""Parts of rounds and studies without any network: members, answers, headers, and a round driven to any phase."""

from __future__ import annotations

from coordinator.core.events import Added, Answered, Confirmed, Event, Passed, Returned, Stopped, Total, Uploaded
from coordinator.core.round import RELAYED, Limits, Phase, Round, open_round, step
from protos.messages import Answer, Confirm, Member, Note, Place, Task, Tensor, UploadHeader

STUDY = "5" * 64
SHA = "a" * 64
SILOS = ("north", "south", "west")
LIMITS = Limits(offer=10.0, keys=20.0, train=100.0, open=30.0, solve=40.0)
PLAN = (Tensor.HEADS, Tensor.ENCODER)
TOTAL = Total(65536, SHA)
TASK_OF = {
    Phase.TAKE: Task.TAKE,
    Phase.CATCH_UP: Task.CATCH_UP,
    Phase.OPEN: Task.OPEN,
    Phase.ADOPT: Task.ADOPT,
}


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
    expected: str | None = "",
    absent: tuple[str, ...] = (),
    now: float = 0.0,
) -> Round:
    blank = Round(Place(STUDY, 1, 1), tensors, silos, min_silos, LIMITS, keyed, expected, frozenset(absent))
    return open_round(blank, now)


def wanted(state: Round, model: str = "m") -> list[Event]:
    """What the round waits for, from everybody it waits for; the coordinator's own sum while it adds."""
    place, phase = state.place, state.phase
    if phase is Phase.ADD:
        return [Added(TOTAL)]
    if phase is Phase.OFFER:
        return [accept(place, silo, model=state.agreed) for silo in state.waiting_for]
    if phase is Phase.WAIT:
        return [Returned(silo) for silo in state.waiting_for]
    if phase in RELAYED:
        return [upload(place, state.actor, RELAYED[phase][0])]
    if phase is Phase.CATCH_UP:
        model = state.agreed
    if phase is Phase.GATHER:
        return [upload(place, silo, state.tensors[state.cursor]) for silo in state.waiting_for]
    return [confirm(place, silo, TASK_OF[phase], state.tensor, model=model) for silo in state.waiting_for]


def with_one_behind(**changes: object) -> Round:
    """An offer that north and south have accepted with the round's model "e", and west, who goes first, without."""
    state = offer(**{"expected": "e", **changes})  # type: ignore[arg-type]  # a test's offer
    return step(state, accept(state.place, "west"), 0.0)[0]


def reach(phase: Phase, state: Round | None = None, now: float = 0.0) -> Round:
    """The first moment of a phase, on the straight way to it."""
    if state is None:
        state = with_one_behind() if phase in (Phase.SHARE, Phase.CATCH_UP) else offer()
    if phase is Phase.ABORTED:
        return step(state, Stopped("enough"), now)[0]
    if phase is Phase.WAIT:
        return step(state, Passed(), now=max(now, state.deadline))[0]
    while state.phase is not phase:
        for event in wanted(state):
            state, _ = step(state, event, now)
    return state
