"""A coordinator inside the test's own process: it hands out work, adds what it is given, and can be made to lie.

It stands where `silo_agent.client.Client` stands and keeps no rules of its own; the real one has tests of its own.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Literal

from crypto import ckks_public, ring
from crypto.certificates import Credential
from policies import shapes
from policies.study import Study
from protos.messages import Answer, Confirm, Member, Place, Task, Tensor, UploadHeader, Work
from silo_agent.agent import Agent

RINGS = {"ckks": ckks_public, "ring": ring}


@dataclass
class LocalClient:
    """One silo's connection: what `Client` is to an agent."""

    coordinator: LocalCoordinator
    silo: str
    work: deque[Work] = field(default_factory=deque)
    answers: list[Answer] = field(default_factory=list)
    confirms: list[Confirm] = field(default_factory=list)
    uploads: dict[tuple[Place, str], bytes] = field(default_factory=dict)
    headers: list[UploadHeader] = field(default_factory=list)
    on_upload: Callable[[UploadHeader], None] | None = None
    signer: Credential | None = None

    def join(self, version: str) -> SimpleNamespace:
        return SimpleNamespace(coordinator_version=version)

    def study(self, digest: str) -> bytes:
        return self.coordinator.canonical[digest]

    def poll(self) -> Work:
        return self.work.popleft() if self.work else Work(Task.WAIT)

    def answer(self, answer: Answer) -> None:
        self.answers.append(answer)

    def confirm(self, confirm: Confirm) -> None:
        self.confirms.append(confirm)

    def sign(self, message: bytes) -> bytes:
        assert self.signer is not None
        return self.signer.sign(message)

    def upload(self, header: UploadHeader, content: Path) -> None:
        if self.on_upload is not None:
            self.on_upload(header)
        data = content.read_bytes()
        assert (len(data), hashlib.sha256(data).hexdigest()) == (header.size, header.sha256)
        self.headers.append(header)
        self.uploads[header.place, header.slot] = data

    def download(self, place: Place, tensor: Tensor | None, kind: str, work: Work, target: Path) -> None:
        data = self.coordinator.content[place, f"sum-{tensor}" if tensor else f"note-{kind}"]
        assert (len(data), hashlib.sha256(data).hexdigest()) == (work.size, work.sha256)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)


@dataclass
class LocalCoordinator:
    """Drives agents through a study, one at a time."""

    study: Study
    agents: dict[str, Agent] = field(default_factory=dict)
    clients: dict[str, LocalClient] = field(default_factory=dict)
    canonical: dict[str, bytes] = field(default_factory=dict)
    content: dict[tuple[Place, str], bytes] = field(default_factory=dict)
    keyed: tuple[Member, ...] = ()
    models: dict[int, str] = field(default_factory=dict)
    """Keyed digest of the model after each round."""
    """Keyed digest of the model after the last round that was run."""

    def __post_init__(self) -> None:
        self.canonical[self.study.digest] = self.study.canonical()

    def connect(self, silo: str) -> LocalClient:
        """The silo's connection; one that begins again finds what was said before."""
        return self.clients.setdefault(silo, LocalClient(self, silo))

    def place(self, number: int, attempt: int = 1) -> Place:
        return Place(self.study.digest, number, attempt)

    def ask(self, silo: str, work: Work) -> None:
        """Hand out work and have it done."""
        self.clients[silo].work.append(work)
        self.agents[silo].step()

    def said(self, silo: str) -> Confirm:
        return self.clients[silo].confirms[-1]

    def offer(self, place: Place, silos: tuple[str, ...] | None = None) -> tuple[Member, ...]:
        """Offer a place; returns the roster of those who accept."""
        members = []
        for silo in sorted(silos or self.agents):
            self.ask(silo, Work(Task.DECIDE, place))
            answer = self.clients[silo].answers[-1]
            assert answer.place == place
            if answer.member is not None:
                members.append(answer.member)
        return tuple(members)

    def fetch(self, task: Task, place: Place, slot: str, roster: tuple[Member, ...], actor: str = "") -> Work:
        """Work that makes a silo download something."""
        data = self.content[place, slot]
        tensor = Tensor(slot.removeprefix("sum-")) if slot.startswith("sum-") else None
        return Work(task, place, tensor, roster, actor, len(data), hashlib.sha256(data).hexdigest())

    def deal(self, place: Place, roster: tuple[Member, ...]) -> None:
        """Have keys dealt and taken, where the roster has none."""
        if roster == self.keyed:
            return
        dealer = roster[(place.round + place.attempt) % len(roster)].silo
        self.ask(dealer, Work(Task.DEAL, place, None, roster, dealer))
        self.content[place, "note-keys"] = self.clients[dealer].uploads[place, "note-keys"]
        for member in roster:
            self.ask(member.silo, self.fetch(Task.TAKE, place, "note-keys", roster, dealer))
            assert not self.said(member.silo).dispute, self.said(member.silo)
        self.keyed = roster

    def catch_up(self, place: Place, roster: tuple[Member, ...], behind: tuple[str, ...]) -> None:
        """Have the model shared, and taken by those who hold another one."""
        able = [member.silo for member in roster if member.silo not in behind]
        sharer = able[(place.round + place.attempt) % len(able)]
        self.ask(sharer, Work(Task.SHARE, place, None, roster, sharer))
        self.content[place, "note-model"] = self.clients[sharer].uploads[place, "note-model"]
        for silo in behind:
            self.ask(silo, self.fetch(Task.CATCH_UP, place, "note-model", roster, sharer))
            said = self.said(silo)
            assert (said.task, said.dispute, said.model) == (Task.CATCH_UP, "", self.expected(place)), said

    def expected(self, place: Place) -> str:
        """The model that an offer builds on."""
        return self.models.get(place.round - 1, "")

    def behind(self, place: Place, roster: tuple[Member, ...]) -> tuple[str, ...]:
        """Members that answered this offer with another model than the last round's."""
        answers = {m.silo: next(a for a in reversed(self.clients[m.silo].answers) if a.place == place) for m in roster}
        return tuple(silo for silo, answer in answers.items() if answer.model != self.expected(place))

    def gather(self, place: Place, roster: tuple[Member, ...], tensor: Tensor) -> None:
        """Have everybody contribute, and add."""
        for member in roster:
            self.ask(member.silo, Work(Task.CONTRIBUTE, place, tensor, roster))
        given = [self.clients[member.silo].uploads[place, str(tensor)] for member in roster]
        total = bytearray(given[0])
        for content in given[1:]:
            RINGS[tensor.ring].add_frames(total, content)
        self.content[place, f"sum-{tensor}"] = bytes(total)

    def open(self, place: Place, roster: tuple[Member, ...], tensor: Tensor) -> set[str]:
        """Have everybody open the sum; returns the model digests they confirm."""
        for member in roster:
            self.ask(member.silo, self.fetch(Task.OPEN, place, f"sum-{tensor}", roster))
        return self.confirmed(roster, Task.OPEN)

    def solve(self, place: Place, roster: tuple[Member, ...]) -> str:
        solver = roster[(place.round + place.attempt) % len(roster)].silo
        self.ask(solver, Work(Task.SOLVE, place, Tensor.HEADS, roster, solver))
        self.content[place, "note-heads"] = self.clients[solver].uploads[place, "note-heads"]
        return solver

    def adopt(self, place: Place, roster: tuple[Member, ...], solver: str) -> set[str]:
        for member in roster:
            self.ask(member.silo, self.fetch(Task.ADOPT, place, "note-heads", roster, solver))
        return self.confirmed(roster, Task.ADOPT)

    def confirmed(self, roster: tuple[Member, ...], task: Task) -> set[str]:
        said = [self.said(member.silo) for member in roster]
        assert all(confirm.task is task and not confirm.dispute for confirm in said), said
        return {confirm.model for confirm in said}

    def run_round(self, number: int, attempt: int = 1, silos: tuple[str, ...] | None = None) -> tuple[Member, ...]:
        """A whole round in which nobody errs."""
        place = self.place(number, attempt)
        roster = self.offer(place, silos)
        self.deal(place, roster)
        if behind := self.behind(place, roster):
            self.catch_up(place, roster, behind)
        models: set[str] = set()
        for name in shapes.tensors(self.study, number):
            tensor = Tensor(name)
            self.gather(place, roster, tensor)
            models = self.open(place, roster, tensor)
            assert len(models) == 1
            if tensor is Tensor.HEADS:
                models = self.adopt(place, roster, self.solve(place, roster))
                assert len(models) == 1
        (self.models[number],) = models
        return roster

    def finish(self, silo: str, outcome: Literal["finished", "ended", "aborted", "left"] = "finished") -> None:
        place = self.place(self.study.rounds)
        self.ask(silo, Work(Task.FINISH, place, why="all rounds are done", outcome=outcome))
