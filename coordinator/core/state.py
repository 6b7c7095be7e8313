"""State of one attempt at one round: its phases, its roster, who was lost, what was collected. Values, no moves.

Guarantees: everything that a silo may be asked, told or given in a phase follows from the state alone. `core.round`
changes the state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from hashlib import sha256
from typing import Final, Self

from crypto.secagg.circle import Circle, reach_of
from crypto.secagg.spoilt import SpoiltStatement
from protos.messages import Complaint, Member, Part, Place, Signature, Spoilt, Tensor, Upload, Void
from protos.steps import MADE_BY_ACTOR, STEPS, SUM, Note, Step, Task, Who


class Phase(StrEnum):
    """The phase of an attempt."""

    OFFER = "offer"
    WAIT = "wait"
    """The offer's time is up and there are too few seats. The offer is opened again when an absent silo calls."""
    VOID = "void"
    """A silo that an earlier attempt listed is gone for good. The others close the list, unless they have opened it."""
    GREET = "greet"
    DEAL = "deal"
    TAKE = "take"
    SHARE = "share"
    CATCH_UP = "catch_up"
    JUDGE = "judge"
    """A silo refuses the model that was shared. Those who hold the model say whether the note is false."""
    EXCHANGE = "exchange"
    CHECK = "check"
    """Silos read what the others have dealt to them, before anything is uploaded."""
    EXAMINE = "examine"
    """A silo shows what another has sealed for it, and says that it is wrong. The others find out who of them lied."""
    GATHER = "gather"
    ADD = "add"
    SIGN = "sign"
    REVEAL = "reveal"
    OPEN = "open"
    RECOUNT = "recount"
    """Too many silos have refused a sum. They add the uploads again, and state that the sum is spoilt."""
    SOLVE = "solve"
    ADOPT = "adopt"
    COMMITTED = "committed"
    ABORTED = "aborted"


OVER = frozenset({Phase.COMMITTED, Phase.ABORTED})
_TASKS = {Phase.OFFER: Task.DECIDE, Phase.GATHER: Task.CONTRIBUTE}
"""The task of a phase, if it has another name."""
_IDLE = (Phase.WAIT, Phase.ADD, *OVER)
"""Phases in which silos have nothing to do."""
IN_PHASE: Final[Mapping[Phase, Step]] = {
    phase: STEPS[_TASKS.get(phase) or Task(phase)] for phase in Phase if phase not in _IDLE
}
"""The step that silos do in a phase."""
RELAYED = {phase: step.note for phase, step in IN_PHASE.items() if step.note and step.who is Who.ACTOR}
"""The note that the actor seals for the others in a phase."""
COLLECTED = {phase: step.note for phase, step in IN_PHASE.items() if step.note and step.who is not Who.ACTOR}
"""The note that every present silo seals for the others in a phase."""
CONFIRMED = {phase: step.task for phase, step in IN_PHASE.items() if step.confirmed}
"""The task that all silos concerned must confirm before a phase ends."""
COMPLAINED = {phase: step.task for phase, step in IN_PHASE.items() if step.complains}
"""The task in which a silo may complain about what another has offered, sent or sealed."""
JUDGED = tuple(phase for phase, step in IN_PHASE.items() if step.judged)
"""The phases in which silos judge the same bytes."""
ENDING = tuple(phase for phase, step in IN_PHASE.items() if step.ends)
"""The phases that end an attempt in any case."""
ADDED = tuple(phase for phase, step in IN_PHASE.items() if "survivors" in step.carries and not step.ends)
"""Phases of a tensor after its sum has been made."""
SUMMING = (Phase.GATHER, Phase.ADD, *ADDED)
"""Phases of a tensor."""
SPARING = (Phase.EXCHANGE, Phase.CHECK, *SUMMING)
"""Phases in which a lost silo is set aside, if enough others stay. In earlier phases the loss ends the attempt,
because the roster's keys, and the shares of them, are made for the whole roster."""


@dataclass(frozen=True)
class PhaseLimits:
    """Seconds each kind of phase may last."""

    offer: float
    keys: float
    train: float
    open: float
    solve: float

    def of(self, phase: Phase) -> float:
        """Return the seconds for a phase. Adding may last as long as gathering, though it should not."""
        if phase is Phase.ADD:
            return self.train
        step = IN_PHASE.get(phase)
        return float("inf") if step is None else float(getattr(self, step.limit))


@dataclass(frozen=True)
class Seat:
    """A silo that has accepted, with the keys that it brought, the key store that holds them, and its model."""

    member: Member
    session: str
    model: str


@dataclass(frozen=True)
class OfferedKeys:
    """SHA-256 of the two keys that a silo has offered last, lowercase hex. All of a roster have seen its keys."""

    silo: str
    public: str
    kem: str

    @classmethod
    def by(cls, member: Member) -> Self:
        """Return what a member shows."""
        return cls(member.silo, *(sha256(key).hexdigest() for key in (member.public_key, member.kem_key)))

    def is_of(self, other: Self) -> bool:
        """Whether a key of this silo is another silo's."""
        return self.silo != other.silo and (self.public == other.public or self.kem == other.kem)


@dataclass(frozen=True)
class Dataless:
    """A silo whose hospital has not yet given the study's data. It is asked again from a time on."""

    silo: str
    again: float


@dataclass(frozen=True)
class Refusal:
    """A silo's refusal, with its reason."""

    silo: str
    reason: str
    explanation: str


@dataclass(frozen=True)
class Loss:
    """A silo that was set aside for the rest of the attempt."""

    silo: str
    why: str


@dataclass(frozen=True)
class Listed:
    """The silos that were given out as the survivors of a tensor's sum."""

    tensor: Tensor
    silos: tuple[str, ...]
    opening: bool = False
    """Whether enough silos have signed it. From then on silos may have revealed for it, so it may have to stay."""


@dataclass(frozen=True)
class Voided:
    """The proof that lists of a tensor bind nobody any more, for silos that have not seen it."""

    tensor: Tensor
    void: Void


@dataclass(frozen=True)
class Objection:
    """What a silo objects to in a phase in which all judge the same bytes."""

    silo: str
    why: str
    dispute: str = ""
    """The name of the reason."""


@dataclass(frozen=True)
class Vouched:
    """A silo's signature that it holds a model of this content after a round (`crypto.secagg.holding`)."""

    silo: str
    content: str
    certificate_pem: bytes
    signature: bytes


@dataclass(frozen=True)
class Stated:
    """A silo's signed statement that it refused the current sum, and whose signed notes show the fault, if any do."""

    silo: str
    culprit: str
    signature: bytes


@dataclass(frozen=True)
class Examined:
    """Whom a silo finds to have lied in the complaint that all examine."""

    silo: str
    liar: str


@dataclass(frozen=True)
class Held:
    """The digest of the model that a silo confirmed in the current phase, and its signature if it ends the round."""

    silo: str
    model: str
    vouched: Vouched | None = None


@dataclass(frozen=True)
class Round:
    """State of one attempt. `cursor` indexes `tensors`; `done` holds who has acted in the current phase."""

    place: Place
    tensors: tuple[Tensor, ...]
    invited: tuple[str, ...]
    min_silos: int
    colluders: int
    recovers: bool
    """Whether the round goes on without a silo that is lost after the exchange."""
    limits: PhaseLimits
    keyed: tuple[Member, ...] = ()
    """The roster that has its keys already. Any other roster must greet and deal."""
    expected: str = ""
    """Keyed digest of the model after the last committed round."""
    absent: frozenset[str] = frozenset()
    """Silos that are asked but not waited for."""
    listed: tuple[Listed, ...] = ()
    """Lists of survivors that were given out for signing in this attempt or an earlier one. Silos sign no others."""
    voiding: tuple[Tensor, ...] = ()
    """The tensors whose lists name a silo that is gone for good. This attempt begins with voiding them."""
    voided: tuple[Voided, ...] = ()
    """What was voided in this attempt or an earlier one."""
    silos: int = 0
    """Number of silos that the study lists, of which the threshold is computed."""
    left_out: frozenset[str] = frozenset()
    """Silos that disputed again where the attempt could not go on without them. They are asked no more."""
    complaints: tuple[str, ...] = ()
    """Silos at whom it lay that a dispute has ended an attempt of this study. From now on the others go on without such
    a silo."""
    spoilers: tuple[str, ...] = ()
    """Silos at which the earlier attempts at this round ended, each as often as one did."""
    repeated: frozenset[str] = frozenset()
    """Silos of `complaints` that were set aside in this attempt because of another dispute."""
    dropped: frozenset[str] = frozenset()
    """Silos that have disputed in this attempt. They have left it, and have dropped the roster's keys."""
    objections: tuple[Objection, ...] = ()
    """What silos have objected to in the current phase."""
    vouches: tuple[Vouched, ...] = ()
    """Who has signed the model that the round builds on, by name."""
    unshared: tuple[str, ...] = ()
    """Silos whose shared model was refused in this round. Others share."""
    doubts: tuple[Objection, ...] = ()
    """Who refuses the model that was shared, while others judge it."""
    phase: Phase = Phase.OFFER
    since: float = 0.0
    cursor: int = 0
    shown: tuple[OfferedKeys, ...] = ()
    """The keys that each silo has offered last in earlier attempts of the study, by name."""
    seats: tuple[Seat, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    dataless: tuple[Dataless, ...] = ()
    """Silos that said that they have no data yet. They count as away, and may come later."""
    threshold: int = 0
    """Number of silos that must stay so that the sums can be opened. It is known once the roster is."""
    done: frozenset[str] = frozenset()
    parts: tuple[Part, ...] = ()
    """What silos may fetch: all notes of the attempt until the first tensor is done, then shares and the current
    tensor's."""
    losses: tuple[Loss, ...] = ()
    participants: tuple[str, ...] = ()
    """The silos that were present when the current tensor's gathering began."""
    survivors: tuple[str, ...] = ()
    """The silos whose contributions are in the current tensor's sum. A tensor has one list, which never changes."""
    signatures: tuple[Signature, ...] = ()
    """The silos' signatures over the list of survivors."""
    uploads: tuple[Upload, ...] = ()
    """What the participants have uploaded and revealed of the current tensor, as they signed it."""
    refusers: tuple[str, ...] = ()
    """The silos that refused the current sum, and are asked to add the uploads again."""
    stated: tuple[Stated, ...] = ()
    """What they have stated since."""
    spoilt: Spoilt | None = None
    """The last proof of a spoilt sum in this attempt or an earlier one at this round."""
    complaint: Complaint | None = None
    """The complaint that ends this attempt, once the others have examined it."""
    liar: str = ""
    """Who lied in it, as the coordinator finds."""
    examined: tuple[Examined, ...] = ()
    """What the others find."""
    blamed: tuple[str, ...] = ()
    """Silos of which at least one is hostile, as a complaint in this attempt shows."""
    held: tuple[Held, ...] = ()
    model: str = ""
    """The digest of the model that most silos held after the last phase that changed the model."""
    why: str = ""
    culprits: tuple[str, ...] = field(default=())
    patience: float = 0.0
    """Seconds that the phase may last, if those that it waits for have too little of their budgets left for its limit
    (`core.slowness`); 0 if they have enough."""

    @property
    def step(self) -> Step | None:
        """What silos do in this phase; None if they have nothing to do."""
        return IN_PHASE.get(self.phase)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The roster's names."""
        return tuple(seat.member.silo for seat in self.seats)

    @cached_property
    def circle(self) -> Circle:
        """Who of the roster holds shares of whose secrets, once the roster is known."""
        return Circle(self.names, reach_of(self.silos, self.colluders, self.threshold))

    @cached_property
    def members(self) -> tuple[Member, ...]:
        """The roster's members, sorted by name."""
        return tuple(seat.member for seat in self.seats)

    @property
    def all_shown(self) -> tuple[OfferedKeys, ...]:
        """The keys that each silo has offered last, in this attempt too, by name."""
        known = {one.silo: one for one in (*self.shown, *map(OfferedKeys.by, self.members))}
        return tuple(known[silo] for silo in sorted(known))

    @cached_property
    def lost(self) -> frozenset[str]:
        """Names of silos that were set aside. They get no work in this attempt, and nothing that they send counts."""
        return frozenset(loss.silo for loss in self.losses)

    def why_lost(self, silo: str) -> str:
        """Return why a silo was set aside; empty if it was not."""
        return next((loss.why for loss in self.losses if loss.silo == silo), "")

    @cached_property
    def present(self) -> tuple[str, ...]:
        """The roster's names without the lost."""
        lost = self.lost
        return tuple(name for name in self.names if name not in lost)

    @property
    def behind(self) -> tuple[str, ...]:
        """Silos whose model is not the one that the round builds on."""
        return tuple(seat.member.silo for seat in self.seats if seat.model != self.expected)

    @property
    def sharers(self) -> tuple[str, ...]:
        """Silos that can share the model: they hold it and have signed it, and no note of theirs was refused."""
        signers = {one.silo for one in self.vouches}
        unable = {*self.behind, *self.unshared}
        return tuple(name for name in self.present if name in signers and name not in unable)

    @property
    def tensor(self) -> Tensor | None:
        """The tensor that is being summed, or whose list is voided; None before the first sum and after the last."""
        if self.phase is Phase.VOID:
            return self.voiding[0]
        return self.tensors[self.cursor] if self.phase in (*SUMMING, Phase.RECOUNT) else None

    @property
    def actor(self) -> str:
        """The silo that deals keys, shares the model or solves, or whose note is fetched now; else empty.

        The actor rotates with round and attempt. Silos that cannot act are skipped, so the loss of another silo does
        not change the actor.
        """
        step = self.step
        if step is None:
            return ""
        if made := MADE_BY_ACTOR.intersection(step.fetches):
            return next(part.silo for part in self.parts if part.kind in made)
        if step.who is not Who.ACTOR:
            return ""
        first = (self.place.round + self.place.attempt) % len(self.names)
        able = self.sharers if self.phase is Phase.SHARE else self.present
        return next(name for name in (*self.names[first:], *self.names[:first]) if name in able)

    @property
    def judges(self) -> tuple[str, ...]:
        """Silos that hold the model that the actor has shared, other than the actor."""
        unfit = {*self.behind, self.actor}
        return tuple(name for name in self.present if name not in unfit)

    @property
    def deadline(self) -> float:
        """The time at which the current phase has lasted too long."""
        limit = self.limits.of(self.phase)
        return self.since + (min(limit, self.patience) if self.patience else limit)

    @property
    def unanswered(self) -> tuple[str, ...]:
        """Invited silos that have neither accepted nor refused."""
        answered = {*self.names, *(refusal.silo for refusal in self.refusals)}
        return tuple(name for name in self.invited if name not in answered)

    def list_of(self, tensor: Tensor) -> tuple[str, ...]:
        """Return the only survivors whose sum of a tensor this round can still open; empty if there is no list yet."""
        return next((one.silos for one in self.listed if one.tensor is tensor), ())

    @property
    def required(self) -> tuple[str, ...]:
        """Silos that every new attempt at the round needs: those of its first sum, once its list was given out."""
        return () if self.tensors[0] in self.voiding else self.list_of(self.tensors[0])

    def void_of(self, tensor: Tensor) -> Void | None:
        """Return what has closed the earlier lists of a tensor; None if nothing has."""
        return next((one.void for one in self.voided if one.tensor is tensor), None)

    @property
    def promised(self) -> Void:
        """The promises of the phase that voids a list, with the certificates of those who made them."""
        names = {one.silo for one in self.signatures}
        certificates = tuple(member.certificate_pem for member in self.members if member.silo in names)
        return Void(self.place.attempt - 1, self.signatures, certificates)

    @property
    def given(self) -> tuple[Upload, ...]:
        """The uploads of all survivors, in order of name; empty if the signature of one is not known."""
        sent = [one for one in self.uploads if one.part.kind != Note.REVEAL]
        given = tuple(one for one in sent if one.part.silo in self.survivors)
        return given if tuple(one.part.silo for one in given) == self.survivors else ()

    @property
    def revealed(self) -> tuple[Upload, ...]:
        """What the survivors have revealed for the current tensor, in order of name, as far as they have signed it."""
        sent = [one for one in self.uploads if one.part.kind == Note.REVEAL]
        return tuple(one for one in sent if one.part.silo in self.survivors)

    def statement(self, culprit: str) -> SpoiltStatement:
        """Return what a silo states that refused the current sum."""
        place, total = self.place, next(part.sha256 for part in self.parts if part.kind == SUM)
        tensor = str(self.tensors[self.cursor])
        return SpoiltStatement(place.study, place.round, place.attempt, tensor, self.survivors, total, culprit)

    @property
    def possible(self) -> bool:
        """Whether the seats suffice once all have answered."""
        hoped = {*self.names, *self.unanswered}
        return len(hoped) >= self.min_silos and hoped.issuperset(self.required)

    @property
    def lacking(self) -> str:
        """What the seats lack for a roster; empty if they lack nothing."""
        if missing := [name for name in self.required if name not in self.names]:
            return f"the list of survivors that was given out in this round also needs {', '.join(missing)}"
        if len(self.seats) < self.min_silos:
            return f"{len(self.seats)} silos take part, the study needs {self.min_silos}"
        if len(self.behind) == len(self.seats):
            return f"none of {', '.join(self.names)} holds the model of the last committed round"
        return ""

    @property
    def concerned(self) -> tuple[str, ...]:
        """Silos that have a part in a phase in which several act."""
        match self.step.who if self.step else None:
            case Who.BEHIND:
                return self.behind
            case Who.HOLDERS:
                return self.judges
            case Who.REFUSERS:
                return self.refusers
            case Who.OTHERS if self.complaint is not None:
                return tuple(name for name in self.present if name not in (self.complaint.silo, self.complaint.owner))
        return self.present

    @cached_property
    def asked(self) -> tuple[str, ...]:
        """Silos that have a task in this phase."""
        match self.step.who if self.step else None:
            case None:
                return ()
            case Who.INVITED:
                dataless = {one.silo for one in self.dataless}
                return tuple(name for name in self.unanswered if name not in dataless)
            case Who.ACTOR:
                return (self.actor,)
        return tuple(name for name in self.concerned if name not in self.done)

    @property
    def waiting_for(self) -> tuple[str, ...]:
        """Silos without which this phase does not end: those asked. Absent ones count only if nobody else is left."""
        if self.phase in (Phase.OFFER, Phase.WAIT):
            return tuple(name for name in self.unanswered if name not in self.absent) or self.unanswered
        return self.asked
