"""One honest silo for a search through all states: the real turns, tasks and rules of its promises, and no bytes.

The silo's own `Tasks` decide, on `core.turns` and `core.bonds`. In the place of keys, masks and files stand names: a
signature is its silo and the digest of the word, a sealed contribution is the set of silos among whom its masks cancel.
A process may die after it has promised and before its turn is kept; the next one goes on from the promises.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from crypto.errors import CryptoError, OpeningRefused, SignatureRefused
from crypto.pki.identity import Identity, Role
from crypto.secagg import spoilt as statements
from crypto.secagg import voids
from crypto.secagg.survivors import AttemptRef, SurvivorList
from policies.documents.study import Study
from policies.plan.release import plan
from policies.refusals import Refused
from protos import messages
from protos.messages import Member, Part, Place, Signature, Tensor, Work
from protos.steps import SUM, Note, Task
from silo_agent.core import turns
from silo_agent.core.bonds import Bonds
from silo_agent.core.turns import Turn
from silo_agent.errors import SiloError
from silo_agent.metrics import AgentMetrics
from silo_agent.protocol import attempt as attempts
from silo_agent.protocol import recounting, tasks
from silo_agent.protocol.attempt import Attempt, Running
from silo_agent.protocol.journal import Standing
from silo_agent.protocol.membership import Membership
from silo_agent.protocol.recounting import take_note
from silo_agent.protocol.session import Session
from silo_agent.protocol.shares import ReceivedShares
from silo_agent.protocol.tasks import Tasks
from silo_agent.storage.promises import KeptRefusal
from support.steps import SUMMED
from support.studies import tiny_study

NAMES = ("ash", "birch", "cedar", "elm", "fir")
TENSOR = Tensor.COUNTS
PLAN = ((TENSOR,),)
SUM_DIGEST = "a" * 64
"""Of the sum of the attempt. Who reads it and who spoils it does not depend on its bytes."""
REFUSED = (SiloError, CryptoError, Refused)


def bits(mask: int) -> Iterator[int]:
    """The numbers of the silos in a set."""
    return (number for number in range(mask.bit_length()) if mask >> number & 1)


@dataclass(frozen=True)
class World:
    """One study of so many silos. The last one helps the coordinator, all others are honest."""

    silos: int
    min_silos: int

    @cached_property
    def study(self) -> Study:
        """The study that all silos hold."""
        return tiny_study(silos=list(self.names), min_silos=self.min_silos)

    @property
    def names(self) -> tuple[str, ...]:
        """All silos."""
        return NAMES[: self.silos]

    @property
    def honest(self) -> int:
        """How many are honest."""
        return self.silos - 1

    @property
    def colluder(self) -> int:
        """The set of the one that helps the coordinator."""
        return 1 << self.honest

    def named(self, mask: int) -> tuple[str, ...]:
        """The names of a set."""
        return tuple(name for number, name in enumerate(NAMES) if mask >> number & 1)

    def mask(self, names: Collection[str]) -> int:
        """The set of these names."""
        return sum(1 << self.names.index(name) for name in names)

    def place(self, attempt: int) -> Place:
        """An attempt at the round that is searched."""
        return Place(self.study.digest, 0, attempt)


# --- what stands for bytes --------------------------------------------------------------------------------------------
def signature_of(name: str, message: bytes) -> bytes:
    """What stands for a signature."""
    return name.encode() + hashlib.sha256(message).digest()


class _Trust:
    """Verifies what stands for signatures. A certificate is its silo's name."""

    def begun(self, _now: object) -> _Trust:
        return self

    def verify(self, pem: bytes, message: bytes, signature: bytes, *, role: Role) -> Identity:
        name = pem.decode()
        if signature != signature_of(name, message):
            msg = "another word"
            raise SignatureRefused(msg)
        return Identity(role, name)


_CREDENTIAL: Any = SimpleNamespace(trust=_Trust())


class _Membership(Membership):
    """The real one without keys."""

    def greet(self) -> bytes:
        return b""

    @property
    def earlier(self) -> tuple[str, ...]:
        return ()

    def meet(self, greetings: object) -> None:
        return

    def take(self, dealer: str, package: bytes) -> None:
        return

    def share(self, place: Place, tensors: Sequence[str], threshold: int, words: object) -> bytes:
        return bytes([threshold])

    def read_shares(self, place: Place, tensors: Sequence[str], threshold: int, notes: Any, about: object) -> Any:
        return {name: SimpleNamespace(words={name: None, self.me: None}) for name in notes}

    def words(self, *_: object) -> Any:
        return {}

    def masks(self, place: Place, tensor: str, participants: Sequence[str]) -> Any:
        return participants

    def sealer(self, silos: Sequence[str]) -> Any:
        return None

    def reveal(self, bundles: object, survivors: SurvivorList, participants: Sequence[str], word: object) -> bytes:
        return b""

    def unmasking(self, *_: object, **__: object) -> Any:
        msg = "a member has spoilt this sum"
        raise OpeningRefused(msg)


class _Session(Session):
    """The real one without keys."""

    def __init__(self, study: str, me: str) -> None:
        self._study, self.me, self._credential = study, me, _CREDENTIAL
        self._kept: dict[tuple[Member, ...], Membership] = {}

    def within(self, members: tuple[Member, ...], place: Place | None = None, *, reach: int = 0) -> Membership:
        if members not in self._kept:
            own = members[0]
            made = _Membership(self._study, own, members, credential=_CREDENTIAL, entropy=None, store=None)  # type: ignore[arg-type]
            names = tuple(one.silo for one in members)
            made.me = self.me
            made.__dict__["roster"] = SimpleNamespace(names=names, digest="|".join(names))
            self._kept[members] = made
        return self._kept[members]


class _Shares(ReceivedShares):
    """The real ones. Nothing is rolled back in the search, so nobody shows a silo its own words."""

    def word(self, attempt: Attempt, said: int) -> Any:
        return None

    def hear(self, attempt: Attempt, words: object) -> None:
        return

    def _require_newest(self, attempt: Attempt, shown: object) -> None:
        return


class _HeldPromises:
    """`storage.promises` on the same rules, in memory."""

    def __init__(self) -> None:
        self.bonds = Bonds()
        self.refusal: KeptRefusal | None = None

    def binding(self, _place: Place, _tensor: Tensor) -> tuple[str, ...]:
        return self.bonds.list

    def require(self, _place: Place, tensor: Tensor, names: tuple[str, ...]) -> None:
        self.bonds.require(names, tensor)

    def contribute(self, place: Place, tensor: Tensor, names: tuple[str, ...]) -> None:
        self.bonds = self.bonds.contribute(place.attempt, names, tensor)

    def sign(self, place: Place, tensor: Tensor, names: tuple[str, ...]) -> None:
        self.bonds = self.bonds.sign(place.attempt, names, tensor)

    def reveal(self, place: Place, tensor: Tensor) -> None:
        self.bonds = self.bonds.reveal(place.attempt, tensor)

    def void(self, _place: Place, _tensor: Tensor, through: int) -> bool:
        bonds = self.bonds.void(through)
        self.bonds = bonds or self.bonds
        return bonds is not None

    def voided(self, _place: Place, _tensor: Tensor) -> int:
        return self.bonds.voided

    def close(self, _place: Place, _tensor: Tensor, through: int) -> None:
        self.bonds = self.bonds.close(through)

    def open(self, _place: Place, _label: str, _sha256: str) -> None:
        return

    def refuse(self, _place: Place, _tensor: Tensor, refusal: KeptRefusal) -> None:
        self.refusal = self.refusal or refusal

    def refused(self, _place: Place, _tensor: Tensor) -> KeptRefusal | None:
        return self.refusal

    def renew(self, _place: Place, spoilt: int) -> None:
        self.bonds = replace(self.bonds, spoilt=max(self.bonds.spoilt, spoilt))

    def spoilt(self, _place: Place) -> int:
        return self.bonds.spoilt


# --- what a silo says -------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Said:
    """All that a silo has said in one attempt."""

    dealt: int = 0
    """The threshold at which it has shared its secrets; 0 if it has not."""
    sent: int = 0
    """The silos among whom the masks of its upload cancel; 0 if it has uploaded nothing."""
    signed: frozenset[int] = frozenset()
    """The lists that it has signed."""
    revealed: tuple[int, int, int] | None = None
    """The list for which it has revealed, the participants then, and the signatures that it wanted to see."""
    stated: bool = False
    """Whether it has stated that the sum is spoilt."""


@dataclass(frozen=True)
class Node:
    """A silo within an attempt: what is durable, and what it has said."""

    turn: Turn
    bonds: Bonds
    sealed: int = 0
    """What the outbox holds: the silos among whom the masks on the stored bytes cancel."""
    noted: bool = False
    """Whether its reveal is stored."""
    refusal: KeptRefusal | None = None
    said: Said = field(default_factory=Said)


class SearchedSilo:
    """One honest silo. It is set to a node, is asked, and gives the next node."""

    def __init__(self, world: World, number: int) -> None:
        self.world, self.number, self.name = world, number, world.names[number]
        self._promises = _HeldPromises()
        state: Any = SimpleNamespace(
            promises=self._promises, anchored=SimpleNamespace(require=lambda _: None, count=lambda _: 0), files=None
        )
        self._session = _Session(world.study.digest, self.name)
        self._tasks = Tasks(self, self, state, AgentMetrics(), None, cosigning=None)  # type: ignore[arg-type]  # it plays all of them
        self._tasks._mail = self  # type: ignore[assignment]
        self._tasks._shares = _Shares(self, state, self)  # type: ignore[arg-type]
        self._sealed, self._noted, self._said = 0, False, Said()
        self._running = Running(world.study, None, self._session, Standing(Turn(PLAN), None))  # type: ignore[arg-type]

    # --- what is asked of it --------------------------------------------------------------------------------------
    def offered(self, node: Node, attempt: int, proof: messages.Spoilt | None) -> Node | None:
        """The silo after an offer, with a proof or without; None if it does not take it."""
        place = self.world.place(attempt)
        self._set(node)
        try:
            if proof is not None:
                take_note(self.world.study, place, proof, self._session, self._promises)  # type: ignore[arg-type]
            turn = turns.sit(node.turn, place, self._promises.spoilt(place))
        except REFUSED:
            return None
        return self._node(turn)

    def asked(self, node: Node, work: Work, *, dies: bool = False) -> Node | None:
        """The silo after it was asked; None if it disputes. It may die before its turn is kept, and says nothing.

        This is what `Agent` does with work.
        """
        self._set(node)
        assert work.place is not None
        turn = node.turn
        try:
            if not turns.repeats(turn, work):
                following = turns.take(turn, work)
                self._tasks.perform(self._attempt(turn, work))
                turn = turn if dies else following
            if not dies:
                self._tasks.report(self._attempt(turn, work))
        except OpeningRefused:
            if work.task is not Task.OPEN:
                return None
            turn = turns.leave(turn)
        except REFUSED:
            return None
        return self._node(turn)

    def _attempt(self, turn: Turn, work: Work) -> Attempt:
        assert work.place is not None
        self._running.standing = replace(self._running.standing, turn=turn)
        return self._running.attempt(work, work.place)

    def _set(self, node: Node) -> None:
        self._promises.bonds, self._promises.refusal = node.bonds, node.refusal
        self._sealed, self._noted, self._said = node.sealed, node.noted, node.said
        self._running.standing = replace(self._running.standing, turn=node.turn)
        self._running._attempt = None

    def _node(self, turn: Turn) -> Node:
        promises = self._promises
        return Node(turn, promises.bonds, self._sealed, self._noted, promises.refusal, self._said)

    # --- in the place of client, gate and mail ------------------------------------------------------------------------
    def sign(self, message: bytes) -> bytes:
        return signature_of(self.name, message)

    def confirm(self, confirm: messages.Confirm) -> None:
        if confirm.task is Task.SIGN:
            names = self._running.turn.survivors
            self._said = replace(self._said, signed=self._said.signed | {self.world.mask(names)})
        if confirm.task is Task.RECOUNT:
            self._said = replace(self._said, stated=True)
        self.signature = confirm.signature

    def decide(self, *_: object, **__: object) -> None:
        return

    def sealed(self, _order: object) -> Path | None:
        return Path() if self._sealed else None

    def contribute(self, _order: object, _sealer: object, masks: Any, *_: object, **__: object) -> Path:
        """As the real gate: what is sealed is never sealed again."""
        self._sealed = self._sealed or self.world.mask(masks)
        return Path()

    def note_path(self, _place: Place, note: Note, _tensor: Tensor | None = None) -> Any:
        return SimpleNamespace(exists=lambda: note is Note.REVEAL and self._noted, note=note, silo=self)

    def send(self, _silo: str, _place: Place, kind: str, path: Any, **_: object) -> None:
        if kind == Note.SHARES:
            self._said = replace(self._said, dealt=self._dealt)
        elif kind == Note.REVEAL:
            turn = self._running.turn
            revealed = (self.world.mask(turn.survivors), self.world.mask(turn.participants), 0)
            self._said = replace(self._said, revealed=revealed)
        elif kind != Note.GREETING:
            self._said = replace(self._said, sent=self._sealed)

    def wrote(self, note: Note, content: bytes) -> None:
        """A note is kept."""
        if note is Note.SHARES:
            self._dealt = content[0]
        self._noted = self._noted or note is Note.REVEAL

    def fetch_notes(self, *_: object) -> dict[str, bytes]:
        return {}

    def fetch_greetings(self, *_: object) -> dict[str, bytes]:
        return {}

    def fetch_note(self, *_: object) -> bytes:
        return b""

    def receive_shares(self, *_: object) -> None:
        return

    def shares(self, _place: Place, silos: Sequence[str]) -> dict[str, str]:
        return dict.fromkeys(silos, "")

    def sum(self, *_: object) -> Any:
        return nullcontext((None, SUM_DIGEST))


# --- what a coordinator says ------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Words:
    """What a coordinator tells one silo in an attempt in which it shows this roster."""

    world: World
    attempt: int
    roster: int

    @cached_property
    def members(self) -> tuple[Member, ...]:
        """The roster."""
        return tuple(
            Member(name, name.encode(), bytes(32), bytes(1184), b"s") for name in self.world.named(self.roster)
        )

    def work(self, task: Task, **given: Any) -> Work:
        """One piece of work."""
        tensor = TENSOR if task in (*SUMMED, Task.VOID) else None
        return Work(task, self.world.place(self.attempt), tensor, self.members, **given)

    def before(self) -> tuple[Work, ...]:
        """What comes before a contribution."""
        actor = self.members[0].silo
        part = Part(Note.KEYS, actor, 1, SUM_DIGEST)
        return (
            self.work(Task.GREET),
            self.work(Task.TAKE, actor=actor, parts=(part,)),
            self.work(Task.EXCHANGE),
        )

    def contribute(self, participants: int, void: messages.Void | None) -> Work:
        """Ask for a contribution among these."""
        return self.work(Task.CONTRIBUTE, participants=self.world.named(participants), void=void)

    def sign(self, participants: int, survivors: int) -> Work:
        """Ask for a signature under a list."""
        named = self.world.named
        return self.work(Task.SIGN, participants=named(participants), survivors=named(survivors))

    def reveal(self, participants: int, survivors: int, signers: int) -> Work:
        """Ask for a reveal, with these silos' signatures."""
        named, place = self.world.named, self.world.place(self.attempt)
        roster = "|".join(one.silo for one in self.members)
        attempt = attempts_ref(place, roster)
        message = SurvivorList(attempt, str(TENSOR), named(survivors), "").to_sign()
        signatures = tuple(Signature(name, signature_of(name, message)) for name in named(signers))
        return self.work(
            Task.REVEAL, participants=named(participants), survivors=named(survivors), signatures=signatures
        )

    def open(self, participants: int, survivors: int) -> Work:
        """Ask to open a sum that cannot be opened."""
        named = self.world.named
        part = Part(SUM, "", 1, SUM_DIGEST)
        return self.work(Task.OPEN, participants=named(participants), survivors=named(survivors), parts=(part,))

    def recount(self, participants: int, survivors: int) -> Work:
        """Ask for a statement about the sum that was refused."""
        named = self.world.named
        uploads = tuple(messages.Upload(Part("ckks", name, 1, SUM_DIGEST), b"s") for name in named(survivors))
        return self.work(Task.RECOUNT, participants=named(participants), survivors=named(survivors), uploads=uploads)


def attempts_ref(place: Place, roster: str) -> Any:
    """What signatures of an attempt are bound to."""
    return AttemptRef(place.study, roster, place.round, place.attempt)


def void_of(world: World, through: int, after: int, signers: int) -> messages.Void:
    """The promises of these silos to reveal nothing up to an attempt."""
    message = voids.VoidPromise(world.study.digest, 0, str(TENSOR), through, after).to_sign()
    names = world.named(signers)
    given = tuple(Signature(name, signature_of(name, message)) for name in names)
    return messages.Void(through, given, tuple(name.encode() for name in names))


def proof_of(world: World, attempt: int, signers: int) -> messages.Spoilt:
    """The statements of these silos that the sum of an attempt is spoilt. The list is that of all silos."""
    message = statements.SpoiltStatement(world.study.digest, 0, attempt, str(TENSOR), world.names, SUM_DIGEST).to_sign()
    names = world.named(signers)
    given = tuple(Signature(name, signature_of(name, message)) for name in names)
    pems = tuple(name.encode() for name in names)
    return messages.Spoilt(attempt, TENSOR, world.names, SUM_DIGEST, "", given, pems)


@contextmanager
def without_files(world: World) -> Iterator[None]:
    """Notes are handed to the silo that writes them, uploads add up, and the study is planned once."""
    planned = plan(world.study)

    def write(path: Any, content: bytes) -> None:
        path.silo.wrote(path.note, content)

    with ExitStack() as stack:
        for module, name, value in (
            (tasks, "write_whole", write),
            (tasks, "recount", lambda *_: None),
            (tasks, "note_limit", lambda *_: 1),
            (attempts, "plan", lambda _: planned),
            # A signature then says less than it does, so the coordinator may do more with it.
            (attempts, "notes_digest", lambda *_: ""),
            (recounting, "plan", lambda _: planned),
        ):
            stack.enter_context(mock.patch.object(module, name, value))
        digest = world.study.digest
        stack.enter_context(mock.patch.object(Study, "digest", digest))
        yield
