"""Agents in the test's own process: what every one of them has, whatever its coordinator and its learner.

A test that says itself what is asked, and may lie, takes `local_coordinator`. One that leaves that to the rules of the
real coordinator takes `simulated_coordinator`. Agents of `local_silos` learn from records. Those of `simulated_silo`
contribute integers that are known beforehand, may lose messages, die at a write or be hostile.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from crypto.entropy import SystemEntropy
from crypto.pki.certificates import Credential
from policies.documents.study import Study
from protos.checkpoints import Cosigned, CosignedCheckpoint, SignedCheckpoint
from protos.chunks import ChunkList
from protos.messages import (
    Answer,
    AuthorSignature,
    Confirm,
    Part,
    Place,
    StudyText,
    Tensor,
    UploadHeader,
    Work,
)
from protos.steps import Note
from silo_agent.agent import Agent
from silo_agent.metrics import AgentMetrics
from silo_agent.protocol.session import Session
from silo_agent.storage.offered import Said
from silo_agent.storage.state import State
from support.contents import digest_of, listed
from support.cosigners import witnessed
from support.states import keyed


class Believing:
    """Whose study it is, is not asked: what an agent has for that in tests that are about something else."""

    def keep(self, study: Study, given: AuthorSignature | None) -> None: ...
    def judged(self, digest: str, said: Said) -> None: ...
    def begin(self, study: Study) -> None: ...


class Hub(Protocol):
    """What a coordinator is to a silo's line."""

    def canonical(self, digest: str) -> bytes: ...
    def poll(self, silo: str, session: str) -> Work: ...
    def answer(self, answer: Answer, silo: str) -> None: ...
    def confirm(self, silo: str, confirm: Confirm) -> None: ...
    def upload(self, header: UploadHeader, content: bytes, signature: bytes) -> None: ...
    def download(self, silo: str, place: Place, tensor: Tensor | None, part: Part) -> bytes: ...
    def notes(
        self, silo: str, place: Place, kind: Note, owners: Sequence[str], about: Sequence[str]
    ) -> dict[str, bytes]: ...


class Line:
    """One silo's line to a coordinator without a wire: what `silo_agent.protocol.calls.client.Client` is to an agent.

    Contents fit their digests and lists on either way.
    """

    silo: str
    coordinator: Hub
    signer: Credential | None = None

    def study(self, digest: str) -> StudyText:
        return StudyText(self.coordinator.canonical(digest))

    def answer(self, answer: Answer) -> None:
        self.coordinator.answer(answer, self.silo)

    def confirm(self, confirm: Confirm) -> None:
        self.coordinator.confirm(self.silo, confirm)

    def sign(self, message: bytes) -> bytes:
        assert self.signer is not None
        return self.signer.sign(message)

    def signed(self, checkpoint: bytes) -> SignedCheckpoint:
        assert self.signer is not None
        return SignedCheckpoint(checkpoint, self.signer.certificate_pem, self.signer.sign(checkpoint))

    def cosigners(self) -> tuple[Credential, Credential]:
        """The coordinator and the silo that sign this silo's checkpoints."""
        raise NotImplementedError

    def cosigned(self) -> tuple[CosignedCheckpoint, ...]:
        return ()

    def cosign(self, _: Place, stated: SignedCheckpoint, __: CosignedCheckpoint | None = None) -> Cosigned:
        hub, peer = self.cosigners()
        return Cosigned(witnessed(stated, hub), witnessed(stated, peer))

    def upload(self, header: UploadHeader, content: Path, chunks: ChunkList) -> None:
        data = content.read_bytes()
        assert (len(data), digest_of(data), chunks) == (header.size, header.sha256, listed(data))
        self.send(header, data)

    def send(self, header: UploadHeader, data: bytes) -> None:
        """Hand over what fits its header."""
        self.coordinator.upload(header, data, b"")

    def notes(
        self, place: Place, kind: Note, owners: Sequence[str], about: Sequence[str], limit: int
    ) -> dict[str, bytes]:
        notes = self.coordinator.notes(self.silo, place, kind, owners, about)
        assert all(len(note) <= limit for note in notes.values())
        return notes

    def download(self, place: Place, tensor: Tensor | None, wanted: Sequence[tuple[Part, Path]]) -> None:
        for part, target in wanted:
            data = self.coordinator.download(self.silo, place, tensor, part)
            assert (len(data), digest_of(data)) == (part.size, part.sha256)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)


class AgentSilo:
    """One hospital: a folder that stays, and a real agent that may die and begin again."""

    folder: Path
    credential: Credential
    agent: Agent | None = None
    """None while the process is down."""

    # --- what differs --------------------------------------------------------------------------------------------
    def connect(self) -> Line:
        raise NotImplementedError

    def make_gate(self) -> Any:
        raise NotImplementedError

    def make_learner(self, study: Study) -> Any:
        raise NotImplementedError

    def open_session(self, study: str) -> Session:
        """Its session of a study."""
        raise NotImplementedError

    def personal(self, study: Study, round_number: int) -> None:
        """Train its personal model, as the process beside the agent does."""

    # --- what all do ---------------------------------------------------------------------------------------------
    @property
    def name(self) -> str:
        return self.credential.identity.name

    @property
    def up(self) -> bool:
        return self.agent is not None

    def restart(self) -> None:
        """The process dies, if it has not yet, and begins again."""
        self.die()
        self.entropy, self.metrics, self.state = SystemEntropy(), AgentMetrics(), keyed(self.home)
        self.session, self.client, self.gate = self.process_name(), self.connect(), self.make_gate()
        self.agent = Agent(
            self.client,  # type: ignore[arg-type]  # it stands where the client stands
            self.gate,
            self.state,
            self.metrics,
            learners=self.make_learner,
            sessions=self.open_session,
            personal=self.personal,
            asking=Believing(),  # type: ignore[arg-type]  # it stands where `oversight.asking` stands
            entropy=self.entropy,
            session=self.session,
        )

    def die(self) -> None:
        if self.agent is not None:
            self.agent = None
            self.gate.close()
            self.state.close()

    close = die
    """As `contextlib.closing` calls it."""

    @property
    def home(self) -> Path:
        """The agent's state folder."""
        return self.folder

    def process_name(self) -> str:
        """What the agent is called until it begins again."""
        return "0" * 32

    def files(self, study: str) -> Path:
        """Its folder of a study."""
        state: State = self.state
        return state.study_folder(study)
