"""The calls of operators, authors and viewers: the certificate says who calls, the desk decides."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator

import grpc

from coordinator.core.filtering import StudyFilter
from coordinator.core.rights import READERS, Action, Deed
from coordinator.door.callers import certificate_of
from coordinator.people.desk import Desk
from coordinator.service import Caller, Refusals, mapped, mapped_stream
from crypto.pki.identity import Identity
from protos import codec
from protos.bounds import sentence
from protos.messages import AuthorSignature, require_name, require_text
from protos.v1 import operator_pb2, operator_pb2_grpc

ConsoleLink = Callable[[Identity, bytes], str]
"""Returns a one-time link of a person, with a certificate (PEM), to the console."""


class OperatorService(operator_pb2_grpc.OperatorServiceServicer):
    """The calls of people."""

    def __init__(self, desk: Desk, refusals: Refusals, link: ConsoleLink) -> None:
        """`link` makes links to the console."""
        self._desk, self._caller, self._link = desk, Caller(refusals.trust, READERS), link
        self.refusals = refusals

    @mapped
    def CreateStudy(
        self, request: operator_pb2.CreateStudyRequest, context: grpc.ServicerContext
    ) -> operator_pb2.CreateStudyReply:
        """Store a study that an author has signed. It belongs to the caller from then on."""
        deed = self._deed(context, Action.CREATE)
        author = codec.from_wire(AuthorSignature, request.author) if request.HasField("author") else None
        return operator_pb2.CreateStudyReply(study=self._desk.create(request.canonical, deed, author))

    @mapped
    def PollStudy(
        self, request: operator_pb2.CreateStudyRequest, context: grpc.ServicerContext
    ) -> operator_pb2.PollReply:
        """Ask the silos of a study that is not created; return what they have answered so far."""
        deed = self._deed(context, Action.POLL)
        author = codec.from_wire(AuthorSignature, request.author) if request.HasField("author") else None
        study, answers = self._desk.poll(request.canonical, deed, author)
        found = [operator_pb2.PollAnswer(silo=silo, verdict=verdict) for silo, verdict in answers.items()]
        return operator_pb2.PollReply(study=study, answers=found)

    @mapped
    def StartStudy(self, request: operator_pb2.StudyRequest, context: grpc.ServicerContext) -> operator_pb2.StudyReply:
        """Begin a study."""
        return self._act(request.study, self._deed(context, Action.START, request.reason))

    @mapped
    def ForgiveSilo(
        self, request: operator_pb2.ForgiveSiloRequest, context: grpc.ServicerContext
    ) -> operator_pb2.StudyReply:
        """Forget what waiting for one silo has cost a study."""
        require_name(request.silo, "forgive.silo")
        return self._act(request.study, self._deed(context, Action.FORGIVE, request.reason, request.silo))

    @mapped
    def AbortStudy(
        self, request: operator_pb2.AbortStudyRequest, context: grpc.ServicerContext
    ) -> operator_pb2.StudyReply:
        """Stop a study for good."""
        return self._act(request.study, self._deed(context, Action.ABORT, request.reason))

    @mapped
    def PauseStudy(self, request: operator_pb2.StudyRequest, context: grpc.ServicerContext) -> operator_pb2.StudyReply:
        """Hand out no more work of a study."""
        return self._act(request.study, self._deed(context, Action.PAUSE, request.reason))

    @mapped
    def ResumeStudy(self, request: operator_pb2.StudyRequest, context: grpc.ServicerContext) -> operator_pb2.StudyReply:
        """Go on with a study."""
        return self._act(request.study, self._deed(context, Action.RESUME, request.reason))

    @mapped
    def DeleteStudy(self, request: operator_pb2.StudyRequest, context: grpc.ServicerContext) -> operator_pb2.StudyReply:
        """Forget a study that was never started."""
        return self._act(request.study, self._deed(context, Action.DELETE, request.reason))

    @mapped
    def ArchiveStudy(
        self, request: operator_pb2.StudyRequest, context: grpc.ServicerContext
    ) -> operator_pb2.StudyReply:
        """Leave a study that is over out of lists."""
        return self._act(request.study, self._deed(context, Action.ARCHIVE, request.reason))

    @mapped
    def Drain(self, request: operator_pb2.DrainRequest, context: grpc.ServicerContext) -> operator_pb2.DrainReply:
        """Begin no further round of any study, or rounds again."""
        action = Action.FILL if request.undo else Action.DRAIN
        return operator_pb2.DrainReply(within=self._desk.drain(self._deed(context, action, request.reason)))

    @mapped_stream
    def GetResults(
        self, request: operator_pb2.StudyRequest, context: grpc.ServicerContext
    ) -> Iterator[operator_pb2.ResultsPart]:
        """Return what a finished study has published."""
        yield from codec.results_to_wire(self._desk.results(request.study, self._caller.identity(context)))

    @mapped
    def GetStudyStatus(
        self, request: operator_pb2.StudyRequest, context: grpc.ServicerContext
    ) -> operator_pb2.StudyStatus:
        """Return the status of one study with its history."""
        status = self._desk.status(request.study, self._caller.identity(context))
        reply: operator_pb2.StudyStatus = codec.to_wire(status)
        return reply

    @mapped
    def ListStudies(
        self,
        request: operator_pb2.ListStudiesRequest,
        context: grpc.ServicerContext,
    ) -> operator_pb2.ListStudiesReply:
        """Return a page of the studies that the caller may see, in brief."""
        for text in (*request.states, request.name, request.after):
            require_text(text, "list")
        wanted = StudyFilter(
            frozenset(request.states), request.name, request.owner, request.archived, request.most, request.after
        )
        found, more = self._desk.statuses(self._caller.identity(context), wanted)
        return operator_pb2.ListStudiesReply(studies=[codec.to_wire(one) for one in found], more=more)

    @mapped_stream
    def GetAuditLog(
        self, request: operator_pb2.GetAuditLogRequest, context: grpc.ServicerContext
    ) -> Iterator[operator_pb2.AuditPart]:
        """Return who did what to which study, and last what silos signed of it."""
        who = self._caller.identity(context)
        for page in self._desk.audit(request.first, who):
            yield operator_pb2.AuditPart(entries=[codec.to_wire(one) for one in page])
        signed = self._desk.cosigned_audit(who)
        yield operator_pb2.AuditPart(cosignatures=[codec.to_wire(one) for one in signed])

    @mapped
    def LinkConsole(
        self,
        request: operator_pb2.LinkConsoleRequest,  # noqa: ARG002  # it says nothing
        context: grpc.ServicerContext,
    ) -> operator_pb2.LinkConsoleReply:
        """Return a link that signs the caller in at the console."""
        who = self._caller.identity(context)
        return operator_pb2.LinkConsoleReply(url=self._link(who, certificate_of(context)))

    def _act(self, study: str, deed: Deed) -> operator_pb2.StudyReply:
        self._desk.act(study, deed)
        return operator_pb2.StudyReply()

    def _deed(self, context: grpc.ServicerContext, action: Action, reason: str = "", silo: str = "") -> Deed:
        who = self._caller.identity(context)
        shown = hashlib.sha256(certificate_of(context)).hexdigest()
        return Deed(who, action, sentence(reason.strip()), silo, shown)
