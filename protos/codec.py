"""Converts between the wire's protobuf objects and `protos.messages`. Only this module touches both."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Literal, TypeVar, cast

from protos.checkpoints import Cosigned, CosignedCheckpoint, Handed, SignedCheckpoint
from protos.messages import (
    AgreedFigure,
    Answer,
    Complaint,
    Confirm,
    Figure,
    Member,
    MessageError,
    Part,
    Place,
    Signature,
    SignedPublication,
    Spoilt,
    StudyResults,
    Task,
    Tensor,
    Upload,
    UploadHeader,
    Void,
    Vouch,
    Work,
)
from protos.status import MemberStatus, PhaseTime, StudyStatus, UploadSize
from protos.v1 import common_pb2, operator_pb2, silo_pb2

E_ = TypeVar("E_")

_TENSORS = {
    Tensor.COUNTS: common_pb2.TENSOR_COUNTS,
    Tensor.HEADS: common_pb2.TENSOR_HEADS,
    Tensor.ENCODER: common_pb2.TENSOR_ENCODER,
    Tensor.METRICS: common_pb2.TENSOR_METRICS,
}
_TASKS = {
    Task.WAIT: silo_pb2.TASK_WAIT,
    Task.DECIDE: silo_pb2.TASK_DECIDE,
    Task.DEAL: silo_pb2.TASK_DEAL,
    Task.TAKE: silo_pb2.TASK_TAKE,
    Task.CONTRIBUTE: silo_pb2.TASK_CONTRIBUTE,
    Task.OPEN: silo_pb2.TASK_OPEN,
    Task.SOLVE: silo_pb2.TASK_SOLVE,
    Task.ADOPT: silo_pb2.TASK_ADOPT,
    Task.FINISH: silo_pb2.TASK_FINISH,
    Task.SHARE: silo_pb2.TASK_SHARE,
    Task.CATCH_UP: silo_pb2.TASK_CATCH_UP,
    Task.GREET: silo_pb2.TASK_GREET,
    Task.EXCHANGE: silo_pb2.TASK_EXCHANGE,
    Task.SIGN: silo_pb2.TASK_SIGN,
    Task.REVEAL: silo_pb2.TASK_REVEAL,
    Task.VOID: silo_pb2.TASK_VOID,
    Task.RECOUNT: silo_pb2.TASK_RECOUNT,
    Task.CHECK: silo_pb2.TASK_CHECK,
    Task.JUDGE: silo_pb2.TASK_JUDGE,
    Task.EXAMINE: silo_pb2.TASK_EXAMINE,
}
FIGURES_A_PART = 1000
"""Number of agreed figures in one message of the results."""
_TENSOR_OF: dict[int, Tensor] = {int(number): tensor for tensor, number in _TENSORS.items()}
_TASK_OF: dict[int, Task] = {int(number): task for task, number in _TASKS.items()}


def tensor_to_wire(tensor: Tensor | None) -> common_pb2.Tensor:
    """Encode a tensor; no tensor is the unspecified number."""
    return common_pb2.TENSOR_UNSPECIFIED if tensor is None else _TENSORS[tensor]


def tensor_from_wire(number: int) -> Tensor | None:
    """Decode a tensor. The unspecified number is no tensor. An unknown number is an error, never a guess."""
    return None if number == 0 else _known(_TENSOR_OF.get, number, "tensor")


def _known(look_up: Callable[[int], E_ | None], number: int, field: str) -> E_:
    value = look_up(number)
    if value is None:
        msg = f"{field}: the number {number} is unknown to this version"
        raise MessageError(msg)
    return value


def place_to_wire(place: Place) -> common_pb2.Place:
    """Encode."""
    return common_pb2.Place(study=place.study, round=place.round, attempt=place.attempt)


def place_from_wire(wire: common_pb2.Place) -> Place:
    """Decode and validate."""
    return Place(wire.study, wire.round, wire.attempt)


def member_to_wire(member: Member) -> common_pb2.Member:
    """Encode."""
    return common_pb2.Member(
        silo=member.silo,
        certificate_pem=member.certificate_pem,
        public_key=member.public_key,
        kem_key=member.kem_key,
        signature=member.signature,
    )


def member_from_wire(wire: common_pb2.Member) -> Member:
    """Decode and validate."""
    return Member(wire.silo, wire.certificate_pem, wire.public_key, wire.kem_key, wire.signature)


def work_to_wire(work: Work) -> silo_pb2.Work:
    """Encode."""
    return silo_pb2.Work(
        task=_TASKS[work.task],
        place=None if work.place is None else place_to_wire(work.place),
        tensor=tensor_to_wire(work.tensor),
        roster=[member_to_wire(member) for member in work.roster],
        actor=work.actor,
        parts=[_part_to_wire(part) for part in work.parts],
        participants=work.participants,
        survivors=work.survivors,
        signatures=[silo_pb2.Signature(silo=one.silo, signature=one.signature) for one in work.signatures],
        why=work.why,
        outcome=work.outcome,
        void=None if work.void is None else _void_to_wire(work.void),
        uploads=[silo_pb2.Upload(part=_part_to_wire(one.part), signature=one.signature) for one in work.uploads],
        spoilt=None if work.spoilt is None else _spoilt_to_wire(work.spoilt),
        complaint=None if work.complaint is None else _complaint_to_wire(work.complaint),
        vouches=[
            silo_pb2.Vouch(silo=one.silo, certificate_pem=one.certificate_pem, signature=one.signature)
            for one in work.vouches
        ],
    )


def work_from_wire(wire: silo_pb2.Work) -> Work:
    """Decode and validate."""
    return Work(
        task=_known(_TASK_OF.get, wire.task, "task"),
        place=place_from_wire(wire.place) if wire.HasField("place") else None,
        tensor=tensor_from_wire(wire.tensor),
        roster=tuple(member_from_wire(member) for member in wire.roster),
        actor=wire.actor,
        parts=tuple(_part_from_wire(part) for part in wire.parts),
        participants=tuple(wire.participants),
        survivors=tuple(wire.survivors),
        signatures=tuple(Signature(one.silo, one.signature) for one in wire.signatures),
        why=wire.why,
        outcome=cast("Literal['', 'finished', 'ended', 'aborted', 'left']", wire.outcome),  # Work refuses any other
        void=_void_from_wire(wire.void) if wire.HasField("void") else None,
        vouches=tuple(Vouch(one.silo, one.certificate_pem, one.signature) for one in wire.vouches),
        uploads=tuple(Upload(_part_from_wire(one.part), one.signature) for one in wire.uploads),
        spoilt=_spoilt_from_wire(wire.spoilt) if wire.HasField("spoilt") else None,
        complaint=_complaint_from_wire(wire.complaint) if wire.HasField("complaint") else None,
    )


def _part_to_wire(part: Part) -> silo_pb2.Part:
    return silo_pb2.Part(kind=part.kind, silo=part.silo, size=part.size, sha256=part.sha256)


def _part_from_wire(wire: silo_pb2.Part) -> Part:
    return Part(wire.kind, wire.silo, wire.size, wire.sha256)


def _complaint_to_wire(complaint: Complaint) -> silo_pb2.Complaint:
    return silo_pb2.Complaint(
        silo=complaint.silo, owner=complaint.owner, evidence=complaint.evidence, signature=complaint.signature
    )


def _complaint_from_wire(wire: silo_pb2.Complaint) -> Complaint:
    return Complaint(wire.silo, wire.owner, wire.evidence, wire.signature)


def _spoilt_to_wire(spoilt: Spoilt) -> silo_pb2.Spoilt:
    given = zip(spoilt.statements, spoilt.certificates, strict=True)
    return silo_pb2.Spoilt(
        attempt=spoilt.attempt,
        tensor=tensor_to_wire(spoilt.tensor),
        names=spoilt.names,
        sum=spoilt.sum,
        culprit=spoilt.culprit,
        statements=[silo_pb2.Voider(silo=o.silo, certificate_pem=pem, signature=o.signature) for o, pem in given],
    )


def _spoilt_from_wire(wire: silo_pb2.Spoilt) -> Spoilt:
    tensor = tensor_from_wire(wire.tensor)
    if tensor is None:
        msg = "spoilt.tensor: is missing"
        raise MessageError(msg)
    return Spoilt(
        attempt=wire.attempt,
        tensor=tensor,
        names=tuple(wire.names),
        sum=wire.sum,
        culprit=wire.culprit,
        statements=tuple(Signature(one.silo, one.signature) for one in wire.statements),
        certificates=tuple(one.certificate_pem for one in wire.statements),
    )


def _void_to_wire(void: Void) -> silo_pb2.Void:
    given = zip(void.promises, void.certificates, strict=True)
    voiders = [silo_pb2.Voider(silo=o.silo, certificate_pem=pem, signature=o.signature) for o, pem in given]
    return silo_pb2.Void(through=void.through, voiders=voiders)


def _void_from_wire(wire: silo_pb2.Void) -> Void:
    promises = tuple(Signature(one.silo, one.signature) for one in wire.voiders)
    return Void(wire.through, promises, tuple(one.certificate_pem for one in wire.voiders))


def header_to_wire(header: UploadHeader) -> silo_pb2.UploadHeader:
    """Encode."""
    return silo_pb2.UploadHeader(
        place=place_to_wire(header.place),
        tensor=tensor_to_wire(header.tensor),
        kind=header.kind,
        silo=header.silo,
        values=header.values,
        size=header.size,
        sha256=header.sha256,
    )


def header_from_wire(wire: silo_pb2.UploadHeader) -> UploadHeader:
    """Decode and validate."""
    return UploadHeader(
        place=place_from_wire(wire.place),
        kind=wire.kind,
        tensor=tensor_from_wire(wire.tensor),
        silo=wire.silo,
        values=wire.values,
        size=wire.size,
        sha256=wire.sha256,
    )


def answer_to_wire(answer: Answer) -> silo_pb2.AnswerRequest:
    """Encode."""
    return silo_pb2.AnswerRequest(
        place=place_to_wire(answer.place),
        session=answer.session,
        refusal=answer.refusal,
        explanation=answer.explanation,
        member=None if answer.member is None else member_to_wire(answer.member),
        model=answer.model,
    )


def answer_from_wire(wire: silo_pb2.AnswerRequest) -> Answer:
    """Decode and validate."""
    return Answer(
        place=place_from_wire(wire.place),
        session=wire.session,
        refusal=wire.refusal,
        explanation=wire.explanation,
        member=member_from_wire(wire.member) if wire.HasField("member") else None,
        model=wire.model,
    )


def confirm_to_wire(confirm: Confirm) -> silo_pb2.ConfirmRequest:
    """Encode."""
    return silo_pb2.ConfirmRequest(
        place=place_to_wire(confirm.place),
        task=_TASKS[confirm.task],
        tensor=tensor_to_wire(confirm.tensor),
        model=confirm.model,
        dispute=confirm.dispute,
        explanation=confirm.explanation,
        publication=confirm.publication,
        signature=confirm.signature,
        culprit=confirm.culprit,
        evidence=confirm.evidence,
        content=confirm.content,
        vouch=confirm.vouch,
    )


def confirm_from_wire(wire: silo_pb2.ConfirmRequest) -> Confirm:
    """Decode and validate."""
    return Confirm(
        place=place_from_wire(wire.place),
        task=_known(_TASK_OF.get, wire.task, "task"),
        tensor=tensor_from_wire(wire.tensor),
        model=wire.model,
        dispute=wire.dispute,
        explanation=wire.explanation,
        publication=wire.publication,
        signature=wire.signature,
        culprit=wire.culprit,
        evidence=wire.evidence,
        content=wire.content,
        vouch=wire.vouch,
    )


def checkpoint_to_wire(signed: SignedCheckpoint) -> silo_pb2.SignedStatement:
    """Encode."""
    return silo_pb2.SignedStatement(
        statement=signed.checkpoint, certificate_pem=signed.certificate_pem, signature=signed.signature
    )


def checkpoint_from_wire(wire: silo_pb2.SignedStatement) -> SignedCheckpoint:
    """Decode and validate."""
    return SignedCheckpoint(wire.statement, wire.certificate_pem, wire.signature)


def cosignature_to_wire(cosigned: CosignedCheckpoint) -> silo_pb2.Countersignature:
    """Encode."""
    return silo_pb2.Countersignature(
        stated=checkpoint_to_wire(cosigned.stated),
        certificate_pem=cosigned.certificate_pem,
        signature=cosigned.signature,
    )


def cosignature_from_wire(wire: silo_pb2.Countersignature) -> CosignedCheckpoint:
    """Decode and validate."""
    return CosignedCheckpoint(checkpoint_from_wire(wire.stated), wire.certificate_pem, wire.signature)


def handed_to_wire(handed: Handed | None) -> silo_pb2.WitnessReply:
    """Encode; None if there is nothing to do."""
    if handed is None:
        return silo_pb2.WitnessReply()
    evidence = None if handed.evidence is None else cosignature_to_wire(handed.evidence)
    return silo_pb2.WitnessReply(statement=checkpoint_to_wire(handed.stated), evidence=evidence)


def handed_from_wire(wire: silo_pb2.WitnessReply) -> Handed | None:
    """Decode and validate."""
    if not wire.HasField("statement"):
        return None
    evidence = cosignature_from_wire(wire.evidence) if wire.HasField("evidence") else None
    return Handed(checkpoint_from_wire(wire.statement), evidence)


def cosigned_to_wire(cosigned: Cosigned) -> silo_pb2.CountersignReply:
    """Encode."""
    peer = cosigned.peer
    return silo_pb2.CountersignReply(
        coordinator=cosignature_to_wire(cosigned.coordinator),
        peer=None if peer is None else cosignature_to_wire(peer),
    )


def cosigned_from_wire(wire: silo_pb2.CountersignReply) -> Cosigned:
    """Decode and validate."""
    peer = cosignature_from_wire(wire.peer) if wire.HasField("peer") else None
    return Cosigned(cosignature_from_wire(wire.coordinator), peer)


def status_to_wire(status: StudyStatus) -> operator_pb2.StudyStatus:
    """Encode."""
    return operator_pb2.StudyStatus(
        study=status.study,
        name=status.name,
        state=status.state,
        why=status.why,
        round=status.round,
        rounds=status.rounds,
        attempt=status.attempt,
        phase=status.phase,
        tensor=tensor_to_wire(status.tensor),
        waiting_for=status.waiting_for,
        members=[
            operator_pb2.MemberStatus(
                silo=m.silo,
                state=m.state,
                why=m.why,
                last_seen=m.last_seen,
                slow_seconds=m.slow_seconds,
                slow_budget=m.slow_budget,
                lost_attempts=m.lost_attempts,
                set_aside=m.set_aside,
            )
            for m in status.members
        ],
        times=[
            operator_pb2.PhaseTime(
                round=t.round, attempt=t.attempt, phase=t.phase, tensor=tensor_to_wire(t.tensor), seconds=t.seconds
            )
            for t in status.times
        ],
        uploads=[
            operator_pb2.UploadSize(
                round=u.round,
                attempt=u.attempt,
                tensor=tensor_to_wire(u.tensor),
                kind=u.kind,
                silo=u.silo,
                bytes=u.bytes,
            )
            for u in status.uploads
        ],
    )


def status_from_wire(wire: operator_pb2.StudyStatus) -> StudyStatus:
    """Decode and validate."""
    return StudyStatus(
        study=wire.study,
        name=wire.name,
        state=wire.state,
        why=wire.why,
        round=wire.round,
        rounds=wire.rounds,
        attempt=wire.attempt,
        phase=wire.phase,
        tensor=tensor_from_wire(wire.tensor),
        waiting_for=tuple(wire.waiting_for),
        members=tuple(
            MemberStatus(
                m.silo, m.state, m.why, m.last_seen, m.slow_seconds, m.slow_budget, m.lost_attempts, m.set_aside
            )
            for m in wire.members
        ),
        times=tuple(PhaseTime(t.round, t.attempt, t.phase, tensor_from_wire(t.tensor), t.seconds) for t in wire.times),
        uploads=tuple(
            UploadSize(u.round, u.attempt, tensor_from_wire(u.tensor), u.kind, u.silo, u.bytes) for u in wire.uploads
        ),
    )


def results_to_wire(results: StudyResults) -> Iterator[operator_pb2.ResultsPart]:
    """Encode in parts, each of which fits a message."""
    yield operator_pb2.ResultsPart(study=results.study, name=results.name, needed=results.needed)
    for start in range(0, len(results.agreed), FIGURES_A_PART):
        figures = results.agreed[start : start + FIGURES_A_PART]
        yield operator_pb2.ResultsPart(agreed=[_agreed_to_wire(one) for one in figures])
    for one in results.publications:
        yield operator_pb2.ResultsPart(
            publication=operator_pb2.SignedPublication(
                silo=one.silo, blob=one.blob, signature=one.signature, certificate_pem=one.certificate_pem
            )
        )


def results_from_wire(parts: Iterable[operator_pb2.ResultsPart]) -> StudyResults:
    """Decode and validate. Raises `MessageError` if there is no part."""
    rest = iter(parts)
    first = next(rest, None)
    if first is None:
        msg = "results: no part came"
        raise MessageError(msg)
    received = list(rest)
    return StudyResults(
        study=first.study,
        name=first.name,
        needed=first.needed,
        agreed=tuple(_agreed_from_wire(one) for part in received for one in part.agreed),
        publications=tuple(
            SignedPublication(p.silo, p.blob, p.signature, p.certificate_pem)
            for p in (part.publication for part in received if part.HasField("publication"))
        ),
    )


def _agreed_to_wire(one: AgreedFigure) -> operator_pb2.AgreedFigure:
    f = one.figure
    figure = operator_pb2.Figure(domain=f.domain, metric=f.metric, value=f.value, low=f.low, high=f.high)
    return operator_pb2.AgreedFigure(figure=figure, silos=one.silos)


def _agreed_from_wire(wire: operator_pb2.AgreedFigure) -> AgreedFigure:
    f = wire.figure
    value = f.value if f.HasField("value") else None
    return AgreedFigure(Figure(f.domain, f.metric, value, f.low, f.high), wire.silos)
