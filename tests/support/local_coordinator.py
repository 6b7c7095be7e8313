"""A coordinator inside the test's own process: it hands out work, adds what it is given, and can be made to lie.

It stands where `silo_agent.protocol.calls.client.Client` stands and keeps no rules of its own; the real one has tests
of its own.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, Protocol

import structlog
from structlog.testing import capture_logs

from crypto.authorship import sign_study
from crypto.pki.certificates import Credential
from crypto.secagg.circle import Circle, reach_of
from crypto.secagg.dealt.slices import Cutting, Layout, letter_form
from policies.documents.study import Study
from policies.plan import quorum
from policies.plan.release import plan
from protos.checkpoints import Cosigned, CosignedCheckpoint, SignedCheckpoint
from protos.chunks import ChunkList
from protos.messages import (
    Answer,
    AuthorSignature,
    Confirm,
    Member,
    Part,
    Place,
    Signature,
    StudyText,
    Tensor,
    UploadHeader,
    Void,
    Vouch,
    Work,
    note_slot,
)
from protos.steps import SUM, Note, Task
from silo_agent.protocol.calls.client import AskedToStop
from support.agents import Line
from support.contents import add_up, digest_of
from support.steps import ADDED, SUMMED

log = structlog.get_logger()


class Stepping(Protocol):
    """An agent, or whoever has one: it asks for work and does it."""

    def step(self) -> object: ...


@dataclass
class LocalClient(Line):
    """One silo's line, and all that went over it."""

    coordinator: LocalCoordinator
    silo: str
    work: deque[Work] = field(default_factory=deque)
    answers: list[Answer] = field(default_factory=list)
    confirms: list[Confirm] = field(default_factory=list)
    uploads: dict[tuple[Place, str], bytes] = field(default_factory=dict)
    headers: list[UploadHeader] = field(default_factory=list)
    on_upload: Callable[[UploadHeader], None] | None = None
    signer: Credential | None = None
    told: list[CosignedCheckpoint] = field(default_factory=list)
    """What the coordinator says was cosigned last."""
    stated: list[tuple[Place, SignedCheckpoint]] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    """Every call, in order."""

    def join(self, version: str) -> SimpleNamespace:
        return SimpleNamespace(coordinator_version=version)

    def study(self, digest: str) -> StudyText:
        self.calls.append("study")
        text, author = super().study(digest), self.coordinator.author
        if author is None:
            return text
        made = sign_study(author, digest, json.loads(text.canonical)["purpose"])
        return replace(text, author=AuthorSignature(made.certificate, made.signature))

    def poll(self) -> Work:
        return self.coordinator.poll(self.silo, "")

    def answer(self, answer: Answer) -> None:
        self.calls.append("answer")
        super().answer(answer)

    def confirm(self, confirm: Confirm) -> None:
        self.calls.append(f"confirm {confirm.task}")
        super().confirm(confirm)

    def cosigners(self) -> tuple[Credential, Credential]:
        """The coordinator, and the next silo that is connected."""
        hub, others = self.coordinator.hub, self.coordinator.clients
        assert hub is not None
        return hub, next(c.signer for name, c in others.items() if name != self.silo and c.signer is not None)

    def cosigned(self) -> tuple[CosignedCheckpoint, ...]:
        self.calls.append("cosigned")
        return tuple(self.told)

    def cosign(self, place: Place, stated: SignedCheckpoint, before: CosignedCheckpoint | None = None) -> Cosigned:
        self.calls.append("cosign")
        self.stated.append((place, stated))
        return super().cosign(place, stated, before)

    def witness(self, given: CosignedCheckpoint | None) -> SignedCheckpoint | None:
        raise AskedToStop

    def upload(self, header: UploadHeader, content: Path, chunks: ChunkList) -> None:
        if self.on_upload is not None:
            self.on_upload(header)
        self.calls.append(f"upload {header.slot}")
        super().upload(header, content, chunks)

    def notes(self, place: Place, kind: Note, owners: Sequence[str], *given: Any) -> dict[str, bytes]:
        self.calls += [f"download {note_slot(kind, None)}" for _ in owners]
        return super().notes(place, kind, owners, *given)

    def download(self, place: Place, tensor: Tensor | None, wanted: Sequence[tuple[Part, Path]]) -> None:
        self.calls += [f"download {slot_of(tensor, part)}" for part, _ in wanted]
        super().download(place, tensor, wanted)


def slot_of(tensor: Tensor | None, part: Part) -> str:
    """Where a part lies."""
    return f"sum-{tensor}" if part.kind == SUM else note_slot(part.kind, tensor)


@dataclass
class LocalCoordinator:
    """Drives agents through a study, one at a time."""

    study: Study
    hub: Credential | None = None
    """With it the coordinator cosigns."""
    agents: dict[str, Stepping] = field(default_factory=dict)
    clients: dict[str, LocalClient] = field(default_factory=dict)
    studies: dict[str, bytes] = field(default_factory=dict)
    """Canonical bytes, by digest."""
    content: dict[tuple[Place, str, str], bytes] = field(default_factory=dict)
    """What can be fetched: place, slot, whose (nobody's for a sum)."""
    participants: tuple[str, ...] = ()
    survivors: tuple[str, ...] = ()
    gone: set[str] = field(default_factory=set)
    """Who has vanished from the attempt: nobody asks them any more."""
    signatures: dict[str, bytes] = field(default_factory=dict)
    voids: dict[tuple[int, Tensor], Void] = field(default_factory=dict)
    """By round and tensor: what silos have promised, for all who contribute."""
    keyed: tuple[Member, ...] = ()
    told: tuple[Member, ...] = ()
    """The roster that silos heard of last."""
    models: dict[int, str] = field(default_factory=dict)
    """Keyed digest of the model after each round."""
    logged: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    author: Credential | None = None
    """Who signs all studies; None if nobody does."""

    def __post_init__(self) -> None:
        self.studies[self.study.digest] = self.study.canonical()

    # --- what silos call -----------------------------------------------------------------------------------------
    def canonical(self, digest: str) -> bytes:
        return self.studies[digest]

    def poll(self, silo: str, _session: str) -> Work:
        work = self.clients[silo].work
        return work.popleft() if work else Work(Task.WAIT)

    def answer(self, answer: Answer, silo: str) -> None:
        self.clients[silo].answers.append(answer)

    def confirm(self, silo: str, confirm: Confirm) -> None:
        self.clients[silo].confirms.append(confirm)

    def upload(self, header: UploadHeader, content: bytes, _signature: bytes) -> None:
        self.clients[header.silo].headers.append(header)
        self.clients[header.silo].uploads[header.place, header.slot] = content

    def download(self, _silo: str, place: Place, tensor: Tensor | None, part: Part) -> bytes:
        return self.content[place, slot_of(tensor, part), part.silo]

    def notes(
        self, _silo: str, place: Place, kind: Note, owners: Sequence[str], about: Sequence[str]
    ) -> dict[str, bytes]:
        """What is of another length than a note comes as it is."""
        found = {}
        for owner in owners:
            if (place, note_slot(kind, None), owner) not in self.content:
                continue
            note = found[owner] = self.content[place, note_slot(kind, None), owner]
            of, needed = self.study, quorum.needed(self.study)
            names = tuple(sorted(member.silo for member in self.told))
            circle = Circle(names, reach_of(len(of.silos), of.privacy.colluders, needed))
            if kind is Note.GREETING:
                form = letter_form(circle.later(owner))
            else:
                form = Layout.of(plan(of).tensors(place.round), circle.holders(owner)).form
            if about and len(note) == form.note:
                found[owner] = Cutting(note, form).cut(about)
        return found

    # --- what tests have it do -----------------------------------------------------------------------------------
    def connect(self, silo: str) -> LocalClient:
        """The silo's connection; one that begins again finds what was said before."""
        return self.clients.setdefault(silo, LocalClient(self, silo))

    def place(self, number: int, attempt: int = 1) -> Place:
        return Place(self.study.digest, number, attempt)

    def ask(self, silo: str, work: Work) -> None:
        """Hand out work and have it done. What the silo's own log says of a dispute is kept for `own_words`."""
        self.clients[silo].work.append(work)
        with capture_logs() as logs:
            self.agents[silo].step()
        for entry in logs:
            if entry["event"] == "disputed":
                self.logged[silo] = entry
            words = {name: value for name, value in entry.items() if name not in ("event", "log_level")}
            getattr(log, entry["log_level"])(entry["event"], **words)

    def own_words(self, silo: str) -> tuple[str, str]:
        """The fault of the silo's last dispute and what it says, as the silo's own log has them."""
        return self.logged[silo]["fault"], self.logged[silo]["why"]

    def said(self, silo: str) -> Confirm:
        return self.clients[silo].confirms[-1]

    def offer(self, place: Place, silos: tuple[str, ...] | None = None) -> tuple[Member, ...]:
        """Offer a place; returns the roster of those who accept."""
        members = []
        self.gone = set()
        for silo in sorted(silos or self.agents):
            self.ask(silo, Work(Task.DECIDE, place))
            answer = self.clients[silo].answers[-1]
            assert answer.place == place
            if answer.member is not None:
                members.append(answer.member)
        self.participants = tuple(member.silo for member in members)
        return tuple(members)

    def work(
        self, task: Task, place: Place, roster: tuple[Member, ...], tensor: Tensor | None = None, actor: str = ""
    ) -> Work:
        """A word as the real coordinator would say it now."""
        self.told = roster
        return Work(
            task,
            place,
            tensor,
            roster,
            actor,
            parts=self.parts(task, place, roster, tensor, actor),
            participants=self.participants if task in SUMMED else (),
            survivors=self.survivors if task in ADDED else (),
            signatures=self._signed() if task is Task.REVEAL else (),
            void=None if tensor is None or task is not Task.CONTRIBUTE else self.voids.get((place.round, tensor)),
            vouches=self.vouches(place.round - 1) if task is Task.CATCH_UP else (),
        )

    def vouches(self, number: int) -> tuple[Vouch, ...]:
        """What every silo has signed last of the model that it holds after a round."""
        found = {}
        for name, client in sorted(self.clients.items()):
            for said in client.confirms:
                if said.vouch and said.place.round - (said.task is Task.CATCH_UP) == number:
                    assert client.signer is not None
                    found[name] = Vouch(name, client.signer.certificate_pem, said.vouch)
        return tuple(found.values())

    def _signed(self) -> tuple[Signature, ...]:
        return tuple(Signature(name, self.signatures[name]) for name in self.survivors if name in self.signatures)

    def parts(
        self, task: Task, place: Place, roster: tuple[Member, ...], tensor: Tensor | None, actor: str
    ) -> tuple[Part, ...]:
        """What a task has to fetch."""
        slots = {
            Task.TAKE: [(Note.KEYS, actor)],
            Task.CATCH_UP: [(Note.MODEL, actor)],
            Task.JUDGE: [(Note.MODEL, actor)],
            Task.EXAMINE: [(Note.SHARES, actor)],
            Task.OPEN: [(SUM, ""), *((Note.REVEAL, name) for name in self.survivors)],
            Task.ADOPT: [(Note.HEADS, actor)],
        }
        found = []
        for kind, silo in slots.get(task, []):
            slot = f"sum-{tensor}" if kind == SUM else note_slot(kind, tensor if kind == Note.REVEAL else None)
            data = self.content.get((place, slot, silo))
            if data is not None:
                found.append(Part(str(kind), silo, len(data), digest_of(data)))
        return tuple(found)

    def collect(self, task: Task, place: Place, silos: tuple[str, ...], work: Work, slot: str) -> None:
        """Have silos upload a note, and hold it for the others."""
        for silo in silos:
            self.ask(silo, work)
            self.content[place, slot, silo] = self.clients[silo].uploads[place, slot]

    def void(self, place: Place, roster: tuple[Member, ...], tensor: Tensor) -> tuple[str, ...]:
        """Have the roster void the tensor's earlier attempts; returns who has promised."""
        promises, pems = [], []
        for member in roster:
            self.ask(member.silo, self.work(Task.VOID, place, roster, tensor))
            said = self.said(member.silo)
            assert (said.task, said.dispute) == (Task.VOID, ""), said
            if said.signature:
                promises.append(Signature(member.silo, said.signature))
                pems.append(member.certificate_pem)
        if promises:
            self.voids[place.round, tensor] = Void(place.attempt - 1, tuple(promises), tuple(pems))
        return tuple(one.silo for one in promises)

    def deal(self, place: Place, roster: tuple[Member, ...]) -> None:
        """Have the roster greet each other, keys dealt and taken, where the roster has none."""
        if roster == self.keyed:
            return
        names = tuple(member.silo for member in roster)
        self.collect(Task.GREET, place, names, self.work(Task.GREET, place, roster), "note-greeting")
        dealer = roster[(place.round + place.attempt) % len(roster)].silo
        deal = self.work(Task.DEAL, place, roster, actor=dealer)
        self.collect(Task.DEAL, place, (dealer,), deal, "note-keys")
        for member in roster:
            self.ask(member.silo, self.work(Task.TAKE, place, roster, actor=dealer))
            assert not self.said(member.silo).dispute, self.said(member.silo)
        self.keyed = roster

    def exchange(self, place: Place, roster: tuple[Member, ...]) -> None:
        """Have the secrets of the attempt shared by all who are there."""
        self.participants = self.there(member.silo for member in roster)
        self.collect(Task.EXCHANGE, place, self.participants, self.work(Task.EXCHANGE, place, roster), "note-shares")

    def there(self, names: Iterable[str]) -> tuple[str, ...]:
        """Those of the names who have not vanished."""
        return tuple(name for name in names if name not in self.gone)

    def catch_up(self, place: Place, roster: tuple[Member, ...], behind: tuple[str, ...]) -> None:
        """Have the model shared, and taken by those who hold another one."""
        able = [member.silo for member in roster if member.silo not in behind]
        sharer = able[(place.round + place.attempt) % len(able)]
        share = self.work(Task.SHARE, place, roster, actor=sharer)
        self.collect(Task.SHARE, place, (sharer,), share, "note-model")
        for silo in behind:
            self.ask(silo, self.work(Task.CATCH_UP, place, roster, actor=sharer))
            said = self.said(silo)
            assert (said.task, said.dispute, said.model) == (Task.CATCH_UP, "", self.expected(place)), said

    def expected(self, place: Place) -> str:
        """The model that an offer builds on."""
        return self.models.get(place.round - 1, "")

    def behind(self, place: Place, roster: tuple[Member, ...]) -> tuple[str, ...]:
        """Members that answered this offer with another model than the last round's."""
        answers = {m.silo: next(a for a in reversed(self.clients[m.silo].answers) if a.place == place) for m in roster}
        return tuple(silo for silo, answer in answers.items() if answer.model != self.expected(place))

    def gather(self, place: Place, roster: tuple[Member, ...], tensor: Tensor, lost: tuple[str, ...] = ()) -> None:
        """Have the participants contribute, but for those who vanish now, and add."""
        self.participants = self.there(member.silo for member in roster)
        self.gone.update(lost)
        self.survivors = self.there(self.participants)
        for silo in self.survivors:
            self.ask(silo, self.work(Task.CONTRIBUTE, place, roster, tensor))
        self.add(place, tensor, [self.clients[silo].uploads[place, str(tensor)] for silo in self.survivors])

    def add(self, place: Place, tensor: Tensor, given: list[bytes]) -> None:
        """Sum uploads."""
        self.content[place, f"sum-{tensor}", ""] = add_up(plan(self.study).ring(tensor), given)

    def sign(self, place: Place, roster: tuple[Member, ...], tensor: Tensor) -> None:
        """Have the survivors sign who they are."""
        self.signatures = {}
        for silo in self.there(self.survivors):
            self.ask(silo, self.work(Task.SIGN, place, roster, tensor))
            said = self.said(silo)
            assert (said.task, said.dispute) == (Task.SIGN, ""), said
            self.signatures[silo] = said.signature

    def reveal(self, place: Place, roster: tuple[Member, ...], tensor: Tensor) -> None:
        """Have the survivors reveal what the sum is opened with."""
        asked = self.work(Task.REVEAL, place, roster, tensor)
        self.collect(Task.REVEAL, place, self.there(self.survivors), asked, f"note-reveal-{tensor}")

    def sum_up(
        self,
        place: Place,
        roster: tuple[Member, ...],
        tensor: Tensor,
        lost: Mapping[tuple[Task, Tensor], tuple[str, ...]] | None = None,
    ) -> None:
        """Gather, add, sign, reveal. `lost` are silos that vanish before they have done a task of a tensor."""
        vanish = lost or {}
        self.gather(place, roster, tensor, vanish.get((Task.CONTRIBUTE, tensor), ()))
        self.gone.update(vanish.get((Task.SIGN, tensor), ()))
        self.sign(place, roster, tensor)
        self.gone.update(vanish.get((Task.REVEAL, tensor), ()))
        self.reveal(place, roster, tensor)
        self.gone.update(vanish.get((Task.OPEN, tensor), ()))

    def open(self, place: Place, roster: tuple[Member, ...], tensor: Tensor) -> set[str]:
        """Have the survivors open the sum; returns the model digests they confirm."""
        for silo in self.there(self.survivors):
            self.ask(silo, self.work(Task.OPEN, place, roster, tensor))
        return self.confirmed(Task.OPEN)

    def solve(self, place: Place, roster: tuple[Member, ...]) -> str:
        """Have one of them solve; returns who."""
        able = self.there(self.survivors)
        solver = able[(place.round + place.attempt) % len(able)]
        asked = self.work(Task.SOLVE, place, roster, Tensor.HEADS, solver)
        self.collect(Task.SOLVE, place, (solver,), asked, "note-heads")
        return solver

    def adopt(self, place: Place, roster: tuple[Member, ...], solver: str) -> set[str]:
        """Have the solved heads adopted; returns the model digests they confirm."""
        for silo in self.there(self.survivors):
            self.ask(silo, self.work(Task.ADOPT, place, roster, Tensor.HEADS, solver))
        return self.confirmed(Task.ADOPT)

    def confirmed(self, task: Task) -> set[str]:
        """The model digests that were confirmed with a task, which nobody disputes."""
        said = [self.said(silo) for silo in self.there(self.survivors)]
        assert all(confirm.task is task and not confirm.dispute for confirm in said), said
        return {confirm.model for confirm in said}

    def begin(
        self, number: int, attempt: int = 1, silos: tuple[str, ...] | None = None, *, void: Tensor | None = None
    ) -> tuple[Place, tuple[Member, ...]]:
        """An attempt up to its first sum. It begins with voiding the earlier lists of `void`."""
        place = self.place(number, attempt)
        roster = self.offer(place, silos)
        if void is not None:
            self.void(place, roster, void)
        self.deal(place, roster)
        if behind := self.behind(place, roster):
            self.catch_up(place, roster, behind)
        self.exchange(place, roster)
        return place, roster

    def run_round(
        self,
        number: int,
        attempt: int = 1,
        silos: tuple[str, ...] | None = None,
        lost: Mapping[tuple[Task, Tensor], tuple[str, ...]] | None = None,
        *,
        void: Tensor | None = None,
    ) -> tuple[Member, ...]:
        """A whole round in which nobody errs; `lost` as in `sum_up`, `void` as in `begin`."""
        place, roster = self.begin(number, attempt, silos, void=void)
        models: set[str] = set()
        for name in plan(self.study).tensors(number):
            models = self.run_tensor(place, roster, Tensor(name), lost)
            assert len(models) == 1
        (self.models[number],) = models
        return roster

    def run_tensor(
        self,
        place: Place,
        roster: tuple[Member, ...],
        tensor: Tensor,
        lost: Mapping[tuple[Task, Tensor], tuple[str, ...]] | None = None,
    ) -> set[str]:
        """Sum a tensor and make of it what the plan says; returns the model digests that are confirmed."""
        self.sum_up(place, roster, tensor, lost)
        models = self.open(place, roster, tensor)
        if tensor is Tensor.HEADS:
            assert len(models) == 1
            models = self.adopt(place, roster, self.solve(place, roster))
        return models

    def finish(self, silo: str, outcome: Literal["finished", "ended", "aborted", "left"] = "finished") -> None:
        place = self.place(plan(self.study).last)
        self.ask(silo, Work(Task.FINISH, place, why="all rounds are done", outcome=outcome))
