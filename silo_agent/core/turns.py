"""Whose turn it is, as the silo sees it: what a coordinator may ask for, and in which order.

The coordinator proposes, the silo checks: `MOVES` lists every task that fits a stage. Work that is out of turn raises
`OutOfTurnError` and changes nothing. A model becomes the silo's own only when the next round is offered on top of it
(`committed`); until then an attempt can be abandoned and its candidate forgotten.

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
    (Stage.SEATED, Task.CONTRIBUTE): Stage.SENT,
    (Stage.KEYED, Task.TAKE): Stage.KEYED,
    (Stage.KEYED, Task.CONTRIBUTE): Stage.SENT,
    (Stage.SENT, Task.CONTRIBUTE): Stage.SENT,
    (Stage.SENT, Task.OPEN): Stage.OPENED,
    (Stage.OPENED, Task.OPEN): Stage.OPENED,
    (Stage.OPENED, Task.SOLVE): Stage.OPENED,
    (Stage.OPENED, Task.ADOPT): Stage.KEYED,
}
"""What may be asked within an attempt. A task may repeat, because an answer can be lost on its way."""


def sit(turn: Turn, place: Place) -> Turn:
    """The silo accepts an offer: a new attempt at the round after the last committed one.

    An offer of round r + 1 commits the candidate of round r, if the silo has finished it.
    """
    if place.round == turn.finished + 1:
        turn = replace(turn, committed=turn.finished)
    elif place.round == turn.committed + 1:
        turn = replace(turn, finished=turn.committed)
    else:
        msg = f"round {place.round} was offered; this silo has finished round {turn.finished}"
        raise OutOfTurnError(msg)
    before = turn.place
    if before is not None and before.round == place.round and place.attempt < before.attempt:
        msg = f"attempt {place.attempt} was offered after attempt {before.attempt}"
        raise OutOfTurnError(msg)
    return replace(turn, place=place, roster=(), cursor=0, stage=Stage.SEATED)


def leave(turn: Turn) -> Turn:
    """The silo abandons the attempt: it disputed something. Keys of this roster are not used again."""
    return replace(turn, roster=(), keyed=(), stage=Stage.REST)


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
    turn = replace(turn, roster=work.roster)
    if work.task is Task.TAKE:
        return replace(turn, keyed=work.roster, stage=following)
    if work.task in (Task.CONTRIBUTE, Task.OPEN):
        if work.task is Task.CONTRIBUTE and turn.keyed != turn.roster:
            msg = "a contribution was asked for before the roster's keys were dealt"
            raise OutOfTurnError(msg)
        if work.tensor is not turn.tensor:
            msg = f"{work.task} {work.tensor} was asked for, {turn.tensor} is due"
            raise OutOfTurnError(msg)
    if work.task is Task.ADOPT or (work.task is Task.OPEN and turn.tensor is not Tensor.HEADS):
        return _next_tensor(turn)
    return replace(turn, stage=following)


def _next_tensor(turn: Turn) -> Turn:
    place = turn.place
    if place is None or turn.cursor + 1 < len(turn.plan[place.round]):
        return replace(turn, cursor=turn.cursor + 1, stage=Stage.KEYED)
    return replace(turn, finished=place.round, stage=Stage.REST)
