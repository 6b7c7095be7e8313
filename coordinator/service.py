"""The gRPC services: the certificate says who calls, the engine gets the message, and errors become status codes.

Order of every call: identify, decode, act. Nothing is parsed before its sender is known. No upload is stored before its
header's signature is verified, its size compared with the study's, its list of chunks with the header, and each chunk
with the list. An upload holds one chunk and the list in memory (`protos.chunks`). Exceptions of other packages end
here: each maps to one status code and a sentence.
"""

from __future__ import annotations

import functools
import hmac
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn, Protocol, TypeVar, cast

import grpc
import structlog

from coordinator.core.quotas import QuotaError
from coordinator.core.revisions import StudyExistsError
from coordinator.core.rights import RightsError
from coordinator.core.round import WrongPhaseError
from coordinator.core.study import StudyStateError
from coordinator.cosigning import KnownLedgers
from coordinator.door.callers import certificate_of, label_of
from coordinator.door.connections import Connections
from coordinator.door.later import Later
from coordinator.door.log_limit import LogLimit
from coordinator.engine import Engine
from coordinator.errors import CoordinatorError, NoConsoleError
from coordinator.metrics import CoordinatorMetrics
from coordinator.register.catalogue import UnknownStudyError
from coordinator.relay.handing_out import HandingOut
from coordinator.shortages import Shortages
from coordinator.storage.audit_log import AuditLog, AuditLogError
from coordinator.storage.database import LeaseLostError
from coordinator.storage.spool import Spool, SpoolFullError
from coordinator.storage.store import ContentConflictError
from coordinator.sums.room import LittleRoomError
from coordinator.work import complaint_of
from crypto.audit_chain import AuditStatement, Followed
from crypto.errors import CertificateError, CryptoError, FrameError, SignatureRefused
from crypto.pki.certificates import Roles, Trust
from crypto.pki.identity import Identity, Role
from crypto.secagg.holding import Holding
from policies.errors import CosignError, LedgerRolledBackError
from policies.refusals import Refused
from protos import codec
from protos.audit import CosignedAudit
from protos.bounds import MAX_NAME, MAX_SILOS, sentence
from protos.checkpoints import CosignedCheckpoint, SignedCheckpoint
from protos.chunks import ChunkList
from protos.messages import (
    MAX_CHUNK,
    PROTOCOL,
    VERDICTS,
    Answer,
    Confirm,
    Member,
    MessageError,
    Place,
    Publication,
    StudyText,
    UploadHeader,
    Work,
    require_digest,
    require_text,
)
from protos.roster import named
from protos.steps import Note, Task
from protos.v1 import common_pb2, silo_pb2, silo_pb2_grpc

log = structlog.get_logger()
HEARTBEAT_SECONDS = 10.0
MAX_HOLD_SECONDS = 20.0
R = TypeVar("R")
_OPERATOR = f"{Role.OPERATOR}/"


class ResumeError(CoordinatorError):
    """The upload is correct so far and must be resumed, now or when another stream of it has ended."""


CODES: tuple[tuple[type[Exception], grpc.StatusCode], ...] = (
    (LeaseLostError, grpc.StatusCode.UNAVAILABLE),
    (SignatureRefused, grpc.StatusCode.UNAUTHENTICATED),
    (CertificateError, grpc.StatusCode.PERMISSION_DENIED),
    (MessageError, grpc.StatusCode.INVALID_ARGUMENT),
    (FrameError, grpc.StatusCode.INVALID_ARGUMENT),
    (ContentConflictError, grpc.StatusCode.ALREADY_EXISTS),
    (StudyExistsError, grpc.StatusCode.ALREADY_EXISTS),
    (LittleRoomError, grpc.StatusCode.FAILED_PRECONDITION),
    (RightsError, grpc.StatusCode.PERMISSION_DENIED),
    (QuotaError, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (AuditLogError, grpc.StatusCode.FAILED_PRECONDITION),
    (UnknownStudyError, grpc.StatusCode.NOT_FOUND),
    (WrongPhaseError, grpc.StatusCode.FAILED_PRECONDITION),
    (StudyStateError, grpc.StatusCode.FAILED_PRECONDITION),
    (NoConsoleError, grpc.StatusCode.FAILED_PRECONDITION),
    (LedgerRolledBackError, grpc.StatusCode.DATA_LOSS),
    (CosignError, grpc.StatusCode.INVALID_ARGUMENT),
    (ResumeError, grpc.StatusCode.ABORTED),
    (SpoolFullError, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (Refused, grpc.StatusCode.INVALID_ARGUMENT),
    (ValueError, grpc.StatusCode.INVALID_ARGUMENT),
    (CryptoError, grpc.StatusCode.INVALID_ARGUMENT),
)


@dataclass(frozen=True)
class Refusals:
    """What the services need to know who calls, and to count and report what they refuse."""

    trust: Trust
    metrics: CoordinatorMetrics
    connections: Connections
    shortages: Shortages
    require_lease: Callable[[], None]
    """Raise `LeaseLostError` unless this coordinator is still the active one (`coordinator.lease`)."""
    log_limit: LogLimit = field(default_factory=LogLimit)

    def end(self, context: grpc.ServicerContext, error: Exception, call: str) -> NoReturn:
        """End a call with the status code and the sentence of an error. An unforeseen one shows no details."""
        if isinstance(error, grpc.RpcError):
            raise error  # the caller has gone, or the door has ended the call
        error = self._unless_left_behind(error)
        code = next((code for kind, code in CODES if isinstance(error, kind)), grpc.StatusCode.INTERNAL)
        caller, shortage = label_of(self.trust, context), self.shortages.note(error)
        if shortage is not None:
            code = grpc.StatusCode.RESOURCE_EXHAUSTED
        self.metrics.refused.labels(code.name, caller).inc()
        self.connections.refuse(context.peer())
        if code is grpc.StatusCode.INTERNAL:
            why = "the coordinator failed; its log says why"
            self._tell_fault(call, caller, error)
        else:
            why = sentence(str(error))
            if shortage is not None and not isinstance(error, SpoolFullError):
                # `shortages` has said it, and only operators may know which file it is.
                why = sentence(shortage.told) if caller.startswith(_OPERATOR) else shortage.outside
            elif self.log_limit.allows(caller):
                log.info("refused", call=call, caller=caller, code=code.name, why=why)
        context.abort(code, why)
        raise AssertionError  # abort never returns, but its types do not say so

    def _unless_left_behind(self, error: Exception) -> Exception:
        """Return the error, or in its place that this coordinator is no longer the active one: then it says nothing."""
        try:
            self.require_lease()
        except LeaseLostError as left:
            return left
        except Exception:  # noqa: BLE001  # the database cannot be asked now: the refusal stays what it is
            return error
        return error

    def _tell_fault(self, call: str, caller: str, error: Exception) -> None:
        """Say what failed. What is raised on purpose says it in a sentence; anything else needs its lines of code."""
        if not self.log_limit.allows(caller):
            return
        if isinstance(error, CoordinatorError):
            log.error("failed", call=call, caller=caller, why=str(error))
        else:
            log.error("failed", call=call, caller=caller, exc_info=error)


class Caller:
    """Reads from the TLS session who calls. The certificate must be the authority's and of one of these roles."""

    def __init__(self, trust: Trust, role: Roles) -> None:
        self._trust, self._role = trust, role

    def name(self, context: grpc.ServicerContext) -> str:
        """Return the caller's name. Raises `CertificateError`."""
        return self.identity(context).name

    def identity(self, context: grpc.ServicerContext) -> Identity:
        """Return who calls. Raises `CertificateError`."""
        return self._trust.identify(certificate_of(context), role=self._role)

    def require_own(self, context: grpc.ServicerContext, member: Member) -> None:
        """Raise `SignatureRefused` unless a member has the caller's name and the caller's own certificate."""
        caller = self.identity(context)
        if member.silo != caller.name:
            msg = f"{caller.name} may not answer in the name of {member.silo}; answer under the own name"
            raise SignatureRefused(msg)
        carried = self._trust.identify(member.certificate_pem, role=self._role)
        if carried != caller:
            msg = (
                f"{caller.name} may not answer with the certificate of {carried.name}; answer with the own certificate"
            )
            raise SignatureRefused(msg)

    def verify(self, context: grpc.ServicerContext, silo: str, message: bytes, signature: bytes) -> None:
        """Raise `SignatureRefused` unless the caller is this silo and signed the message."""
        signer = self._trust.verify(certificate_of(context), message, signature, role=self._role)
        if not hmac.compare_digest(signer.name, silo):
            msg = f"{signer.name} may not upload in the name of {silo}; give the certificate and key of {silo}"
            raise SignatureRefused(msg)


def mapped(call: Callable[..., R]) -> Callable[..., R]:
    """Turn every exception of a call into a status code with a sentence. An unforeseen exception shows no details.

    Every answer follows a transaction that has checked the lease.
    """

    @functools.wraps(call)
    def wrapper(self: Any, request: Any, context: grpc.ServicerContext) -> R:
        def ended(make: Callable[[], R]) -> R:
            refusals: Refusals = self.refusals
            try:
                made = make()
                if made is not None and not isinstance(made, Later):
                    refusals.require_lease()
                return made  # noqa: TRY300  # what `require_lease` raises belongs to the same boundary
            except Exception as error:  # noqa: BLE001  # the boundary: every exception must be mapped here
                refusals.end(context, error, call.__name__)

        answer = ended(lambda: call(self, request, context))
        return cast("R", answer.through(ended)) if isinstance(answer, Later) else answer

    return wrapper


def mapped_stream(call: Callable[..., Iterator[R]]) -> Callable[..., Iterator[R]]:
    """`mapped`, for a call that streams its replies."""

    @functools.wraps(call)
    def wrapper(self: Any, request: Any, context: grpc.ServicerContext) -> Iterator[R]:
        refusals: Refusals = self.refusals
        try:
            for reply in call(self, request, context):
                refusals.require_lease()
                yield reply
        except Exception as error:  # noqa: BLE001  # the boundary: every exception must be mapped here
            refusals.end(context, error, call.__name__)

    return wrapper


class PollBox(Protocol):
    """What authors ask silos before a study is created (`people.polls`)."""

    def next(self, silo: str) -> StudyText | None:
        """Return what asks a silo and is not answered by it; None if nothing does."""

    def answer(self, silo: str, study: str, verdict: str) -> None:
        """Take a silo's answer."""


class SiloService(silo_pb2_grpc.SiloServiceServicer):
    """The calls of silos."""

    def __init__(
        self,
        engine: Engine,
        spool: Spool,
        refusals: Refusals,
        version: str,
        *,
        cosigning: KnownLedgers,
        audit: AuditLog,
        polls: PollBox,
        joined: Callable[[str, str, bytes], object] = lambda *_: None,
    ) -> None:
        """`joined` hears of each silo that joins: its version and its certificate (PEM)."""
        self._joined = joined
        self._engine, self._handing_out = engine, HandingOut(spool)
        self._cosigning, self._version = cosigning, version
        self._audit, self._polls = audit, polls
        self.refusals, self._metrics = refusals, refusals.metrics
        self._caller = Caller(refusals.trust, Role.SILO)
        self._replies = WorkReplies()
        self._growing: set[tuple[object, ...]] = set()
        self._guard = threading.Lock()

    def _silo(self, context: grpc.ServicerContext) -> str:
        name = self._caller.name(context)
        self._engine.presence.called(name)
        return name

    @mapped
    def Join(self, request: silo_pb2.JoinRequest, context: grpc.ServicerContext) -> silo_pb2.JoinReply:
        """Compare versions."""
        silo = self._silo(context)
        if request.protocol != PROTOCOL:
            msg = (
                f"this coordinator speaks protocol {PROTOCOL}, the agent speaks {request.protocol};"
                " update the older of the two"
            )
            raise MessageError(msg)
        require_text(request.agent_version, "join.agent_version")
        self._joined(silo, sentence(request.agent_version, MAX_NAME), certificate_of(context))
        if self.refusals.log_limit.allows(silo):
            log.info("joined", silo=silo, version=request.agent_version)
        return silo_pb2.JoinReply(
            protocol=PROTOCOL,
            coordinator_version=self._version,
            max_chunk=MAX_CHUNK,
            heartbeat_seconds=HEARTBEAT_SECONDS,
            time=time.time(),
        )

    @mapped
    def GetStudy(self, request: silo_pb2.GetStudyRequest, context: grpc.ServicerContext) -> silo_pb2.GetStudyReply:
        """Return the study's text, with its author's signature."""
        require_text(request.study, "study")
        reply: silo_pb2.GetStudyReply = codec.to_wire(self._engine.text(request.study, self._silo(context)))
        return reply

    @mapped
    def Poll(self, request: silo_pb2.PollRequest, context: grpc.ServicerContext) -> silo_pb2.Work | Later:
        """Wait for work."""
        silo = self._silo(context)
        require_text(request.session, "poll.session")
        require_text(request.roster_sha256, "poll.roster_sha256")
        work, hold = self._engine.poll(silo, request.session), _hold(request.hold_seconds)
        if work.task is not Task.WAIT or not hold:
            return self._replies.of(work, request.roster_sha256)

        def ask(last: bool) -> silo_pb2.Work | None:  # noqa: FBT001  # as `Later` has it
            self._caller.name(context)  # revoked while it waited
            work = self._engine.work(silo)
            return self._replies.of(work, request.roster_sha256) if last or work.task is not Task.WAIT else None

        return Later(self._engine.bells, silo, hold, ask)

    @mapped
    def Answer(self, request: silo_pb2.AnswerRequest, context: grpc.ServicerContext) -> silo_pb2.AnswerReply:
        """Take part or refuse."""
        silo = self._silo(context)
        answer = codec.from_wire(Answer, request)
        if answer.member is not None:
            self._caller.require_own(context, answer.member)
        self._engine.answer(silo, answer)
        return silo_pb2.AnswerReply()

    @mapped
    def Upload(self, request: Iterator[silo_pb2.UploadChunk], context: grpc.ServicerContext) -> silo_pb2.UploadReply:
        """Store a stream of chunks that continues where the chunks on disk end."""
        self._silo(context)
        first = next(request, None)
        if first is None or not first.HasField("header"):
            msg = "upload: the first message must carry the header"
            raise MessageError(msg)
        header = codec.from_wire(UploadHeader, first.header)
        self._caller.verify(context, header.silo, header.canonical(), first.signature)
        if self._engine.stored(header):
            self._engine.finish_upload(header, first.signature)
            return silo_pb2.UploadReply()
        self._engine.expect(header)
        chunks = ChunkList(header.size, first.hashes)
        chunks.require(header.sha256)
        with self._alone(header):
            length = self._engine.begin_upload(header, chunks)
            for chunk in request:
                self._caller.name(context)  # a certificate may be revoked, or expire, in the middle of an upload
                if chunk.offset != length:
                    msg = f"upload: a chunk at {chunk.offset} cannot follow {length} stored bytes; resume at {length}"
                    raise ResumeError(msg)
                self._engine.take(header, chunks, length, chunk.data)
                length += len(chunk.data)
            if length < header.size:
                msg = f"upload: the stream ended at {length} of {header.size} bytes; resume at {length}"
                raise ResumeError(msg)
            self._caller.name(context)
            if header.kind == Note.SHARES:
                self._require_signed(context, header)
            self._engine.finish_upload(header, first.signature)
        return silo_pb2.UploadReply()

    def _require_signed(self, context: grpc.ServicerContext, header: UploadHeader) -> None:
        """Take no shares note that its sender has not signed. Raises `CryptoError`."""
        try:
            self._caller.verify(context, header.silo, *self._engine.signed_note(header))
        except CryptoError:
            self._engine.discard(header)
            raise

    @mapped
    def UploadStatus(
        self, request: silo_pb2.UploadStatusRequest, context: grpc.ServicerContext
    ) -> silo_pb2.UploadStatusReply:
        """Return where to resume an upload."""
        silo = self._silo(context)
        header = codec.from_wire(UploadHeader, request.header)
        if header.silo != silo:
            msg = f"{silo} may not ask about an upload of {header.silo}"
            raise SignatureRefused(msg)
        if self._engine.stored(header):
            return silo_pb2.UploadStatusReply(offset=header.size, complete=True)
        return silo_pb2.UploadStatusReply(offset=self._engine.offset(header), complete=False)

    @mapped_stream
    def Download(
        self, request: silo_pb2.DownloadRequest, context: grpc.ServicerContext
    ) -> Iterator[silo_pb2.DownloadChunk]:
        """Send the sum, or notes of one kind, the first from a chunk on. The caller compares each list of chunks.

        Greetings and shares are cut for those about whom the caller wants to read, and come from their beginning.
        """
        silo = self._silo(context)
        place = codec.from_wire(Place, request.place)
        tensor = codec.tensor_from_wire(request.tensor)
        require_text(request.kind, "download.kind")
        if not 0 < len(request.silos) <= MAX_SILOS:
            msg = f"download.silos: {len(request.silos)} are asked for; ask for 1 to {MAX_SILOS}"
            raise MessageError(msg)
        if len(request.about) > (MAX_SILOS if request.kind in (Note.GREETING, Note.SHARES) else 0):
            size = len(request.about)
            msg = f"download.about: {size} silos; greetings and shares alone are cut, for {MAX_SILOS} at most"
            raise MessageError(msg)
        for one in (*request.silos, *request.about):
            require_text(one, "download.silos")
        found = self._engine.download(silo, place, tensor, request.kind, request.silos)
        stored = [(place, *one) for one in found.values()]
        if request.about:
            forms = self._engine.forms(place, request.kind, found)
            stream = self._handing_out.cut(zip(stored, forms.values(), strict=True), frozenset(request.about))
        else:
            stream = self._handing_out.stream(stored, request.offset)
        for message in stream:
            self._caller.name(context)
            yield message
            self._metrics.sent.labels(request.kind).inc(len(message.data) + sum(len(one.data) for one in message.more))

    @mapped
    def Confirm(self, request: silo_pb2.ConfirmRequest, context: grpc.ServicerContext) -> silo_pb2.ConfirmReply:
        """Take a confirmation: done, or disputed. If the study publishes, it has figures that the caller signed."""
        silo = self._silo(context)
        confirm = codec.from_wire(Confirm, request)
        if confirm.publication:
            self._caller.verify(context, silo, Publication.to_sign(confirm.publication), confirm.signature)
        if confirm.task is Task.VOID and confirm.signature and confirm.tensor is not None:
            void = self._engine.void(confirm.place, confirm.tensor)
            self._caller.verify(context, silo, void.to_sign(), confirm.signature)
        if confirm.task is Task.RECOUNT and not confirm.dispute:
            statement = self._engine.statement(confirm)
            self._caller.verify(context, silo, statement.to_sign(), confirm.signature)
        if confirm.vouch:
            place, caught_up = confirm.place, confirm.task is Task.CATCH_UP
            holding = Holding(place.study, max(place.round - caught_up, 0), confirm.content)
            self._caller.verify(context, silo, holding.to_sign(), confirm.vouch)
        if confirm.task is Task.JUDGE and confirm.signature and (false := self._engine.judged(confirm.place)):
            self._caller.verify(context, silo, false.to_sign(), confirm.signature)
        if confirm.evidence:
            self._caller.verify(context, silo, complaint_of(silo, confirm).to_sign(), confirm.signature)
        self._engine.confirm(silo, confirm, certificate_of(context))
        return silo_pb2.ConfirmReply()

    @mapped
    def Heartbeat(
        self,
        request: silo_pb2.HeartbeatRequest,  # noqa: ARG002  # the call is the message
        context: grpc.ServicerContext,
    ) -> silo_pb2.HeartbeatReply:
        """Note that the caller is still here. Say how far the audit log has come, for the caller to follow it."""
        self._silo(context)
        now = self._audit.followed()
        return silo_pb2.HeartbeatReply(audit_entries=now.entries, audit_head=now.head)

    @mapped
    def NextPoll(
        self,
        request: silo_pb2.NextPollRequest,  # noqa: ARG002  # the call is the message
        context: grpc.ServicerContext,
    ) -> silo_pb2.GetStudyReply:
        """Return a study about which an author asks the caller."""
        text = self._polls.next(self._silo(context))
        reply: silo_pb2.GetStudyReply = codec.to_wire(text or StudyText(b""))
        return reply

    @mapped
    def AnswerPoll(
        self, request: silo_pb2.AnswerPollRequest, context: grpc.ServicerContext
    ) -> silo_pb2.AnswerPollReply:
        """Take what the caller answers to a poll."""
        require_digest(request.study, "poll.study")
        if request.verdict not in VERDICTS:
            msg = f"poll.verdict: is none of {', '.join(VERDICTS)}"
            raise MessageError(msg)
        self._polls.answer(self._silo(context), request.study, request.verdict)
        return silo_pb2.AnswerPollReply()

    @mapped
    def FollowAudit(
        self, request: silo_pb2.FollowAuditRequest, context: grpc.ServicerContext
    ) -> silo_pb2.FollowAuditReply:
        """Return the digests of the audit log's entries after those that the caller has followed."""
        self._silo(context)
        reply: silo_pb2.FollowAuditReply = codec.to_wire(self._audit.trail(Followed(request.entries, request.head)))
        return reply

    @mapped
    def CosignAudit(
        self, request: common_pb2.AuditCosignature, context: grpc.ServicerContext
    ) -> silo_pb2.CosignAuditReply:
        """Take what the caller signs of the audit log."""
        silo = self._silo(context)
        signed = codec.from_wire(CosignedAudit, request)
        broke = Followed(signed.broke_entries, signed.broke_head)
        statement = AuditStatement(Followed(signed.entries, signed.head), broke)
        self._caller.verify(context, silo, statement.to_sign(), signed.signature)
        self._audit.keep(replace(signed, silo=silo, certificate_pem=certificate_of(context)))
        return silo_pb2.CosignAuditReply()

    @mapped_stream
    def LatestCountersignatures(
        self,
        request: silo_pb2.LatestCountersignaturesRequest,  # noqa: ARG002  # the caller's certificate says whose
        context: grpc.ServicerContext,
    ) -> Iterator[silo_pb2.Countersignature]:
        """Return what was cosigned last of the caller's ledger."""
        for signed in self._cosigning.latest(self._silo(context)):
            yield codec.to_wire(signed)

    @mapped
    def Countersign(
        self, request: silo_pb2.CountersignRequest, context: grpc.ServicerContext
    ) -> silo_pb2.CountersignReply | Later:
        """Cosign the checkpoint of the caller's ledger, and ask another silo of the attempt to do so too."""
        silo = self._silo(context)
        peers = self._engine.peers(silo, codec.from_wire(Place, request.place))
        signed = codec.from_wire(SignedCheckpoint, request.statement)
        hold = _hold(request.hold_seconds)
        evidence = codec.from_wire(CosignedCheckpoint, request.evidence) if request.HasField("evidence") else None
        cosigned = self._cosigning.state(silo, signed, peers, evidence=evidence)
        if cosigned.peer is not None or not hold:
            reply: silo_pb2.CountersignReply = codec.to_wire(cosigned)
            return reply

        def ask(last: bool) -> silo_pb2.CountersignReply | None:  # noqa: FBT001  # as `Later` has it
            self._caller.name(context)  # revoked while it waited
            found = self._cosigning.answered(silo, signed) or (cosigned if last else None)
            return None if found is None else cast("silo_pb2.CountersignReply", codec.to_wire(found))

        return Later(self._cosigning.answers, silo, hold, ask)

    @mapped
    def Witness(self, request: silo_pb2.WitnessRequest, context: grpc.ServicerContext) -> silo_pb2.WitnessReply | Later:
        """Take what the caller has cosigned. Wait for the next checkpoint that it must cosign."""
        silo = self._silo(context)
        given = codec.from_wire(CosignedCheckpoint, request.given) if request.HasField("given") else None
        if given is not None:
            self._cosigning.take(silo, given)

        def ask(last: bool) -> silo_pb2.WitnessReply | None:  # noqa: FBT001  # as `Later` has it
            self._caller.name(context)  # revoked while it waited
            if (asked := self._cosigning.hand_out(silo)) is not None:
                return cast("silo_pb2.WitnessReply", codec.to_wire(asked))
            return silo_pb2.WitnessReply() if last else None

        hold = _hold(request.hold_seconds)
        return ask(not hold) or Later(self._cosigning.requests, silo, hold, ask)

    def _alone(self, header: UploadHeader) -> _Slot:
        return _Slot(self._growing, self._guard, (header.place, header.slot, header.silo))


class WorkReplies:
    """Work as it is sent. A phase asks all its silos for the same, so the last reply is kept: encoding takes long."""

    def __init__(self) -> None:
        self._last: tuple[Work, str, silo_pb2.Work] | None = None

    def of(self, work: Work, held: str) -> silo_pb2.Work:
        """Return the work as it is sent to a silo that holds the roster of this digest. Nobody changes the message."""
        last = self._last
        if last is None or last[:2] != (work, held):
            last = self._last = (work, held, codec.to_wire(named(work, held)))
        return last[2]


def _hold(seconds: float) -> float:
    """Return how long a call may wait. NaN compares false, so it means no wait at all."""
    return min(seconds, MAX_HOLD_SECONDS) if seconds > 0 else 0.0


class _Slot:
    """Lets one stream at a time fill a slot. A second stream is refused."""

    def __init__(self, growing: set[tuple[object, ...]], guard: threading.Lock, key: tuple[object, ...]) -> None:
        self._growing, self._guard, self._key = growing, guard, key

    def __enter__(self) -> None:
        with self._guard:
            if self._key in self._growing:
                msg = "another stream is filling this slot; wait for it and resume"
                raise ResumeError(msg)
            self._growing.add(self._key)

    def __exit__(self, *_: object) -> None:
        with self._guard:
            self._growing.discard(self._key)
