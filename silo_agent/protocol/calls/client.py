"""The agent's calls to the coordinator: deadlines, retries, resumed streams. The agent dials out and never listens.

While the coordinator is away, a call that can be repeated is repeated with growing pauses. If the coordinator refuses,
`CallRefused` carries its status code, and the agent decides what that means. A downloaded chunk is checked against the
announced digest before it is written, so no wrong byte is kept. A download needs memory for one chunk and for the list
of the chunks' hashes.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import grpc
import structlog

from crypto.audit_chain import AuditStatement, Followed
from crypto.pki.certificates import Credential
from crypto.pki.tls import channel_credentials, handshake_fault
from protos import codec
from protos.audit import AuditTrail, CosignedAudit
from protos.bounds import sentence
from protos.checkpoints import Cosigned, CosignedCheckpoint, Handed, SignedCheckpoint
from protos.chunks import HASH_BYTES, ChunkList, read_chunks
from protos.messages import (
    MAX_MESSAGE,
    PROTOCOL,
    Answer,
    Confirm,
    MessageError,
    Part,
    Place,
    StudyText,
    Tensor,
    UploadHeader,
    Work,
)
from protos.roster import RosterMemory
from protos.steps import Note
from protos.v1 import silo_pb2, silo_pb2_grpc
from silo_agent.errors import SiloError
from silo_agent.protocol.calls.epochs import CheckedCalls, Epochs

log = structlog.get_logger()
T = TypeVar("T")
CALL_SECONDS = 30.0
STREAM_SECONDS = 3600.0
HOLD_SECONDS = 15.0
WITNESS_SECONDS = 2.0
"""How long the coordinator waits for another silo's cosignature before this one asks again."""
MAX_COSIGNERS = 300
KEPT_CHANNELS = 2
"""Connections at once: one with the certificate of now, and one whose calls began before a renewal."""
STOP_SECONDS = 0.25
"""How long a wish to stop may go unnoticed while the coordinator holds a call."""
LEFT_SECONDS = 5.0
"""Between two looks whether a coordinator that was left may be called again."""
_CLOSED = "closed channel"
"""What gRPC says, in a ValueError, of a call over a connection that `leave` has just closed."""
PAUSES = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
TRANSIENT = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.UNKNOWN,
        # The coordinator asks for an upload to be resumed; or its disk is full until the operator frees space, or this
        # certificate has too many calls in flight, some of which may be those of a broken connection.
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
    }
)
_ABSENT = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED})
"""Another machine may be the active one."""
NOT_KNOWN = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)
OPTIONS = (
    ("grpc.max_receive_message_length", MAX_MESSAGE),
    ("grpc.max_send_message_length", MAX_MESSAGE),
    # A coordinator that is frozen answers no ping: within 20 seconds the next machine is called. The door takes a ping
    # every ten seconds.
    ("grpc.keepalive_time_ms", 15_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.max_reconnect_backoff_ms", 5_000),
)


class CallRefused(SiloError):  # noqa: N818  # a refusal, by the project's naming
    """The coordinator said no. `code` is the gRPC status; the text is the coordinator's reason."""

    def __init__(self, code: grpc.StatusCode, text: str) -> None:
        self.code = code
        super().__init__(sentence(text) or f"the coordinator refuses the call ({code.value[1]}) and says no reason")


class WentBackRefused(CallRefused):
    """The coordinator remembers an entry of this silo's ledger that the checkpoint does not contain."""


class ContentError(SiloError):
    """The downloaded content is not what the coordinator announced."""


class CoordinatorLeftError(SiloError):
    """The coordinator must not be called now. The text says why."""


class AskedToStop(Exception):  # noqa: N818  # a wish of the operator, not an error
    """The agent was asked to stop while it waited."""


@dataclass(frozen=True)
class CoordinatorGreeting:
    """What a coordinator says when a silo introduces itself.

    `ahead`: seconds by which the coordinator's clock is ahead of this machine's, as the middle of the call tells, and
    `within`: half of the time that the call took, the most by which `ahead` is wrong. Both are None if the coordinator
    does not tell its time.
    """

    version: str
    ahead: float | None
    within: float | None


def greet(
    addresses: Sequence[str], credential: Credential, version: str, seconds: float, *, proxy: str | None = None
) -> CoordinatorGreeting:
    """Introduce this silo once, without a session, so that nothing changes for an agent that runs at the same time.

    `addresses` and `proxy` are as in `Client`. Raises `CallRefused`, also if no machine answers within `seconds`.
    """
    return _by_one(addresses, lambda address: _greet(address, credential, version, seconds, proxy))


def _by_one(addresses: Sequence[str], ask: Callable[[str], T]) -> T:
    """Return the answer of the first machine that gives one. Raises the `CallRefused` of the last."""
    *others, last = addresses
    for address in others:
        try:
            return ask(address)
        except CallRefused as refused:
            if refused.code not in _ABSENT:
                raise
    return ask(last)


def _greet(
    address: str, credential: Credential, version: str, seconds: float, proxy: str | None
) -> CoordinatorGreeting:
    request = silo_pb2.JoinRequest(protocol=PROTOCOL, agent_version=version)
    with grpc.secure_channel(address, channel_credentials(credential), options=_options(proxy)) as channel:
        calls = silo_pb2_grpc.SiloServiceStub(channel)
        try:
            calls.Join(request, timeout=seconds)  # opens the connection, so that the next call is as short as it can be
            began, clock = time.monotonic(), time.time()
            reply: silo_pb2.JoinReply = calls.Join(request, timeout=seconds)
            took = time.monotonic() - began
        except grpc.RpcError as error:
            details = error.details() or ""
            mend = f"; {_fix(error.code(), details)}" if error.code() in TRANSIENT else ""
            raise CallRefused(error.code(), f"{details}{mend}") from None
    if not reply.time:
        return CoordinatorGreeting(reply.coordinator_version, None, None)
    return CoordinatorGreeting(reply.coordinator_version, reply.time - (clock + took / 2), took / 2)


def remembered(
    addresses: Sequence[str], credential: Credential, seconds: float, *, proxy: str | None = None
) -> tuple[CosignedCheckpoint, ...]:
    """What the coordinator and other silos signed last of this silo's ledger, asked once and without a session.

    `addresses` and `proxy` are as in `Client`. Raises `CallRefused`, also if no machine answers within `seconds`.
    """
    return _by_one(addresses, lambda address: _remembered(address, credential, seconds, proxy))


def _remembered(
    address: str, credential: Credential, seconds: float, proxy: str | None
) -> tuple[CosignedCheckpoint, ...]:
    with grpc.secure_channel(address, channel_credentials(credential), options=_options(proxy)) as channel:
        calls = silo_pb2_grpc.SiloServiceStub(channel)
        try:
            stream = calls.LatestCountersignatures(silo_pb2.LatestCountersignaturesRequest(), timeout=seconds)
            return tuple(one for one in map(_cosignature, islice(stream, MAX_COSIGNERS)) if one is not None)
        except grpc.RpcError as error:
            raise CallRefused(error.code(), error.details() or "") from None


def _options(proxy: str | None) -> tuple[tuple[str, object], ...]:
    """Without a proxy, variables such as `https_proxy` name none either: a service has others than a person's shell."""
    return (*OPTIONS, ("grpc.enable_http_proxy", 0) if proxy is None else ("grpc.http_proxy", proxy))


class Client:
    """One silo's connection. Safe to share between the agent's main thread and its heartbeat."""

    def __init__(
        self,
        addresses: Sequence[str],
        credential: Credential,
        session: str,
        stop: threading.Event,
        connected: Callable[[bool], None],
        *,
        epochs: Epochs,
        proxy: str | None = None,
    ) -> None:
        """`addresses`: the coordinator's machines, of which one is active. The next is called if one does not answer.

        `proxy`: the http URL through which the connection is made by CONNECT. TLS goes on to the coordinator.
        """
        self._credential, self._session, self._stop, self._connected = credential, session, stop, connected
        self._addresses, self._epochs, self._proxy = deque(addresses), epochs, proxy
        self._guard = threading.Lock()
        self._channels: list[grpc.Channel] = []
        self._shown = b""
        self._stub: Any = None
        self._roster = RosterMemory()
        self._left: str | None = None
        """Why the coordinator must not be called, if it must not."""

    @property
    def _calls(self) -> Any:
        """The coordinator's calls, over a connection that shows this silo's certificate as it is now.

        After a renewal a connection with the old certificate serves the calls that it has until its next renewal, which
        is days away, closes it.
        """
        with self._guard:
            if self._left is not None:
                raise CoordinatorLeftError(self._left)
            shown = self._credential.chain_pem + self._credential.trust.bundle.roots_pem
            if shown != self._shown:
                credentials = channel_credentials(self._credential)
                self._channels.append(grpc.secure_channel(self.address, credentials, options=_options(self._proxy)))
                stub = silo_pb2_grpc.SiloServiceStub(self._channels[-1])
                self._stub, self._shown = CheckedCalls(stub, self._epochs), shown
                while len(self._channels) > KEPT_CHANNELS:
                    self._channels.pop(0).close()
            return self._stub

    @property
    def address(self) -> str:
        """Which of the coordinator's machines is called now."""
        return self._addresses[0]

    def _elsewhere(self, called: str) -> None:
        """Call the next machine from now on, unless another thread has done so."""
        with self._guard:
            if len(self._addresses) > 1 and called == self.address:
                self._addresses.rotate(-1)
                self._shown = b""

    def leave(self, why: str) -> None:
        """Close the connections at once, and make no other until `allow`. Calls wait, as for one that is away."""
        with self._guard:
            if self._left is None:
                log.error("coordinator left", why=why)
            self._left, self._shown = why, b""
            while self._channels:
                self._channels.pop().close()

    def allow(self) -> None:
        """Let the coordinator be called again."""
        with self._guard:
            if self._left is not None:
                log.info("coordinator called again")
            self._left = None

    def join(self, version: str) -> silo_pb2.JoinReply:
        """Introduce this silo; returns the coordinator's limits."""
        request = silo_pb2.JoinRequest(protocol=PROTOCOL, agent_version=version, session=self._session)
        reply: silo_pb2.JoinReply = self._patiently(lambda: self._calls.Join(request, timeout=CALL_SECONDS))
        return reply

    def study(self, digest: str) -> StudyText:
        """A study's text with its author's signature. The caller checks both."""
        request = silo_pb2.GetStudyRequest(study=digest)
        reply = self._patiently(lambda: self._calls.GetStudy(request, timeout=CALL_SECONDS))
        return codec.from_wire(StudyText, reply)

    def poll(self) -> Work:
        """Wait for work; raises `AskedToStop` soon after the agent is asked to stop."""
        request = silo_pb2.PollRequest(
            session=self._session, hold_seconds=HOLD_SECONDS, roster_sha256=self._roster.held
        )
        work: silo_pb2.Work = self._held(lambda: self._calls.Poll, request)
        return self._roster.whole(codec.from_wire(Work, work))

    def answer(self, answer: Answer) -> None:
        """Tell the coordinator whether this silo takes part or refuses."""
        self._patiently(lambda: self._calls.Answer(codec.to_wire(answer), timeout=CALL_SECONDS))

    def confirm(self, confirm: Confirm) -> None:
        """Tell the coordinator that a task is done, or that this silo disputes it."""
        self._patiently(lambda: self._calls.Confirm(codec.to_wire(confirm), timeout=CALL_SECONDS))

    def cosigned(self) -> tuple[CosignedCheckpoint, ...]:
        """The latest cosignatures of this silo's ledger that the coordinator remembers."""
        request = silo_pb2.LatestCountersignaturesRequest()

        def fetch() -> tuple[CosignedCheckpoint, ...]:
            stream = self._calls.LatestCountersignatures(request, timeout=CALL_SECONDS)
            # Each is read before the next one comes: all of them in the form of the wire could fill the memory.
            return tuple(one for one in map(_cosignature, islice(stream, MAX_COSIGNERS)) if one is not None)

        return self._patiently(fetch)

    def cosign(self, place: Place, stated: SignedCheckpoint, evidence: CosignedCheckpoint | None = None) -> Cosigned:
        """Have the ledger cosigned for a charged attempt; waits up to `WITNESS_SECONDS` for another silo.

        `evidence` is the coordinator's own signature on an earlier checkpoint, in case it has forgotten that one.
        Raises `WentBackRefused` if the coordinator remembers an entry of the ledger that the checkpoint lacks.
        """
        request = silo_pb2.CountersignRequest(
            place=codec.to_wire(place),
            statement=codec.to_wire(stated),
            hold_seconds=WITNESS_SECONDS,
            evidence=None if evidence is None else codec.to_wire(evidence),
        )
        reply: silo_pb2.CountersignReply = self._held(lambda: self._calls.Countersign, request)
        return codec.from_wire(Cosigned, reply)

    def witness(self, given: CosignedCheckpoint | None) -> Handed | None:
        """Hand in a cosigned checkpoint, then wait for another silo's checkpoint. Returns None if none came."""
        request = silo_pb2.WitnessRequest(
            given=None if given is None else codec.to_wire(given), hold_seconds=HOLD_SECONDS
        )
        reply: silo_pb2.WitnessReply = self._held(lambda: self._calls.Witness, request)
        return codec.from_wire(Handed, reply) if reply.HasField("statement") else None

    def signed(self, checkpoint: bytes) -> SignedCheckpoint:
        """A checkpoint with this silo's signature."""
        return SignedCheckpoint(checkpoint, self._credential.certificate_pem, self._credential.sign(checkpoint))

    def sign(self, message: bytes) -> bytes:
        """This silo's signature over a message. The message must say what it is for."""
        return self._credential.sign(message)

    def heartbeat(self) -> Followed:
        """Tell the coordinator that this silo is alive, and hear how far its audit log has come. Tried once."""
        reply = self._calls.Heartbeat(silo_pb2.HeartbeatRequest(session=self._session), timeout=CALL_SECONDS)
        return Followed(int(reply.audit_entries), bytes(reply.audit_head))

    def next_poll(self) -> StudyText | None:
        """A study about which an author asks this silo; None if there is none. Tried once."""
        reply = self._calls.NextPoll(silo_pb2.NextPollRequest(), timeout=CALL_SECONDS)
        return codec.from_wire(StudyText, reply) if reply.canonical else None

    def answer_poll(self, study: str, verdict: str) -> None:
        """Answer a poll. Tried once."""
        self._calls.AnswerPoll(silo_pb2.AnswerPollRequest(study=study, verdict=verdict), timeout=CALL_SECONDS)

    def audit_trail(self, after: Followed) -> AuditTrail | None:
        """What comes in the coordinator's audit log after a head; None if it has no such head. Tried once."""
        request = silo_pb2.FollowAuditRequest(entries=after.entries, head=after.head)
        try:
            return codec.from_wire(AuditTrail, self._calls.FollowAudit(request, timeout=CALL_SECONDS))
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.FAILED_PRECONDITION:
                return None
            raise

    def cosign_audit(self, statement: AuditStatement) -> None:
        """Sign how far this silo has followed the audit log. Tried once."""
        now, broke = statement.now, statement.broke
        signed = CosignedAudit(
            self._credential.identity.name,
            now.entries,
            now.head,
            broke.entries,
            broke.head,
            self._credential.certificate_pem,
            self._credential.sign(statement.to_sign()),
        )
        self._calls.CosignAudit(codec.to_wire(signed), timeout=CALL_SECONDS)

    def upload(self, header: UploadHeader, content: Path, chunks: ChunkList) -> None:
        """Send a file, from the first chunk that the coordinator does not have. The header's digest covers `chunks`."""
        signature = self._credential.sign(header.canonical())
        wire = codec.to_wire(header)

        def send() -> None:
            status = self._calls.UploadStatus(silo_pb2.UploadStatusRequest(header=wire), timeout=CALL_SECONDS)
            offset = header.size if status.complete else int(status.offset)
            if offset:
                log.info("upload goes on", slot=header.slot, offset=offset, size=header.size)
            first = silo_pb2.UploadChunk(header=wire, signature=signature, hashes=chunks.hashes)
            self._calls.Upload(_stream(first, content, offset), timeout=STREAM_SECONDS)

        self._patiently(send)

    def notes(
        self, place: Place, kind: Note, owners: Sequence[str], about: Sequence[str], limit: int
    ) -> dict[str, bytes]:
        """Fetch notes of one kind in one stream, by owner: cut for the silos of `about`, or whole if these are none.

        What they say is not checked: whoever reads one checks its owner's signature. Raises `ContentError` for one of
        more than `limit` bytes.
        """
        found: dict[str, bytes] = {}

        def fetch() -> None:
            if len(found) == len(owners):
                return  # the connection broke after the last byte
            left = owners[len(found) :]
            request = silo_pb2.DownloadRequest(place=codec.to_wire(place), kind=kind, silos=left, about=about)
            stream = self._calls.Download(request, timeout=STREAM_SECONDS)
            pieces = (piece for message in stream for piece in (message, *message.more))
            try:
                for owner in left:
                    found[owner] = _receive_signed(pieces, kind, limit)
                if next(pieces, None) is not None:
                    msg = f"the coordinator sends more than the {kind} that were asked for"
                    raise ContentError(msg)
            finally:
                stream.cancel()

        self._patiently(fetch)
        return found

    def download(self, place: Place, tensor: Tensor | None, wanted: Sequence[tuple[Part, Path]]) -> None:
        """Fetch what the parts announce, all of one kind, each into its file, in one stream.

        A file gets its name when it is complete, and stays. After a break it goes on at the first missing chunk. Raises
        `ContentError` if a content is not what was announced; nothing of that one is left.
        """
        left = deque((part, target, target.with_name(target.name + ".part")) for part, target in wanted)
        for _, _, fresh in left:
            fresh.parent.mkdir(parents=True, exist_ok=True)
            fresh.unlink(missing_ok=True)

        def fetch() -> None:
            if not left:
                return  # the connection broke after the last byte
            # A file holds whole chunks only, and each was checked before it was written.
            part, _, fresh = left[0]
            request = silo_pb2.DownloadRequest(
                place=codec.to_wire(place),
                tensor=codec.tensor_to_wire(tensor),
                kind=part.kind,
                offset=fresh.stat().st_size if fresh.exists() else 0,
                silos=[one.silo for one, _, _ in left],
            )
            stream = self._calls.Download(request, timeout=STREAM_SECONDS)
            pieces = (piece for message in stream for piece in (message, *message.more))
            try:
                while left:
                    part, target, fresh = left[0]
                    with fresh.open("ab") as file:
                        _receive(pieces, part, file)
                    fresh.replace(target)
                    left.popleft()
                if next(pieces, None) is not None:
                    msg = f"the coordinator sends more than the {part.kind} that it announced"
                    raise ContentError(msg)
            finally:
                stream.cancel()

        try:
            self._patiently(fetch)
        finally:
            for _, _, fresh in left:
                fresh.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the connections."""
        with self._guard:
            for channel in self._channels:
                channel.close()

    def _held(self, call: Callable[[], Any], request: object) -> Any:
        """A call that the coordinator may hold open. Raises `AskedToStop` soon after the agent is asked to stop."""

        def held() -> object:
            future = call().future(request, timeout=HOLD_SECONDS + CALL_SECONDS)
            answered = threading.Event()
            future.add_done_callback(lambda _: answered.set())
            while not answered.wait(STOP_SECONDS):
                if self._stop.is_set():
                    future.cancel()
                    raise AskedToStop
            return future.result()

        return self._patiently(held)

    def _patiently(self, call: Callable[[], T]) -> T:
        attempt = 0
        while True:
            if self._stop.is_set():
                raise AskedToStop
            shown, called = self._credential.chain_pem, self.address
            try:
                reply = call()
            except grpc.RpcError as error:
                code = error.code()
                if code in NOT_KNOWN and shown != self._credential.chain_pem:
                    continue  # the certificate ended on the way, and was renewed
                if code not in TRANSIENT:
                    refused = WentBackRefused if code is grpc.StatusCode.DATA_LOSS else CallRefused
                    raise refused(code, error.details() or "") from None
                self._connected(False)  # noqa: FBT003  # a gauge
                if code in _ABSENT:
                    self._elsewhere(called)
                # Each machine is tried before the pause grows.
                pause = PAUSES[min(attempt // len(self._addresses), len(PAUSES) - 1)]
                _tell(error, attempt)
                attempt += 1
                if self._stop.wait(pause):
                    raise AskedToStop from None
            except (CoordinatorLeftError, ValueError) as error:
                self._wait_while_left(error)
            else:
                self._connected(True)  # noqa: FBT003  # a gauge
                return reply

    def _wait_while_left(self, error: Exception) -> None:
        """Wait a while if the coordinator must not be called. Raises `AskedToStop`, and any other ValueError."""
        if not isinstance(error, CoordinatorLeftError) and _CLOSED not in str(error):
            raise error
        self._connected(False)  # noqa: FBT003  # a gauge
        if self._stop.wait(LEFT_SECONDS):
            raise AskedToStop from None


def _tell(error: grpc.RpcError, attempt: int) -> None:
    """Say what is wrong, and do not flood."""
    if attempt in (2, 5) or attempt % 20 == 19:  # noqa: PLR2004  # the third time, the sixth, and every twentieth
        code, details = error.code(), sentence(error.details() or "")
        log.warning(
            "coordinator does not answer", code=code.name, why=details, mend=_fix(code, details), attempt=attempt + 1
        )


def _cosignature(wire: silo_pb2.Countersignature) -> CosignedCheckpoint | None:
    """What the coordinator remembers of one signer; None if it is malformed."""
    try:
        return codec.from_wire(CosignedCheckpoint, wire)
    except MessageError as fault:
        log.warning("a cosignature does not count", why=str(fault))
        return None


def _stream(first: silo_pb2.UploadChunk, content: Path, offset: int) -> Iterator[silo_pb2.UploadChunk]:
    yield first
    for data in read_chunks(content, offset):
        yield silo_pb2.UploadChunk(offset=offset, data=data)
        offset += len(data)


def _receive_signed(stream: Iterator[silo_pb2.DownloadChunk], kind: str, limit: int) -> bytes:
    """Return a whole content of which nothing but its kind is known. Raises `ContentError`."""
    chunk: silo_pb2.DownloadChunk | None = next(stream, None)
    data, left = bytearray(), 0 if chunk is None else len(chunk.hashes) // HASH_BYTES
    while chunk is not None and chunk.data and left and chunk.offset == len(data):
        data += chunk.data
        left -= 1
        if len(data) > limit:
            break
        if not left:
            return bytes(data)
        chunk = next(stream, None)
    msg = f"the {kind} that the coordinator sends is cut, out of order or longer than {limit} bytes"
    raise ContentError(msg)


def _receive(stream: Iterator[silo_pb2.DownloadChunk], part: Part, file: BinaryIO) -> None:
    """Append the rest of a content to `file`. Raises `ContentError` before a wrong byte is written."""
    try:
        chunk: silo_pb2.DownloadChunk | None = next(stream, None)
        chunk = silo_pb2.DownloadChunk() if chunk is None else chunk
        chunks = ChunkList(part.size, chunk.hashes)
        chunks.require(part.sha256)
        while chunk is not None and chunk.data:
            if chunk.offset != file.tell():
                msg = f"the {part.kind} comes out of order: offset {chunk.offset} after {file.tell()} bytes"
                raise ContentError(msg)
            chunks.check(chunk.offset, chunk.data)
            file.write(chunk.data)
            chunk = next(stream, None) if file.tell() < part.size else None
    except MessageError as error:
        msg = f"the {part.kind} that the coordinator sends is not what it announced: {error}"
        raise ContentError(msg) from None
    if file.tell() != part.size:
        msg = f"the {part.kind} that the coordinator sends ends at {file.tell()} of {part.size} bytes"
        raise ContentError(msg)


def _fix(code: grpc.StatusCode, details: str) -> str:
    """What the hospital can do about a coordinator that does not answer."""
    if fault := handshake_fault(details):
        return fault
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED and "certificate" in details:
        return "check that only one agent runs with this certificate; the agent keeps trying"
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        return "ask the operator to free space; the upload goes on where it stopped"
    return "check that the address in agent.yaml is right and that the coordinator runs; the agent keeps trying"


class Heartbeat:
    """Tells the coordinator that the silo is alive while it trains, and has its audit log followed."""

    def __init__(
        self, client: Client, seconds: float, stop: threading.Event, heard: Callable[[Followed], object]
    ) -> None:
        """`heard` is told after each beat how far the coordinator's audit log has come."""
        self._client, self._seconds, self._stop, self._heard = client, seconds, stop, heard
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    def start(self) -> None:
        """Start the thread that beats."""
        self._thread.start()

    def _beat(self) -> None:
        while not self._stop.wait(self._seconds):
            began = time.monotonic()
            try:
                self._heard(self._client.heartbeat())
            except grpc.RpcError as error:
                log.debug("heartbeat failed", code=error.code().name, after=round(time.monotonic() - began, 1))
            except Exception as error:  # noqa: BLE001  # one that fails must not be the last
                log.debug("heartbeat failed", fault=type(error).__name__, why=str(error))
