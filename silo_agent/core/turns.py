"""Whose turn it is, as the silo sees it: what a coordinator may ask for, and in which order.

The coordinator proposes, the silo checks: `MOVES` lists every task that fits a stage. Work that is out of turn raises
`OutOfTurnError` and changes nothing. A model becomes the silo's own only when the next round is offered on top of it
(`committed`); until then an attempt can be abandoned and its candidate forgotten.

A task is done once: its turn is stored before the silo speaks, and work that repeats the last task (`repeats`: the
answer was lost, or the process) is answered with the stored words. A silo that is behind may do nothing but get keys
and catch up.

Pure: place and task come in, the next turn comes out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from protos.messages import Member, Place, Task, Tensor, Work


class Stage(StrEnum):
    """Where the silo stands in an attempt."""

    REST = "rest"
    """Between attempts."""
    SEATED = "seated"
    """Has accepted; no keys of this roster yet, unless it held them before."""
    KEYED = "keyed"
    """Holds the roster's keys; owes a contribution."""
    SENT = "sent"
    """Has contributed to the current tensor."""
    OPENED = "opened"
    """Has opened the heads' sum; they must be solved and adopted."""


class OutOfTurnError(Exception):
    """The coordinator asked for something that is not the silo's turn. Nothing was done."""


@dataclass(frozen=True)
class Done:
    """A task that was done, with the tensor that it was about."""

    task: Task
    tensor: Tensor | None


@dataclass(frozen=True)
class Turn:
    """The silo's place in one study. `plan[r]` lists what round r sums."""

    plan: tuple[tuple[Tensor, ...], ...]
    committed: int = -1
    """The last round that the next one was built on."""
    finished: int = -1
    """The last round of which the silo holds a model: `committed`, or a candidate one round further."""
    place: Place | None = None
    roster: tuple[Member, ...] = ()
    keyed: tuple[Member, ...] = ()
    """The roster whose keys the silo holds."""
    cursor: int = 0
    stage: Stage = Stage.REST
    last: Done | None = None
    """What the silo has done last in this attempt."""
    behind: bool = False
    """The round builds on a model that this silo does not hold."""

    @property
    def tensor(self) -> Tensor:
        """What is being summed in this attempt."""
        if self.place is None:
            msg = "no attempt is under way"
            raise OutOfTurnError(msg)
        return self.plan[self.place.round][self.cursor]


MOVES: dict[tuple[Stage, Task], Stage] = {
    (Stage.SEATED, Task.DEAL): Stage.SEATED,
    (Stage.SEATED, Task.TAKE): Stage.KEYED,
    (Stage.SEATED, Task.SHARE): Stage.SEATED,
    (Stage.SEATED, Task.CATCH_UP): Stage.SEATED,
    (Stage.SEATED, Task.CONTRIBUTE): Stage.SENT,
    (Stage.KEYED, Task.SHARE): Stage.KEYED,
    (Stage.KEYED, Task.CATCH_UP): Stage.KEYED,
    (Stage.KEYED, Task.CONTRIBUTE): Stage.SENT,
    (Stage.SENT, Task.OPEN): Stage.OPENED,
    (Stage.OPENED, Task.SOLVE): Stage.OPENED,
    (Stage.OPENED, Task.ADOPT): Stage.KEYED,
}
"""What may be asked within an attempt. SEATED goes on without new keys where the silo holds the roster's."""
_NEED_KEYS = frozenset({Task.SHARE, Task.CATCH_UP, Task.CONTRIBUTE})
_ASK_TENSOR = frozenset({Task.CONTRIBUTE, Task.OPEN})


def sit(turn: Turn, place: Place) -> Turn:
    """The silo accepts an offer: a new attempt at a round.

    An offer of round r + 1 commits the candidate of round r, if the silo has finished it. An offer further ahead finds
    it behind. An offer of a round that the silo has committed raises `OutOfTurnError`.
    """
    behind = False
    if place.round == turn.finished + 1:
        turn = replace(turn, committed=turn.finished)
    elif place.round == turn.committed + 1:
        turn = replace(turn, finished=turn.committed)
    elif place.round > turn.finished + 1:
        behind = True
    else:
        msg = f"round {place.round} was offered; this silo has committed round {turn.committed}"
        raise OutOfTurnError(msg)
    before = turn.place
    if before is not None and before.round == place.round and place.attempt < before.attempt:
        msg = f"attempt {place.attempt} was offered after attempt {before.attempt}"
        raise OutOfTurnError(msg)
    if place.round >= len(turn.plan):
        msg = f"round {place.round} was offered; the study ends with round {len(turn.plan) - 1}"
        raise OutOfTurnError(msg)
    return replace(turn, place=place, roster=(), cursor=0, stage=Stage.SEATED, last=None, behind=behind)


def leave(turn: Turn) -> Turn:
    """The silo abandons the attempt: it disputed something. Keys of this roster are not used again."""
    return replace(turn, roster=(), keyed=(), stage=Stage.REST, last=None)


def repeats(turn: Turn, work: Work) -> bool:
    """Whether `work` is what the silo has done last: then nothing is computed, the stored answer is given again."""
    return work.place == turn.place and Done(work.task, work.tensor) == turn.last and work.roster == turn.roster


def take(turn: Turn, work: Work) -> Turn:
    """The turn after `work` is done; raises `OutOfTurnError` where it may not be done now."""
    if work.place is None or work.place != turn.place:
        msg = f"{work.task} belongs to another attempt than the one that this silo accepted"
        raise OutOfTurnError(msg)
    following = MOVES.get((turn.stage, work.task))
    if following is None:
        msg = f"{work.task} does not fit the stage {turn.stage}"
        raise OutOfTurnError(msg)
    if turn.roster and work.roster != turn.roster:
        msg = "the roster changed within an attempt"
        raise OutOfTurnError(msg)
    if work.task in _NEED_KEYS and turn.keyed != work.roster:
        msg = f"{work.task} was asked for before the roster's keys were dealt"
        raise OutOfTurnError(msg)
    if work.task in (Task.SHARE, Task.CONTRIBUTE) and turn.behind:
        msg = f"{work.task} was asked for, but this silo does not hold the model that the round builds on"
        raise OutOfTurnError(msg)
    if work.task in _ASK_TENSOR and work.tensor is not turn.tensor:
        msg = f"{work.task} {work.tensor} was asked for, {turn.tensor} is due"
        raise OutOfTurnError(msg)
    done = replace(turn, roster=work.roster, last=Done(work.task, work.tensor))
    if work.task is Task.TAKE:
        return replace(done, keyed=work.roster, stage=following)
    if work.task is Task.CATCH_UP:
        base = work.place.round - 1
        return replace(done, stage=following, behind=False, committed=base, finished=base)
    if work.task is Task.ADOPT or (work.task is Task.OPEN and turn.tensor is not Tensor.HEADS):
        return _next_tensor(done)
    return replace(done, stage=following)


def _next_tensor(turn: Turn) -> Turn:
    place = turn.place
    if place is None or turn.cursor + 1 < len(turn.plan[place.round]):
        return replace(turn, cursor=turn.cursor + 1, stage=Stage.KEYED)
    return replace(turn, finished=place.round, stage=Stage.REST)
