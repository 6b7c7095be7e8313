"""The steps of an attempt, one row each: who acts, what comes with the work, what is fetched, needed and sent.

Both ends read this table. Their own `MOVES` say in which order the steps come: `coordinator.core.round` by phases,
`silo_agent.core.turns` by stages. How many bytes a note may have is the study's affair (`policies.plan.note_sizes`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal


class Task(StrEnum):
    """The next task of a silo. `WAIT` and `FINISH` belong to no attempt; every other task is a step of one."""

    WAIT = "wait"
    DECIDE = "decide"
    GREET = "greet"
    DEAL = "deal"
    TAKE = "take"
    EXCHANGE = "exchange"
    CONTRIBUTE = "contribute"
    SIGN = "sign"
    REVEAL = "reveal"
    OPEN = "open"
    SOLVE = "solve"
    ADOPT = "adopt"
    FINISH = "finish"
    SHARE = "share"
    CATCH_UP = "catch_up"
    VOID = "void"
    RECOUNT = "recount"
    CHECK = "check"
    JUDGE = "judge"
    EXAMINE = "examine"


class Note(StrEnum):
    """Notes that one silo seals for the others. The coordinator relays them without reading them."""

    KEYS = "keys"
    HEADS = "heads"
    MODEL = "model"
    GREETING = "greeting"
    SHARES = "shares"
    REVEAL = "reveal"
    """Sent once for every tensor. All other notes are sent once in an attempt."""


SUM: Final = "sum"
"""The kind by which a sum is requested, beside the kinds of notes."""
OF_TENSOR: Final = (SUM, Note.REVEAL)
"""The kinds that are fetched by the name of their tensor."""


class Who(StrEnum):
    """The silos that do a step."""

    INVITED = "invited"
    """Who was asked to take part and has not answered."""
    PRESENT = "present"
    """The roster, without the silos that were set aside. While contributions are gathered: the participants."""
    ACTOR = "actor"
    """One silo for all, in rotation."""
    BEHIND = "behind"
    """Who does not hold the model that the round builds on."""
    HOLDERS = "holders"
    """Who holds it, without the silo that shared it."""
    OTHERS = "others"
    """Who is neither the silo that complains nor the one that it complains about."""
    REFUSERS = "refusers"
    """Who has refused the sum."""


class Need(StrEnum):
    """What a silo must hold before a step, besides what its stage implies."""

    KEYS = "keys"
    """The roster's keys."""
    MODEL = "model"
    """The model that the round builds on."""


class Reply(StrEnum):
    """What a silo sends at the end of a step, if it is no note."""

    ANSWER = "answer"
    CONFIRMATION = "confirmation"
    TENSOR = "tensor"
    """Its sealed contribution."""


@dataclass(frozen=True)
class Step:
    """One step. Its silos may dispute it at any time; what is said of disputes here is what else follows from them."""

    task: Task
    who: Who
    limit: Literal["offer", "keys", "train", "open", "solve"]
    """Which of the coordinator's limits says how long it may last."""
    sends: Note | Reply = Reply.CONFIRMATION
    """What the silo sends at the end."""
    fetches: tuple[str, ...] = ()
    """The kinds of what others have sent, or `SUM`. The work names each, with its digest."""
    by_owner: tuple[Note, ...] = ()
    """The kinds of notes of which the silo fetches its own slices, by their owners' names. What the owners have signed
    says whether these are right, so the work names none."""
    carries: tuple[str, ...] = ()
    """The fields of `protos.messages.Work` that belong to this step, beside those of every step."""
    needs: tuple[Need, ...] = ()
    """What the silo must hold."""
    changes_model: bool = False
    """Whether the silo holds another model afterwards. It confirms which."""
    complains: bool = False
    """Whether a silo may complain about another's keys or greeting, or about what another has sealed for it."""
    judged: bool = False
    """Whether all judge the same bytes. What one objects to there, others may object to as well, so all are heard
    before anything follows from it."""
    ends: bool = False
    """Whether the attempt ends with it in any case. Silence lies at nobody then."""

    @property
    def note(self) -> Note | None:
        """The note that a silo uploads at the end, if any."""
        return self.sends if isinstance(self.sends, Note) else None

    @property
    def confirmed(self) -> bool:
        """Whether it ends with a confirmation."""
        return self.sends is Reply.CONFIRMATION

    @property
    def of_tensor(self) -> bool:
        """Whether what the silo sends names the tensor of the work. Heads alone are solved, so nothing names them."""
        return "tensor" in self.carries and Note.HEADS not in (self.sends, *self.fetches)


_SUMMED: Final = ("tensor", "participants")
_ADDED: Final = (*_SUMMED, "survivors")
STEPS: Final[Mapping[Task, Step]] = {
    step.task: step
    for step in (
        Step(Task.DECIDE, Who.INVITED, "offer", sends=Reply.ANSWER, carries=("spoilt",)),
        Step(Task.VOID, Who.PRESENT, "open", carries=("tensor",)),
        Step(Task.GREET, Who.PRESENT, "keys", sends=Note.GREETING, complains=True),
        Step(Task.DEAL, Who.ACTOR, "keys", sends=Note.KEYS, by_owner=(Note.GREETING,), complains=True),
        Step(
            Task.TAKE,
            Who.PRESENT,
            "keys",
            fetches=(Note.KEYS,),
            by_owner=(Note.GREETING,),
            complains=True,
            judged=True,
        ),
        Step(Task.SHARE, Who.ACTOR, "open", sends=Note.MODEL, needs=(Need.KEYS, Need.MODEL)),
        Step(
            Task.CATCH_UP,
            Who.BEHIND,
            "open",
            fetches=(Note.MODEL,),
            carries=("vouches",),
            needs=(Need.KEYS,),
            judged=True,
            changes_model=True,
        ),
        Step(Task.JUDGE, Who.HOLDERS, "open", fetches=(Note.MODEL,), needs=(Need.KEYS, Need.MODEL), judged=True),
        Step(Task.EXCHANGE, Who.PRESENT, "keys", sends=Note.SHARES, needs=(Need.KEYS, Need.MODEL)),
        Step(
            Task.CHECK,
            Who.PRESENT,
            "keys",
            by_owner=(Note.SHARES,),
            carries=("participants",),
            needs=(Need.KEYS,),
            complains=True,
        ),
        Step(Task.EXAMINE, Who.OTHERS, "keys", fetches=(Note.SHARES,), carries=("complaint",), judged=True, ends=True),
        Step(
            Task.CONTRIBUTE,
            Who.PRESENT,
            "train",
            sends=Reply.TENSOR,
            by_owner=(Note.SHARES,),
            carries=(*_SUMMED, "void"),
            needs=(Need.KEYS, Need.MODEL),
        ),
        Step(Task.SIGN, Who.PRESENT, "open", carries=_ADDED),
        Step(Task.REVEAL, Who.PRESENT, "open", sends=Note.REVEAL, carries=(*_ADDED, "signatures")),
        Step(
            Task.OPEN,
            Who.PRESENT,
            "open",
            fetches=(SUM, Note.REVEAL),
            by_owner=(Note.SHARES,),
            carries=(*_ADDED, "uploads"),
            judged=True,
            changes_model=True,
        ),
        Step(Task.RECOUNT, Who.REFUSERS, "train", carries=(*_ADDED, "uploads"), judged=True, ends=True),
        Step(Task.SOLVE, Who.ACTOR, "solve", sends=Note.HEADS, carries=_ADDED),
        Step(Task.ADOPT, Who.PRESENT, "solve", fetches=(Note.HEADS,), carries=_ADDED, judged=True, changes_model=True),
    )
}
"""Every task that is a step of an attempt, in the order in which they come."""
MADE_BY_ACTOR: Final = frozenset(step.note for step in STEPS.values() if step.who is Who.ACTOR and step.note)
"""The notes that one silo seals for all."""
