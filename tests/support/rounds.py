"""Parts of rounds and studies without any network: members, answers, headers, and a round driven to any phase."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256

from coordinator.core.events import (
    Added,
    Answered,
    Complained,
    Confirmed,
    Event,
    Passed,
    Returned,
    RoundStopped,
    Uploaded,
)
from coordinator.core.round import open_round, step
from coordinator.core.state import COLLECTED, CONFIRMED, OVER, RELAYED, Listed, Phase, PhaseLimits, Round, Vouched
from protos.messages import Answer, Confirm, Member, Part, Place, Tensor, UploadHeader
from protos.steps import SUM, Note, Task

STUDY = "5" * 64
SHA = "a" * 64
CONTENT = "c" * 64
SILOS = ("north", "south", "west")
FIVE = ("east", "north", "polar", "south", "west")
LIMITS = PhaseLimits(offer=10.0, keys=20.0, train=100.0, open=30.0, solve=40.0)
PLAN = (Tensor.HEADS, Tensor.ENCODER)
TOTAL = Part(SUM, "", 65536, SHA)
ENOUGH = 100
"""No phase is so many phases away."""
CATCHING_UP = (Phase.SHARE, Phase.CATCH_UP, Phase.JUDGE)


def member(silo: str, key: bytes = b"k") -> Member:
    own = sha256(silo.encode() + key).digest()
    return Member(silo, b"certificate", own, own * 37, b"signature")


def session(silo: str, number: int = 1) -> str:
    return f"{silo}-{number}"


def accept(place: Place, silo: str, *, key: bytes = b"k", number: int = 1, model: str = "") -> Answered:
    return Answered(silo, Answer(place, session(silo, number), member=member(silo, key), model=model))


def refuse(place: Place, silo: str, reason: str = "budget_spent") -> Answered:
    return Answered(silo, Answer(place, session(silo), refusal=reason, explanation="policy.budget is spent"))


def upload(place: Place, silo: str, what: Tensor | Note, tensor: Tensor | None = None) -> Uploaded:
    """A contribution to a tensor; or a note, which names a tensor where it reveals."""
    if isinstance(what, Note):
        return Uploaded(UploadHeader(place, what, tensor, silo, 0, 100, SHA))
    return Uploaded(UploadHeader(place, "ckks", what, silo, 9, 65536, SHA), f"{silo}'s".encode())


def part(silo: str, note: Note) -> Part:
    """What there is to fetch of a note that was uploaded."""
    return Part(note, silo, 100, SHA)


def confirm(
    place: Place,
    silo: str,
    task: Task,
    tensor: Tensor | None = None,
    *,
    model: str = "m",
    dispute: str = "",
    culprit: str = "",
) -> Confirmed:
    signature = f"{silo}'s".encode() if task in (Task.SIGN, Task.VOID, Task.RECOUNT) and not dispute else b""
    holds = task in (Task.CATCH_UP, Task.OPEN, Task.ADOPT) and not dispute
    content, vouch = (CONTENT, f"{silo}'s".encode()) if holds else ("", b"")
    said = Confirm(
        place, task, tensor, model, dispute, signature=signature, culprit=culprit, content=content, vouch=vouch
    )
    return Confirmed(silo, said, b"certificate")


def dispute(place: Place, silo: str, task: Task, tensor: Tensor | None = None) -> Confirmed:
    return Confirmed(silo, Confirm(place, task, tensor, dispute="data", explanation="a row does not fit"))


def complaint(place: Place, silo: str, about: str, *, task: Task = Task.CHECK, liar: str = "") -> Complained:
    """A silo says that another has sealed something for it wrongly; the evidence, if there is any, shows who lied."""
    shown = {"evidence": bytes(64), "signature": f"{silo}'s".encode()} if liar else {}
    return Complained(silo, Confirm(place, task, dispute="recovery", explanation="x", culprit=about, **shown), liar)


def offer(
    tensors: tuple[Tensor, ...] = PLAN,
    *,
    silos: tuple[str, ...] = SILOS,
    min_silos: int = 2,
    colluders: int = 1,
    recovers: bool = True,
    keyed: tuple[Member, ...] = (),
    expected: str = "",
    absent: tuple[str, ...] = (),
    now: float = 0.0,
) -> Round:
    blank = Round(
        Place(STUDY, 1, 1), tensors, silos, min_silos, colluders, recovers, LIMITS, keyed, expected, frozenset(absent)
    )
    blank = replace(blank, silos=len(silos))
    return open_round(vouched_for(blank) if expected else blank, now)


def wanted(state: Round, model: str = "m") -> list[Event]:
    """What the round waits for, from everybody it waits for; the coordinator's own sum while it adds."""
    if state.phase is Phase.ADD:
        return [Added(TOTAL)]
    return [_wanted_of(state, silo, model) for silo in state.waiting_for]


def _wanted_of(state: Round, silo: str, model: str) -> Event:
    place, phase = state.place, state.phase
    if phase is Phase.OFFER:
        return accept(place, silo, model=state.expected)
    if phase is Phase.WAIT:
        return Returned(silo)
    if phase is Phase.GATHER:
        return upload(place, silo, state.tensors[state.cursor])
    if phase in CONFIRMED:
        model = state.expected if phase is Phase.CATCH_UP else model
        culprit = state.liar if phase is Phase.EXAMINE else ""
        return confirm(place, silo, CONFIRMED[phase], state.tensor, model=model, culprit=culprit)
    note = COLLECTED[phase] if phase in COLLECTED else RELAYED[phase]
    return upload(place, silo, note, state.tensor if note is Note.REVEAL else None)


def unopened(state: Round, silo: str) -> Confirmed:
    """A silo refuses the current sum."""
    return Confirmed(silo, Confirm(state.place, Task.OPEN, state.tensor, dispute="opening", explanation="not opened"))


def vouched_for(state: Round, *but: str) -> Round:
    """Everybody has signed the model that the round builds on, but for some."""
    signers = [name for name in state.invited if name not in but]
    vouches = tuple(Vouched(name, CONTENT, b"certificate", f"{name}'s".encode()) for name in signers)
    return replace(state, vouches=vouches)


def with_one_behind(**changes: object) -> Round:
    """An offer that the last silo, who goes first, has accepted without the round's model "e"; the others hold it."""
    state = offer(**{"expected": "e", **changes})  # type: ignore[arg-type]  # a test's offer
    return step(state, accept(state.place, state.invited[-1]), 0.0)[0]


def with_a_void(**changes: object) -> Round:
    """An offer of a second attempt, where the list of the first names a silo that has left for good."""
    state = offer(**changes)  # type: ignore[arg-type]  # a test's offer
    listed = (Listed(state.tensors[0], (*state.invited, "zero")),)
    return replace(
        state, place=Place(STUDY, 1, 2), listed=listed, voiding=(state.tensors[0],), silos=len(state.invited)
    )


def reach(phase: Phase, state: Round | None = None, now: float = 0.0, cursor: int = 0) -> Round:
    """The first moment of a phase, on the straight way to it; of the tensor at `cursor`."""
    if state is None:
        state = with_one_behind() if phase in CATCHING_UP else with_a_void() if phase is Phase.VOID else offer()
    if phase is Phase.ABORTED:
        return step(state, RoundStopped("enough"), now)[0]
    if phase is Phase.WAIT:
        return step(state, Passed(), now=max(now, state.deadline))[0]
    steps = 0
    while state.phase is not phase or state.cursor < cursor:
        assert state.phase not in OVER, state.why
        assert (steps := steps + 1) < ENOUGH, f"the round never comes to {phase}"
        doubts = phase is Phase.JUDGE and state.phase is Phase.CATCH_UP
        refused = phase is Phase.RECOUNT and state.phase is Phase.OPEN and state.cursor == cursor
        events = wanted(state)
        if phase is Phase.EXAMINE and state.phase is Phase.CHECK:
            events = [complaint(state.place, *state.names[:2], liar=state.names[1])]
        elif doubts:
            events = [dispute(state.place, name, Task.CATCH_UP) for name in state.behind]
        elif refused:
            events = [unopened(state, silo) for silo in state.waiting_for]
        for event in events:
            state, _ = step(state, event, now)
    return state
