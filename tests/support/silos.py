"""Silos that speak to a real coordinator over mutual TLS and send random bytes: it could not tell the difference."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import grpc
import numpy as np
import pytest

from coordinator.server import Server
from crypto.pki.certificates import Credential
from crypto.pki.tls import channel_credentials
from crypto.rings.rings import ckks_public, ring_of
from crypto.secagg.dealt.bundles import assemble, to_sign
from crypto.secagg.dealt.slices import Layout
from crypto.secagg.holding import Holding
from crypto.secagg.layout import sealed_values
from crypto.secagg.survivors import AttemptRef, roster_digest
from crypto.secagg.words import NOTHING
from policies.documents.study import Study
from policies.plan import quorum
from policies.plan.release import plan
from protos import chunks, codec
from protos.messages import (
    PROTOCOL,
    Answer,
    Confirm,
    Figure,
    Member,
    Place,
    Publication,
    StudyResults,
    Tensor,
    UploadHeader,
    Work,
)
from protos.roster import RosterMemory
from protos.status import StudyStatus
from protos.steps import SUM, Note, Task
from protos.v1 import operator_pb2, operator_pb2_grpc, silo_pb2, silo_pb2_grpc
from support.certificates import Authority, load
from support.contents import digest_of, listed, pieces
from support.moving_clock import MovingClock
from support.people import create_request

SECONDS = 300.0
PLAY_SECONDS = 120.0
NOTES = {
    Task.GREET: Note.GREETING,
    Task.DEAL: Note.KEYS,
    Task.SHARE: Note.MODEL,
    Task.EXCHANGE: Note.SHARES,
    Task.REVEAL: Note.REVEAL,
    Task.SOLVE: Note.HEADS,
}
WORDS = {"ring32": np.dtype("<u4"), "ring64": np.dtype("<u8")}


def sealed(kind: str, values: int, seed: int = 0) -> bytes:
    """Well-formed sealed content: uniform residues, as masks make them."""
    rng = np.random.default_rng(seed)
    if kind != "ckks":
        return rng.bytes(values * WORDS[kind].itemsize)
    frames = range(-(-values // ckks_public.FRAME_VALUES))
    residues = (rng.integers(0, ckks_public.PRIME, ckks_public.RESIDUES, dtype=np.uint64) for _ in frames)
    return b"".join(ckks_public.write_frame(frame) for frame in residues)


def summed(kind: str, contents: list[bytes]) -> bytes:
    """What numpy makes of the contributions, in one piece."""
    if kind != "ckks":
        words = [np.frombuffer(content, WORDS[kind]) for content in contents]
        return np.sum(words, axis=0, dtype=WORDS[kind]).tobytes()
    size = ckks_public.FRAME_BYTES
    total = b""
    for start in range(0, len(contents[0]), size):
        frames = [ckks_public.read_frame(content[start : start + size]) for content in contents]
        # Fewer than 2^10 residues of 54 bits fit 64: numpy reduces once, the code under test after every addition.
        total += ckks_public.write_frame(np.sum(frames, axis=0, dtype=np.uint64) % np.uint64(ckks_public.PRIME))
    return total


def announced(study: Study, round_number: int, tensor: Tensor) -> tuple[str, int]:
    """Ring and number of values of what a silo uploads for a tensor."""
    planned = [release for release in plan(study).rounds[round_number] if release.tensor == tensor]
    # Of a tensor that is not due: as some round has it, so that nothing but the round is wrong with it.
    release = (planned or [release for release in plan(study) if release.tensor == tensor])[0]
    return release.ring, sealed_values(release.values, len(study.silos))


def content_size(study: Study, round_number: int, tensor: Tensor) -> int:
    """Bytes of it."""
    kind, values = announced(study, round_number, tensor)
    return ring_of(kind).content_size(values)


class Caller:
    """A connection with one party's certificate."""

    def __init__(self, port: int, folder: Path) -> None:
        self.credential: Credential = load(folder)
        self.channel = grpc.secure_channel(f"127.0.0.1:{port}", channel_credentials(self.credential))
        self.silo = silo_pb2_grpc.SiloServiceStub(self.channel)
        self.operator = operator_pb2_grpc.OperatorServiceStub(self.channel)

    @property
    def name(self) -> str:
        return self.credential.identity.name

    def close(self) -> None:
        self.channel.close()


class Silo(Caller):
    """Does what it is asked, one call at a time."""

    def __init__(self, port: int, folder: Path, study: Study, session: str = "one") -> None:
        super().__init__(port, folder)
        self.study, self.session, self.model = study, session, ""
        self.roster = RosterMemory()
        self.committed, self.round = "", 0
        """The model that the current round builds on: an attempt that fails leaves no other."""
        self._shares: dict[Place, bytes] = {}
        self.listed = b""
        """The hashes that came with the last download."""

    def join(self, protocol: int = PROTOCOL) -> silo_pb2.JoinReply:
        request = silo_pb2.JoinRequest(protocol=protocol, agent_version="test")
        reply: silo_pb2.JoinReply = self.silo.Join(request, timeout=SECONDS)
        return reply

    def poll(self, hold: float = 0.0) -> Work:
        request = silo_pb2.PollRequest(session=self.session, hold_seconds=hold, roster_sha256=self.roster.held)
        return self.roster.whole(codec.from_wire(Work, self.silo.Poll(request, timeout=SECONDS)))

    def answer(self, place: Place, refusal: str = "", silo: str = "") -> None:
        self.committed = self.model if place.round > self.round else self.committed
        self.model, self.round = self.committed, place.round
        key = hashlib.sha256(self.credential.certificate_pem).digest()
        member = Member(silo or self.name, self.credential.certificate_pem, key, key * 37, b"signature")
        answer = Answer(
            place,
            self.session,
            refusal,
            "because",
            member=None if refusal else member,
            model="" if refusal else self.model,
        )
        self.silo.Answer(codec.to_wire(answer), timeout=SECONDS)

    def header(self, place: Place, content: bytes, what: Tensor | Note, **changes: object) -> UploadHeader:
        kind, values = announced(self.study, place.round, what) if isinstance(what, Tensor) else (str(what), 0)
        fields: dict[str, object] = {
            "place": place,
            "kind": kind,
            "tensor": what if isinstance(what, Tensor) else None,
            "silo": self.name,
            "values": values,
            "size": len(content),
            "sha256": digest_of(content),
        }
        return UploadHeader(**{**fields, **changes})  # type: ignore[arg-type]  # a test's header may be wrong

    def upload(
        self,
        header: UploadHeader,
        content: bytes,
        *,
        offset: int = 0,
        signature: bytes = b"",
        hashes: bytes | None = None,
    ) -> None:
        messages = self.messages(header, content, offset=offset, signature=signature, hashes=hashes)
        self.silo.Upload(messages, timeout=SECONDS)

    def messages(
        self,
        header: UploadHeader,
        content: bytes,
        *,
        offset: int = 0,
        signature: bytes = b"",
        hashes: bytes | None = None,
    ) -> Iterator[silo_pb2.UploadChunk]:
        """An upload's stream; `hashes` instead of those of the content."""
        yield silo_pb2.UploadChunk(
            header=codec.to_wire(header),
            signature=signature or self.credential.sign(header.canonical()),
            hashes=listed(content).hashes if hashes is None else hashes,
        )
        for start, piece in zip(range(0, len(content), chunks.MAX_CHUNK), pieces(content), strict=True):
            if start >= offset:
                yield silo_pb2.UploadChunk(offset=start, data=piece)

    def stored(self, header: UploadHeader) -> tuple[int, bool]:
        request = silo_pb2.UploadStatusRequest(header=codec.to_wire(header))
        reply = self.silo.UploadStatus(request, timeout=SECONDS)
        return reply.offset, reply.complete

    def download(
        self, place: Place, kind: str, tensor: Tensor | None = None, offset: int = 0, of_silo: str = ""
    ) -> bytes:
        (content,) = self.download_all(place, kind, tensor, [of_silo], offset) or [b""]
        return content

    def download_all(
        self,
        place: Place,
        kind: str,
        tensor: Tensor | None,
        of_silos: Sequence[str],
        offset: int = 0,
        *,
        about: Sequence[str] = (),
    ) -> list[bytes]:
        """All contents of one kind, in one stream; of the first, what begins at `offset`."""
        request = silo_pb2.DownloadRequest(
            place=codec.to_wire(place),
            tensor=codec.tensor_to_wire(tensor),
            kind=kind,
            offset=offset,
            silos=of_silos,
            about=about,
        )
        contents: list[bytes] = []
        stream = self.silo.Download(request, timeout=SECONDS)
        for chunk in (piece for message in stream for piece in (message, *message.more)):
            if chunk.hashes:
                offset = offset if not contents else 0
                contents.append(b"")
                self.listed = chunk.hashes
            assert chunk.offset == offset + len(contents[-1])
            contents[-1] += chunk.data
        return contents

    def confirm(self, place: Place, task: Task, tensor: Tensor | None = None, **fields: str | bytes) -> None:
        confirm = Confirm(place, task, tensor, **{"model": self.model, **fields})  # type: ignore[arg-type]  # as above
        self.silo.Confirm(codec.to_wire(confirm), timeout=SECONDS)

    def contribution(self, place: Place, tensor: Tensor) -> bytes:
        """The same bytes for the same place and tensor, as everywhere in FedWard."""
        kind, values = announced(self.study, place.round, tensor)
        seed = hashlib.sha256(f"{self.name} {place} {tensor}".encode()).digest()
        return sealed(kind, values, int.from_bytes(seed[:8], "big"))

    def shares(self, work: Work) -> bytes:
        """A signed note whose shares nobody could open, the same for the same attempt."""
        place = work.place
        assert place is not None
        if place not in self._shares:
            names = [member.silo for member in work.roster]
            own = ((one.silo, one.certificate_pem, one.public_key, one.kem_key, one.signature) for one in work.roster)
            attempt = AttemptRef(place.study, roster_digest(place.study, own), place.round, place.attempt)
            tensors = [release.tensor for release in plan(self.study).round(place.round)]
            needed = quorum.needed(self.study)
            self._shares[place] = unreadable(
                Layout.of(tensors, names),
                lambda head: self.credential.sign(to_sign(attempt, self.name, tensors, needed, head)),
            )
        return self._shares[place]

    def publication(self, **values: float) -> Publication:
        """All that the study lists; a metric has the value given for it."""
        return Publication(
            self.study.digest,
            tuple(
                Figure(domain, metric, values.get(metric, 0.5), 0.25, 0.75)
                for domain in self.study.data.domains
                for metric in self.study.publish
            ),
        )

    def signed(self, publication: Publication) -> dict[str, bytes]:
        """The fields of a confirmation that publishes."""
        blob = publication.canonical()
        return {"publication": blob, "signature": self.credential.sign(Publication.to_sign(blob))}

    def vouched(self, number: int) -> dict[str, str | bytes]:
        """The fields of a confirmation that signs which model this silo holds after a round."""
        holding = Holding(self.study.digest, number, hashlib.sha256(self.model.encode()).hexdigest())
        return {"content": holding.content, "vouch": self.credential.sign(holding.to_sign())}

    def do(self, work: Work) -> None:
        """What an honest silo does, without any learning."""
        place, task = work.place, work.task
        assert place is not None
        fetched = self.fetch(work)
        if task is Task.DECIDE:
            self.answer(place)
        elif task is Task.CONTRIBUTE:
            assert work.tensor is not None
            content = self.contribution(place, work.tensor)
            self.upload(self.header(place, content, work.tensor), content)
        elif task in NOTES:
            # What the others would open: the model that they are to hold; anything of the other notes.
            content = (self.model if task is Task.SHARE else f"{NOTES[task]} of {self.name} at {place}").encode()
            content = self.shares(work) if task is Task.EXCHANGE else content
            tensor = work.tensor if task is Task.REVEAL else None
            self.upload(self.header(place, content, NOTES[task], tensor=tensor), content)
        elif task is Task.SIGN:
            self.confirm(place, task, work.tensor, signature=self.credential.sign(repr(work.survivors).encode()))
        elif task is Task.FINISH:
            self.confirm(place, task)
        else:
            self.take(work, fetched)

    def fetch(self, work: Work) -> dict[str, bytes]:
        """All that the work offers; returns the last content of each kind."""
        assert work.place is not None
        last = {}
        for kind in dict.fromkeys(part.kind for part in work.parts):
            parts = [part for part in work.parts if part.kind == kind]
            contents = self.download_all(work.place, kind, work.tensor, [part.silo for part in parts])
            for part, content in zip(parts, contents, strict=True):
                assert (len(content), digest_of(content)) == (part.size, part.sha256)
                last[kind] = content
        return last

    def take(self, work: Work, fetched: dict[str, bytes]) -> None:
        """Confirm what was fetched; the model follows from it."""
        place, task = work.place, work.task
        assert place is not None
        if task is Task.CATCH_UP:
            self.model = self.committed = fetched[Note.MODEL].decode()
        elif task not in (Task.TAKE, Task.JUDGE, Task.CHECK):
            digest = hashlib.sha256(fetched[SUM if task is Task.OPEN else Note.HEADS]).hexdigest()
            self.model = hashlib.sha256(f"{place} {task} {digest}".encode()).hexdigest()
        publishes = self.study.publish and task is Task.OPEN and work.tensor is Tensor.METRICS
        fields: dict[str, str | bytes] = {**self.signed(self.publication())} if publishes else {}
        if task in (Task.CATCH_UP, Task.OPEN, Task.ADOPT):
            fields |= self.vouched(place.round - (task is Task.CATCH_UP))
        self.confirm(place, task, work.tensor if task is Task.OPEN else None, **fields)


class Scene:
    """One study of one server, with its silos and an operator."""

    def __init__(self, server: Server, authority: Authority, study: Study, operator: Caller) -> None:
        self.server, self.authority, self.study, self._operator = server, authority, study, operator
        self.folders = {name: authority.credential("silo", name) for name in study.silos}
        self.silos = {name: Silo(server.port, folder, study) for name, folder in self.folders.items()}
        request = create_request(authority, study)
        operator.operator.CreateStudy(request, timeout=SECONDS)

    def start(self) -> None:
        self._operator.operator.StartStudy(operator_pb2.StudyRequest(study=self.study.digest), timeout=SECONDS)

    def abort(self, reason: str = "") -> None:
        request = operator_pb2.AbortStudyRequest(study=self.study.digest, reason=reason)
        self._operator.operator.AbortStudy(request, timeout=SECONDS)

    def pause(self) -> None:
        self._operator.operator.PauseStudy(operator_pb2.StudyRequest(study=self.study.digest), timeout=SECONDS)

    def resume(self) -> None:
        self._operator.operator.ResumeStudy(operator_pb2.StudyRequest(study=self.study.digest), timeout=SECONDS)

    def results(self) -> StudyResults:
        request = operator_pb2.StudyRequest(study=self.study.digest)
        return codec.results_from_wire(self._operator.operator.GetResults(request, timeout=SECONDS))

    def status(self) -> StudyStatus:
        request = operator_pb2.StudyRequest(study=self.study.digest)
        return codec.from_wire(StudyStatus, self._operator.operator.GetStudyStatus(request, timeout=SECONDS))

    def play(self, until: Callable[[StudyStatus], bool], *, silent: tuple[str, ...] = ()) -> StudyStatus:
        """Everybody but the silent ones acts, one after the other, until the condition holds.

        Where only the silent ones are waited for, the time limit passes.
        """
        end = time.monotonic() + PLAY_SECONDS
        while time.monotonic() < end:
            for silo in self.silos.values():
                if until(status := self.status()):
                    return status
                if silo.name not in silent:
                    work = silo.poll(hold=0.1 if status.phase == "add" else 0.0)
                    if work.task is not Task.WAIT:
                        silo.do(work)
            now = self.status()
            if now.state == "running" and set(now.waiting_for) <= set(silent) and now.waiting_for:
                self._pass_limit(_stand(now))
        raise AssertionError(f"not reached: {self.status()}")  # noqa: EM102, TRY003

    def _pass_limit(self, before: tuple[object, ...]) -> None:
        self._jump()
        end = time.monotonic() + PLAY_SECONDS
        while _stand(self.status()) == before and time.monotonic() < end:
            time.sleep(0.01)

    def _jump(self) -> None:
        clock = self.server.engine._clock
        assert isinstance(clock, MovingClock)
        clock.jump()

    def gathering(self, tensor: Tensor | None = None) -> Place:
        """Play until a tensor is gathered that nobody has sent yet; returns where."""
        status = self.play(
            lambda s: s.phase == "gather" and tensor in (None, s.tensor) and len(s.waiting_for) == len(s.members)
        )
        return Place(self.study.digest, status.round, status.attempt)

    def reconnect(self, port: int, operator: Caller) -> None:
        """The same processes call a coordinator that was started again."""
        self._operator = operator
        for name, silo in self.silos.items():
            silo.close()
            again = Silo(port, self.folders[name], self.study, silo.session)
            again.model, again.committed, again.round = silo.model, silo.committed, silo.round
            self.silos[name] = again

    def close(self) -> None:
        for silo in self.silos.values():
            silo.close()


@contextmanager
def refused(code: grpc.StatusCode, match: str) -> Iterator[None]:
    """The call inside is refused with this code and a sentence that fits."""
    with pytest.raises(grpc.RpcError) as caught:
        yield
    assert caught.value.code() is code, caught.value
    assert re.search(match, caught.value.details() or ""), caught.value.details()


def _stand(status: StudyStatus) -> tuple[object, ...]:
    """Where a study stands, without when anybody was seen."""
    return status.state, status.round, status.attempt, status.phase, status.tensor, status.waiting_for


def unreadable(layout: Layout, sign: Callable[[bytes], bytes]) -> bytes:
    """A shares note of the right form, with this signature of its head, in which nobody finds a share."""
    return assemble(
        b"x" * 32,
        NOTHING,
        [b"x" * 32] * 2 * len(layout.tensors),
        {name: bytes(layout.slice) for name in layout.holders},
        dict.fromkeys(layout.tensors, b"x" * layout.deposit),
        sign,
    )
