"""The silo's view of the protocol's order: what a coordinator may ask for, and when.

The coordinator proposes, and the silo checks. `MOVES` lists every task that fits a stage. Work that is out of turn
raises `OutOfTurnError` and changes nothing. A model becomes the silo's own only when the next round is offered on top
of it (`committed`). Until then an attempt can be abandoned and its candidate forgotten.

A task is done only once. Its turn is stored before the silo answers. If work repeats the last task (`repeats`), because
the answer or the process was lost, the silo sends the stored answer again. A silo that is behind may only get keys and
catch up.

Pure: place and task come in, the next turn comes out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Self

from policies.plan.release import KINDS
from protos.messages import Member, Place, Tensor, Work
from protos.steps import STEPS, Need, Note, Task
from silo_agent.errors import SiloError


class Stage(StrEnum):
    """The silo's stage in an attempt."""

    REST = "rest"
    """Between attempts."""
    SEATED = "seated"
    """Has accepted. It has no keys of this roster yet, unless it held them before."""
    GREETED = "greeted"
    """Has greeted a new roster. The keys come next."""
    KEYED = "keyed"
    """Holds the roster's keys. The secrets of the attempt are not shared yet."""
    SHARED = "shared"
    """Has shared the secrets of the attempt. Its contribution comes next."""
    SENT = "sent"
    """Has contributed to the current tensor."""
    SIGNED = "signed"
    """Has signed the list of silos in the sum."""
    REVEALED = "revealed"
    """Has revealed its shares that open the sum."""
    OPENED = "opened"
    """Has opened the sum of the heads. They must be solved and adopted."""


class OutOfTurnError(SiloError):
    """The coordinator asked for work that is out of turn. Nothing was done."""


@dataclass(frozen=True)
class Done:
    """A finished task, with its tensor and its silos."""

    task: Task
    tensor: Tensor | None
    participants: tuple[str, ...] = ()
    survivors: tuple[str, ...] = ()
    actor: str = ""
    """Whose note it was about, if another silo may make one of the kind in this attempt."""

    @classmethod
    def of(cls, work: Work) -> Self:
        """Return the record of `work` as done."""
        # Another silo may share the model in the same attempt. All other notes of one silo come once.
        actor = work.actor if Note.MODEL in STEPS[work.task].fetches else ""
        return cls(work.task, work.tensor, work.participants, work.survivors, actor)


@dataclass(frozen=True)
class Turn:
    """The silo's place in one study. `plan[r]` lists what round r sums."""

    plan: tuple[tuple[Tensor, ...], ...]
    committed: int = -1
    """The last round on which a next round was built."""
    finished: int = -1
    """The last round whose model the silo holds: `committed`, or the candidate of the round after it."""
    place: Place | None = None
    roster: tuple[Member, ...] = ()
    keyed: tuple[Member, ...] = ()
    """The roster whose keys the silo holds."""
    cursor: int = 0
    stage: Stage = Stage.REST
    last: Done | None = None
    """The silo's last finished task in this attempt."""
    behind: bool = False
    """Whether the round builds on a model that this silo does not hold."""
    participants: tuple[str, ...] = ()
    """The silos among which the masks of the current tensor cancel. Set with the contribution."""
    survivors: tuple[str, ...] = ()
    """The silos in the sum of the current tensor. Set with the signature."""
    spoilt: int = 0
    """The last earlier attempt at this round with a proven spoilt sum, after which all was begun anew; 0 for none."""

    @property
    def tensor(self) -> Tensor:
        """The tensor that is being summed in this attempt."""
        if self.place is None:
            msg = "no attempt is in progress"
            raise OutOfTurnError(msg)
        return self.plan[self.place.round][self.cursor]


MOVES: dict[tuple[Stage, Task], Stage] = {
    (Stage.SEATED, Task.VOID): Stage.SEATED,
    (Stage.SEATED, Task.GREET): Stage.GREETED,
    (Stage.GREETED, Task.DEAL): Stage.GREETED,
    (Stage.GREETED, Task.TAKE): Stage.KEYED,
    (Stage.SEATED, Task.SHARE): Stage.SEATED,
    (Stage.SEATED, Task.CATCH_UP): Stage.SEATED,
    (Stage.SEATED, Task.JUDGE): Stage.SEATED,
    (Stage.SEATED, Task.EXCHANGE): Stage.SHARED,
    (Stage.KEYED, Task.SHARE): Stage.KEYED,
    (Stage.KEYED, Task.CATCH_UP): Stage.KEYED,
    (Stage.KEYED, Task.JUDGE): Stage.KEYED,
    (Stage.KEYED, Task.EXCHANGE): Stage.SHARED,
    (Stage.SHARED, Task.CHECK): Stage.SHARED,
    (Stage.SHARED, Task.EXAMINE): Stage.SHARED,
    (Stage.SHARED, Task.CONTRIBUTE): Stage.SENT,
    (Stage.SENT, Task.SIGN): Stage.SIGNED,
    (Stage.SIGNED, Task.REVEAL): Stage.REVEALED,
    (Stage.REVEALED, Task.OPEN): Stage.OPENED,
    (Stage.REST, Task.RECOUNT): Stage.REST,
    (Stage.REST, Task.EXAMINE): Stage.REST,
    (Stage.OPENED, Task.SOLVE): Stage.OPENED,
    (Stage.OPENED, Task.ADOPT): Stage.SHARED,
}
"""The tasks that fit each stage of an attempt. SEATED needs no new keys if the silo holds those of the roster. Who has
refused a sum has left the attempt, and adds its uploads again. Who has complained of what another has sealed has left
it, too, and examines the complaint that came first."""


def planned(turn: Turn, plan: tuple[tuple[Tensor, ...], ...]) -> Turn:
    """Return a stored turn under this version's plan. An earlier version may have stored another one.

    Raises `OutOfTurnError` if the turn is within a round that sums other tensors now.
    """
    place = turn.place
    if turn.plan != plan and place is not None and turn.plan[place.round] != plan[place.round]:
        msg = (
            f"round {place.round} was begun by an earlier version, which summed {', '.join(turn.plan[place.round])} in"
            f" it; this version sums {', '.join(plan[place.round])}, so the study cannot go on; create a new one"
        )
        raise OutOfTurnError(msg)
    return replace(turn, plan=plan)


def sit(turn: Turn, place: Place, spoilt: int = 0) -> Turn:
    """Accept an offer of a new attempt at a round, of which `spoilt` is the last attempt with a proven spoilt sum.

    An offer of round r + 1 commits the candidate of round r, if the silo has finished it. After an offer further ahead
    the silo is behind. Raises `OutOfTurnError` for a round that the silo has committed, and for a place that is not
    later than the last one, so that nothing is asked twice in one place. The last place itself may be offered again
    only if nothing was done in it.
    """
    behind = False
    if place.round == turn.finished + 1:
        turn = replace(turn, committed=turn.finished)
    elif place.round == turn.committed + 1:
        turn = replace(turn, finished=turn.committed)
    elif place.round > turn.finished + 1:
        behind = True
    else:
        msg = f"round {place.round} was offered, but this silo has committed round {turn.committed}"
        raise OutOfTurnError(msg)
    _check_later(turn, place)
    if place.round >= len(turn.plan):
        msg = f"round {place.round} was offered, but the study ends with round {len(turn.plan) - 1}"
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
        spoilt=spoilt,
    )


def _check_later(turn: Turn, place: Place) -> None:
    before = turn.place
    if before is None:
        return
    now, then = (place.round, place.attempt), (before.round, before.attempt)
    if now < then or (now == then and turn.stage is not Stage.SEATED):
        msg = (
            f"round {place.round}, attempt {place.attempt} was offered, but this silo has been in round {before.round},"
            f" attempt {before.attempt} already; begin a later attempt"
        )
        raise OutOfTurnError(msg)


def leave(turn: Turn) -> Turn:
    """Abandon the attempt, because the silo disputed something. Neither its place nor its keys are used again."""
    return replace(turn, roster=(), keyed=(), stage=Stage.REST, last=None)


def repeats(turn: Turn, work: Work) -> bool:
    """Whether the silo's last task was `work`. Then nothing is computed, and the stored answer is sent again."""
    return work.place == turn.place and Done.of(work) == turn.last and work.roster == turn.roster


def take(turn: Turn, work: Work) -> Turn:
    """Return the turn after `work` is done. Raises `OutOfTurnError` if it may not be done now."""
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
    summed = work.task is Task.ADOPT or (work.task is Task.OPEN and not KINDS[turn.tensor].solved)
    return _next_tensor(done) if summed else done


def _check_roster(turn: Turn, work: Work) -> None:
    """Check that the roster is the attempt's, the silo has the needed keys and model, and the tensor is due."""
    step = STEPS[work.task]
    if step.task is Task.VOID:
        _check_void(turn, work)
    if turn.roster and work.roster != turn.roster:
        msg = "the roster changed within an attempt"
        raise OutOfTurnError(msg)
    if Need.KEYS in step.needs and turn.keyed != work.roster:
        msg = f"{work.task} was asked for before the roster's keys were dealt"
        raise OutOfTurnError(msg)
    if Need.MODEL in step.needs and turn.behind:
        msg = f"{work.task} was asked for, but this silo does not hold the model that the round builds on"
        raise OutOfTurnError(msg)
    if "tensor" in step.carries and step.task is not Task.VOID and work.tensor is not turn.tensor:
        msg = f"{work.task} {work.tensor} was asked for, but {turn.tensor} is due"
        raise OutOfTurnError(msg)


def _check_void(turn: Turn, work: Work) -> None:
    """Check that there is an earlier attempt at this round whose sum of this tensor could be voided."""
    place = turn.place
    if place is None or place.attempt == 1 or work.tensor not in turn.plan[place.round]:
        msg = f"{work.tensor} has no earlier attempt in this round that could be voided"
        raise OutOfTurnError(msg)


def _check_names(turn: Turn, work: Work) -> None:
    """Check that participants are in the roster, survivors are participants, and neither changes once given."""
    if work.task in (Task.CHECK, Task.CONTRIBUTE) and not _within(
        work.participants, tuple(m.silo for m in work.roster)
    ):
        msg = "the participants are not sorted names of the roster, each once"
        raise OutOfTurnError(msg)
    if work.task is Task.SIGN and not _within(work.survivors, turn.participants):
        msg = "the survivors are not sorted names of the participants, each once"
        raise OutOfTurnError(msg)
    step, named = STEPS[work.task], (work.participants, work.survivors) == (turn.participants, turn.survivors)
    signed = "survivors" in step.carries and step.task is not Task.SIGN
    if signed and not named:
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
