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
from typing import Self

from protos.messages import Member, Place, Task, Tensor, Work
from silo_agent.errors import SiloError


class Stage(StrEnum):
    """Where the silo stands in an attempt."""

    REST = "rest"
    """Between attempts."""
    SEATED = "seated"
    """Has accepted; no keys of this roster yet, unless it held them before."""
    GREETED = "greeted"
    """Has greeted a new roster; keys follow."""
    KEYED = "keyed"
    """Holds the roster's keys; the secrets of the attempt are not shared yet."""
    SHARED = "shared"
    """Has shared the secrets of the attempt; owes a contribution."""
    SENT = "sent"
    """Has contributed to the current tensor."""
    SIGNED = "signed"
    """Has signed who is in the sum."""
    REVEALED = "revealed"
    """Has revealed what the sum is opened with."""
    OPENED = "opened"
    """Has opened the heads' sum; they must be solved and adopted."""


class OutOfTurnError(SiloError):
    """The coordinator asked for something that is not the silo's turn. Nothing was done."""


@dataclass(frozen=True)
class Done:
    """A task that was done, with the tensor and the silos that it was about."""

    task: Task
    tensor: Tensor | None
    participants: tuple[str, ...] = ()
    survivors: tuple[str, ...] = ()

    @classmethod
    def of(cls, work: Work) -> Self:
        """What is done when `work` is."""
        return cls(work.task, work.tensor, work.participants, work.survivors)


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
    participants: tuple[str, ...] = ()
    """Among whom the masks of the current tensor cancel; set with the contribution."""
    survivors: tuple[str, ...] = ()
    """Who is in the sum of the current tensor; set with the signature."""

    @property
    def tensor(self) -> Tensor:
        """What is being summed in this attempt."""
        if self.place is None:
            msg = "no attempt is under way"
            raise OutOfTurnError(msg)
        return self.plan[self.place.round][self.cursor]


MOVES: dict[tuple[Stage, Task], Stage] = {
    (Stage.SEATED, Task.GREET): Stage.GREETED,
    (Stage.GREETED, Task.DEAL): Stage.GREETED,
    (Stage.GREETED, Task.TAKE): Stage.KEYED,
    (Stage.SEATED, Task.SHARE): Stage.SEATED,
    (Stage.SEATED, Task.CATCH_UP): Stage.SEATED,
    (Stage.SEATED, Task.EXCHANGE): Stage.SHARED,
    (Stage.KEYED, Task.SHARE): Stage.KEYED,
    (Stage.KEYED, Task.CATCH_UP): Stage.KEYED,
    (Stage.KEYED, Task.EXCHANGE): Stage.SHARED,
    (Stage.SHARED, Task.CONTRIBUTE): Stage.SENT,
    (Stage.SENT, Task.SIGN): Stage.SIGNED,
    (Stage.SIGNED, Task.REVEAL): Stage.REVEALED,
    (Stage.REVEALED, Task.OPEN): Stage.OPENED,
    (Stage.OPENED, Task.SOLVE): Stage.OPENED,
    (Stage.OPENED, Task.ADOPT): Stage.SHARED,
}
"""What may be asked within an attempt. SEATED goes on without new keys where the silo holds the roster's."""
_NEED_KEYS = frozenset({Task.SHARE, Task.CATCH_UP, Task.EXCHANGE, Task.CONTRIBUTE})
_NEED_MODEL = frozenset({Task.SHARE, Task.EXCHANGE, Task.CONTRIBUTE})
_ASK_TENSOR = frozenset({Task.CONTRIBUTE, Task.SIGN, Task.REVEAL, Task.OPEN})
_AFTER_SIGNING = frozenset({Task.REVEAL, Task.OPEN})


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
    return replace(
        turn,
        place=place,
        roster=(),
        cursor=0,
        stage=Stage.SEATED,
        last=None,
        behind=behind,
        participants=(),
        survivors=(),
    )


def leave(turn: Turn) -> Turn:
    """The silo abandons the attempt: it disputed something. Keys of this roster are not used again."""
    return replace(turn, roster=(), keyed=(), stage=Stage.REST, last=None)


def repeats(turn: Turn, work: Work) -> bool:
    """Whether `work` is what the silo has done last: then nothing is computed, the stored answer is given again."""
    return work.place == turn.place and Done.of(work) == turn.last and work.roster == turn.roster


def take(turn: Turn, work: Work) -> Turn:
    """The turn after `work` is done; raises `OutOfTurnError` where it may not be done now."""
    if work.place is None or work.place != turn.place:
        msg = f"{work.task} belongs to another attempt than the one that this silo accepted"
        raise OutOfTurnError(msg)
    following = MOVES.get((turn.stage, work.task))
    if following is None:
        msg = f"{work.task} does not fit the stage {turn.stage}"
        raise OutOfTurnError(msg)
    _check_roster(turn, work)
    _check_names(turn, work)
    done = replace(turn, roster=work.roster, stage=following, last=Done.of(work))
    match work.task:
        case Task.TAKE:
            return replace(done, keyed=work.roster)
        case Task.CATCH_UP:
            base = work.place.round - 1
            return replace(done, behind=False, committed=base, finished=base)
        case Task.CONTRIBUTE:
            return replace(done, participants=work.participants)
        case Task.SIGN:
            return replace(done, survivors=work.survivors)
    summed = work.task is Task.ADOPT or (work.task is Task.OPEN and turn.tensor is not Tensor.HEADS)
    return _next_tensor(done) if summed else done


def _check_roster(turn: Turn, work: Work) -> None:
    """The roster is the attempt's, this silo has its keys and model where they are needed, and the tensor is due."""
    if turn.roster and work.roster != turn.roster:
        msg = "the roster changed within an attempt"
        raise OutOfTurnError(msg)
    if work.task in _NEED_KEYS and turn.keyed != work.roster:
        msg = f"{work.task} was asked for before the roster's keys were dealt"
        raise OutOfTurnError(msg)
    if work.task in _NEED_MODEL and turn.behind:
        msg = f"{work.task} was asked for, but this silo does not hold the model that the round builds on"
        raise OutOfTurnError(msg)
    if work.task in _ASK_TENSOR and work.tensor is not turn.tensor:
        msg = f"{work.task} {work.tensor} was asked for, {turn.tensor} is due"
        raise OutOfTurnError(msg)


def _check_names(turn: Turn, work: Work) -> None:
    """Participants are of the roster, survivors of the participants; once given, neither changes."""
    if work.task is Task.CONTRIBUTE and not _within(work.participants, tuple(m.silo for m in work.roster)):
        msg = "the participants are not sorted names of the roster, each once"
        raise OutOfTurnError(msg)
    if work.task is Task.SIGN and not _within(work.survivors, turn.participants):
        msg = "the survivors are not sorted names of the participants, each once"
        raise OutOfTurnError(msg)
    named = (work.participants, work.survivors) == (turn.participants, turn.survivors)
    if work.task in _AFTER_SIGNING and not named:
        msg = f"{work.task} names other participants or survivors than this silo has signed"
        raise OutOfTurnError(msg)


def _within(names: tuple[str, ...], among: tuple[str, ...]) -> bool:
    return list(names) == sorted(set(names)) and set(names) <= set(among)


def _next_tensor(turn: Turn) -> Turn:
    turn = replace(turn, participants=(), survivors=())
    place = turn.place
    if place is None or turn.cursor + 1 < len(turn.plan[place.round]):
        return replace(turn, cursor=turn.cursor + 1, stage=Stage.SHARED)
    return replace(turn, finished=place.round, stage=Stage.REST)
