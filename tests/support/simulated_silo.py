"""A silo without network or training: a real agent, with real keys and a real folder, that may die at any moment.

What dies with the process is its memory; the folder stays. Messages may be lost, arrive late or twice. In the place of
the gate and the learner stands one who contributes known integers (`simulated_witness.plain`) and makes of a sum what
every other silo makes of it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal
from unittest import mock

import numpy as np
from numpy.typing import NDArray
from structlog.testing import capture_logs

from crypto.entropy import SystemEntropy
from crypto.errors import RecoveryRefused
from crypto.pki.certificates import Credential
from crypto.secagg.dealt.bundles import Published, assemble, to_sign
from crypto.secagg.dealt.share_bundle import ShareBundle
from crypto.secagg.masks import Masks
from crypto.secagg.sealing import Sealer
from crypto.secagg.survivors import SurvivorList
from crypto.secagg.unmasking import _by_holder, _held, _open_reveal
from crypto.secagg.words import Word
from policies.documents.policy import load_policy
from policies.documents.study import Study
from policies.ledger.chain import Genesis
from policies.ledger.ledger import Ledger
from policies.plan import quorum
from policies.plan.release import Release, plan
from policies.refusals import Reason, Refused
from protos import codec
from protos.messages import RINGS, Answer, Confirm, Member, Place, Tensor, UploadHeader, Work
from protos.steps import Task
from silo_agent.gate import Gate, Order
from silo_agent.learning.model.shared import SharedModel
from silo_agent.learning.releases.contribution import Opened
from silo_agent.metrics import AgentMetrics
from silo_agent.protocol.calls.client import CallRefused
from silo_agent.protocol.membership import Membership
from silo_agent.protocol.session import Session, session_name
from silo_agent.storage.durable import write_whole
from silo_agent.storage.folders import StudyFolder
from silo_agent.storage.state import State
from support.agents import AgentSilo, Line
from support.certificates import data_set_of
from support.contents import add_up, digest_of
from support.simulated_coordinator import SimulatedCoordinator
from support.simulated_witness import Witness
from support.small_cohort import policy_document, write_yaml
from support.unjudged import approved

Fate = Literal["arrives", "twice", "lost", "unanswered", "late"]
"""Of one message: once; again, because the reply was lost; never, or only its reply never, or later than all that the
process could wait for. In the last three the process dies."""


class Crashed(BaseException):  # no error: nothing may catch it
    """The process dies here."""


class _Client(Line):
    """Its messages may be lost, late or doubled, and a hostile silo changes them. The witness sees them."""

    def __init__(self, silo: SimulatedSilo) -> None:
        self.own, self.silo, self.signer, self.coordinator = silo, silo.name, silo.credential, silo.coordinator
        self.fate: Fate = "arrives"

    def poll(self) -> Work:
        silo = self.own
        silo.work = silo.again or self.coordinator.poll(silo.name, silo.session)
        if silo.again is None and silo.work.place is not None:
            silo.heard.append(silo.work)
        return silo.work

    def answer(self, answer: Answer) -> None:
        answer = self.own.offers(answer)
        self.own.witness.says(codec.to_wire(answer))
        self._send(lambda: super(_Client, self).answer(answer))

    def confirm(self, confirm: Confirm) -> None:
        confirm = self.own.says(confirm)
        self.own.witness.says(codec.to_wire(confirm))
        if confirm.task is Task.SIGN and not confirm.dispute:
            assert confirm.tensor is not None
            self.own.witness.signs(self.own.name, confirm.place, confirm.tensor, self.own.work.survivors)
        if confirm.task is Task.VOID and confirm.signature:
            assert confirm.tensor is not None
            self.own.witness.voids(self.own.name, confirm.place, confirm.tensor)
        if confirm.dispute:
            self.own.disputes.append(confirm)
        if confirm.task is Task.RECOUNT and not confirm.dispute:
            assert confirm.tensor is not None
            survivors, culprit = self.own.work.survivors, confirm.culprit
            self.own.witness.refuses(self.own.name, confirm.place, confirm.tensor, survivors, culprit)
        self._send(lambda: super(_Client, self).confirm(confirm))

    def cosigners(self) -> tuple[Credential, Credential]:
        hub, peer = self.own.cosigners
        return hub, peer

    def send(self, header: UploadHeader, data: bytes) -> None:
        self.own.witness.sent(header, data)
        data = self._bent(header, data)
        header = replace(header, size=len(data), sha256=digest_of(data))
        signature = self.sign(header.canonical())
        self._send(lambda: self.coordinator.upload(header, data, signature))

    def _bent(self, header: UploadHeader, data: bytes) -> bytes:
        """What a hostile silo sends in the place of something: the same whenever it sends it."""
        silo = self.own
        if header.kind in RINGS and silo.spoils(header):
            bent = add_up(header.kind, [data, data])  # right residues of no meaning
        else:
            bent = silo.bends(header, data)
        return silo.sent.setdefault((header.place, header.slot), bent) if silo.hostile else bent

    def _send(self, message: Callable[[], None]) -> None:
        fate, self.fate = self.fate, "arrives"
        if fate == "late":
            self.own.on_the_way.append(message)
        elif fate != "lost":
            message()
        if fate == "twice":
            message()
        elif fate != "arrives":
            raise Crashed


@dataclass
class _Gate:
    """The door: no ledger, the study's own `min_silos`, and the outbox that never seals twice under one label."""

    silo: SimulatedSilo
    state: State

    def require_no_fault(self) -> None:
        return

    def close(self) -> None:
        return

    def decide(self, study: Study, place: Place, roster_size: int | None = None) -> None:
        quorum.require(study)
        if self.silo.leaves and roster_size is None:
            raise Refused(Reason.BUDGET_SPENT, "policy.budget is spent")
        if roster_size is not None and roster_size < study.min_silos:
            raise Refused(Reason.TOO_FEW_SILOS, f"{roster_size} silos, policy.min_silos is {study.min_silos}")

    def sealed(self, order: Order) -> Path | None:
        return self.state.sealed(order.place.study, order.label.digest)

    def contribute(
        self,
        order: Order,
        sealer: Sealer,
        masks: Masks,
        compute: Callable[[Place, Release], NDArray[np.int64]],
        _ask: object,
        *,
        noise_alone: object,
    ) -> Path:
        self.silo.witness.roster_sizes[order.place] = len(self.silo.work.roster)
        stored = self.sealed(order)
        if stored is not None:
            return stored
        release = plan(order.study).release(order.place.round, order.tensor)
        kind, label = release.ring, order.label
        frames = sealer.seal(kind, compute(order.place, release), label, masks)
        path = self.state.keep_sealed(order.place, label.digest, frames)
        self.silo.witness.sealed(masks, kind, label, path.read_bytes())
        return path


class _LedgerGate(Gate):
    """The real gate, with policy and ledger in the silo's folder. The witness sees which draw is in which upload."""

    def __init__(self, silo: SimulatedSilo, state: State) -> None:
        policy, ledger = silo.folder / "policy.yaml", silo.folder / "ledger.sqlite3"
        if not ledger.exists():
            document = policy_document(data_set_of(silo.name))
            enough = {"epsilon": 32.0, "study_epsilon": 32.0, "round_epsilon": 32.0, "charged_attempts": 100}
            for part in ("budget", "limits"):
                document[part] |= {name: value for name, value in enough.items() if name in document[part]}  # type: ignore[operator]
            in_force = load_policy(write_yaml(policy, document))
            Ledger.create(ledger, Genesis.of(in_force))
        self._silo = silo
        super().__init__(silo.credential, policy, ledger, state, AgentMetrics(), require_approved=approved)

    def _require_same_policy(self) -> None:
        """Nobody edits the policy here, and to read it at every question would take a quarter of the time."""

    def contribute(self, order: Order, *given: Any, **words: Any) -> Path:
        path = super().contribute(order, *given, **words)
        draw = max(attempt for tensor, attempt in self._draws(order.study, order.place) if tensor == order.tensor)
        self._silo.witness.draws[self._silo.name, order.place, order.tensor] = draw
        return path


@dataclass
class _Learner:
    """Contributes what is known beforehand; a sum changes the model in a way that nothing else does."""

    silo: SimulatedSilo
    folder: Path

    def rehearse(self) -> None:
        return

    def require_files(self, *, begun: bool) -> None:
        return

    def read(self) -> None:
        return

    def contribution(self, release: Release, place: Place, model: SharedModel, silos: int) -> NDArray[np.int64]:
        return self.silo.witness.plain(self.silo.name, place.round, release.tensor)

    def check_sum(self, tensor: Tensor, total: NDArray[np.int64], _place: Place, silos: int, **_: int) -> None:
        work = self.silo.work
        assert work.place is not None
        assert silos == len(work.survivors)
        self.silo.witness.opens(work.place, tensor, work.survivors, total)

    def open(self, tensor: Tensor, total: NDArray[np.int64], place: Place, model: SharedModel, silos: int) -> Opened:
        if tensor is Tensor.COUNTS:
            write_whole(StudyFolder(self.folder).counts, json.dumps(total.astype(float).tolist()).encode())
        if tensor is Tensor.ENCODER:
            # Within the study's `max_update`: a silo takes no model from another that its rounds could not give.
            model = model.with_update((total % 2**20).astype(np.float64) * 2.0**-20, silos)
        return Opened(model, unsolved=total if tensor is Tensor.HEADS else None)

    def solve(self, total: NDArray[np.int64], place: Place, model: SharedModel, silos: int) -> NDArray[np.int64]:
        return total[: model.heads.size] + place.attempt

    def adopt(
        self, solution: NDArray[np.int64], total: NDArray[np.int64], place: Place, model: SharedModel, silos: int
    ) -> SharedModel:
        assert np.array_equal(solution, self.solve(total, place, model, silos))
        heads = np.zeros(model.heads.shape)
        heads.flat[: solution.size] = solution * 2.0**-30
        return model.with_heads(heads, place.round)


@dataclass
class SimulatedSilo(AgentSilo):
    """One silo of one study."""

    folder: Path
    credential: Credential
    coordinator: SimulatedCoordinator
    witness: Witness
    cosigners: tuple[Credential, ...] = ()
    """A coordinator and a peer. With them the silo has the real gate, and a ledger."""
    work: Work = field(default_factory=lambda: Work(Task.WAIT))
    """What it was asked last."""
    again: Work | None = None
    heard: list[Work] = field(default_factory=list)
    """What it was ever asked."""
    leaves: bool = False
    """Its hospital takes no further part: from now on it refuses every offer."""
    hostile: bool = False
    """Whether it may do any of the following."""
    spoils: Callable[[UploadHeader], bool] = lambda _: False
    """Whether it is hostile, and puts residues of no meaning in the place of its contribution."""
    bends: Callable[[UploadHeader, bytes], bytes] = lambda _, content: content
    """What it uploads in the place of a note, if it is hostile."""
    offers: Callable[[Answer], Answer] = lambda answer: answer
    """What it answers to an offer, if it is hostile."""
    says: Callable[[Confirm], Confirm] = lambda confirm: confirm
    """What it confirms or disputes in the place of what its agent does, if it is hostile."""
    silent: Callable[[Work], bool] = lambda _: False
    """Whether it asks for its work, but does not do it, if it is hostile."""
    deals: Callable[[str, bytes], bytes] = lambda _, box: box
    """What it makes of the sealed shares for a holder, if it is hostile."""
    accuses: Callable[[Membership, Place], RecoveryRefused | None] = lambda *_: None
    """What it complains about, if it is hostile."""
    dealt: dict[Place, bytes] = field(default_factory=dict)
    sent: dict[tuple[Place, str], bytes] = field(default_factory=dict)
    """What it has uploaded, if it is hostile."""
    disputes: list[Confirm] = field(default_factory=list)
    on_the_way: list[Callable[[], None]] = field(default_factory=list)
    logs: list[Mapping[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.restart()

    @property
    def quiet(self) -> bool:
        """Whether it is hostile and asked for something that it does not do."""
        work = self.coordinator.work(self.name) if self.hostile else None
        return work is not None and self.silent(work)

    def process_name(self) -> str:
        return session_name(self.folder, self.credential, self.entropy)

    def connect(self) -> _Client:
        return _Client(self)

    def make_gate(self) -> _Gate | _LedgerGate:
        return _LedgerGate(self, self.state) if self.cosigners else _Gate(self, self.state)

    def make_learner(self, study: Study) -> _Learner:
        return _Learner(self, self.files(study.digest))

    def open_session(self, study: str) -> WitnessedSession:
        return WitnessedSession.of(self, study, self.files(study))

    def step(self, fate: Fate = "arrives", *, again: Work | None = None, dies_at: int = 0) -> Work:
        """Ask for work and do it; `fate` is that of what it then says.

        `again` is handed to it instead of new work. `dies_at`: the process dies at its n-th durable write, from 1.
        """
        assert self.agent is not None
        if again is None and self.quiet:
            return self.coordinator.poll(self.name, self.session)
        self.client.fate, self.again = fate, again
        writes = iter(range(1, dies_at))

        def sync(handle: int) -> None:
            if dies_at and next(writes, None) is None:
                raise Crashed
            os_sync(handle)

        os_sync = os.fsync
        try:
            with mock.patch.object(os, "fsync", sync), capture_logs() as logs:
                self.agent.step()
        except Crashed:
            self.die()
        finally:
            self.client.fate, self.again = "arrives", None
            self.logs += logs
        return self.work

    def deliver_late(self) -> None:
        """What a dead process has sent arrives now."""
        messages, self.on_the_way = self.on_the_way, []
        for message in messages:
            try:
                message()
            except CallRefused:
                continue


class WitnessedSession(Session):
    """Its memberships show the witness what they reveal."""

    silo: SimulatedSilo

    @classmethod
    def of(cls, silo: SimulatedSilo, study: str, folder: Path) -> WitnessedSession:
        session = cls.open(study, silo.credential, SystemEntropy(), folder, begun=False)
        session.silo = silo
        return session

    def within(self, members: tuple[Member, ...], place: Place | None = None, *, reach: int = 0) -> Membership:
        membership = super().within(members, place, reach=reach)
        membership.__class__ = WitnessedMembership
        membership.silo = self.silo  # type: ignore[attr-defined]  # the line above gives it one
        return membership


class WitnessedMembership(Membership):
    """Shows the witness what it reveals: read from the note itself, as any member of the roster reads it."""

    silo: SimulatedSilo

    def share(
        self, place: Place, tensors: Sequence[str], threshold: int, words: Callable[[], Mapping[str, Word]]
    ) -> bytes:
        note, names = super().share(place, tensors, threshold, words), self.roster.circle.holders(self.me)
        read = Published.parse(note, self.me, self.attempt(place), tensors, names)
        slices = {name: replace(one, sealed=self.silo.deals(name, one.sealed)) for name, one in read.slices.items()}
        if slices != read.slices and place not in self.silo.dealt:
            shares = self.roster.circle.shares(threshold)
            self.silo.dealt[place] = assemble(
                read.keys,
                read.word,
                read.secrets.values(),
                {name: one.to_bytes() for name, one in slices.items()},
                read.deposits,
                lambda head: self.silo.credential.sign(to_sign(self.attempt(place), self.me, tensors, shares, head)),
            )
        return self.silo.dealt.get(place, note)

    def read_shares(self, place: Place, *notes: Any) -> dict[str, ShareBundle]:
        if complaint := self.silo.accuses(self, place):
            raise complaint
        return super().read_shares(place, *notes)

    def reveal(
        self, bundles: Mapping[str, ShareBundle], survivors: SurvivorList, participants: Sequence[str], word: Word
    ) -> bytes:
        note = super().reveal(bundles, survivors, participants, word)
        held = _held(bundles, survivors, participants)
        mine = _by_holder(held)[self.me]
        shares, _ = _open_reveal(note, self.me, mine, survivors, roster=self.roster, keys=self.keys, trust=self._trust)
        parts = {}
        owned = {bundle.owner: bundle for bundle in held}
        for owner, share in shares.items():
            (parts[owner],) = (part for (tensor, part), mine in owned[owner].shares.items() if mine == share)
        place = self.silo.work.place
        assert place is not None
        self.silo.witness.reveals(self.me, place, survivors.tensor, parts)
        return note
