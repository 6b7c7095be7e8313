"""Converts between the wire's protobuf objects and the frozen messages, field by field. Only this module touches both.

A field of a message has the same name in `v1/*.proto`, and its type says how it is written. So a new field needs no
code here. `CALLED` lists what has another name on the wire. A new kind of message stands in `WIRE`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from functools import cache
from types import NoneType
from typing import Any, Final, TypeVar, get_args, get_origin, get_type_hints

from google.protobuf.message import Message as Wire

from protos.audit import AuditEntry, AuditTrail, CosignedAudit
from protos.checkpoints import Cosigned, CosignedCheckpoint, Handed, SignedCheckpoint
from protos.messages import (
    AgreedFigure,
    Answer,
    AuthorSignature,
    Complaint,
    Confirm,
    Figure,
    Member,
    Message,
    MessageError,
    Part,
    Place,
    Signature,
    SignedPublication,
    Spoilt,
    StudyResults,
    StudyText,
    Tensor,
    Upload,
    UploadHeader,
    Void,
    Vouch,
    Work,
)
from protos.status import MemberStatus, PhaseTime, StudyStatus, UploadSize
from protos.steps import Task
from protos.v1 import common_pb2, operator_pb2, silo_pb2

M_ = TypeVar("M_", bound=Message)

WIRE: Final[dict[type[Message], type[Wire]]] = {
    Place: common_pb2.Place,
    AuthorSignature: common_pb2.AuthorSignature,
    StudyText: silo_pb2.GetStudyReply,
    Member: common_pb2.Member,
    Part: silo_pb2.Part,
    Signature: silo_pb2.Signature,
    Void: silo_pb2.Void,
    Upload: silo_pb2.Upload,
    Spoilt: silo_pb2.Spoilt,
    Vouch: silo_pb2.Vouch,
    Complaint: silo_pb2.Complaint,
    Work: silo_pb2.Work,
    Answer: silo_pb2.AnswerRequest,
    UploadHeader: silo_pb2.UploadHeader,
    Confirm: silo_pb2.ConfirmRequest,
    SignedCheckpoint: silo_pb2.SignedStatement,
    CosignedCheckpoint: silo_pb2.Countersignature,
    AuditEntry: operator_pb2.AuditEntry,
    AuditTrail: silo_pb2.FollowAuditReply,
    CosignedAudit: common_pb2.AuditCosignature,
    Handed: silo_pb2.WitnessReply,
    Cosigned: silo_pb2.CountersignReply,
    MemberStatus: operator_pb2.MemberStatus,
    PhaseTime: operator_pb2.PhaseTime,
    UploadSize: operator_pb2.UploadSize,
    StudyStatus: operator_pb2.StudyStatus,
    Figure: operator_pb2.Figure,
    AgreedFigure: operator_pb2.AgreedFigure,
    SignedPublication: operator_pb2.SignedPublication,
    StudyResults: operator_pb2.ResultsPart,
}
"""The protobuf class of every kind of message."""
CALLED: Final = {
    (SignedCheckpoint, "checkpoint"): "statement",
    (Handed, "stated"): "statement",
    (Void, "promises"): "voiders",
    (Void, "certificates"): "voiders.certificate_pem",
    (Spoilt, "certificates"): "statements.certificate_pem",
    (StudyResults, "publications"): "publication",
}
"""The names of the fields that are called otherwise on the wire. With a dot, it is a field of every item of a list that
an earlier field of the message has made."""
_READ_FIRST: Final = {(Handed, "evidence"), (Cosigned, "peer")}
"""Fields that are read before the others of their message. If two fields have a fault, the error is the first one's."""
FIGURES_A_PART = 1000
"""Number of agreed figures in one message of the results."""

_TASKS: Final = {task: silo_pb2.Task.Value(f"TASK_{task.name}") for task in Task}
_TENSORS: Final = {None: common_pb2.TENSOR_UNSPECIFIED} | {
    tensor: common_pb2.Tensor.Value(f"TENSOR_{tensor.name}") for tensor in Tensor
}
_NUMBERS: Final[dict[type[StrEnum], dict[Any, int]]] = {Task: _TASKS, Tensor: _TENSORS}
_MEMBERS: Final = {kind: {number: one for one, number in numbers.items()} for kind, numbers in _NUMBERS.items()}


def to_wire(message: Message) -> Any:
    """Encode as an object of the class that `WIRE` has for this kind of message."""
    wire = WIRE[type(message)]()
    _fill(wire, message)
    return wire


def from_wire(kind: type[M_], wire: Wire) -> M_:
    """Decode and validate. Raises `MessageError`, for a number of an enum that is unknown too: it is never guessed."""
    return kind(**_read(kind, wire))


def tensor_to_wire(tensor: Tensor | None) -> Any:
    """Encode a tensor; no tensor is the unspecified number."""
    return _TENSORS[tensor]


def tensor_from_wire(number: int) -> Tensor | None:
    """Decode a tensor. The unspecified number is no tensor. An unknown number is an error, never a guess."""
    tensor: Tensor | None = _known(Tensor, number, "tensor")
    return tensor


def results_to_wire(results: StudyResults) -> Iterator[operator_pb2.ResultsPart]:
    """Encode in parts, each of which fits a message."""
    yield to_wire(replace(results, agreed=(), publications=()))
    for start in range(0, len(results.agreed), FIGURES_A_PART):
        figures = results.agreed[start : start + FIGURES_A_PART]
        yield operator_pb2.ResultsPart(agreed=[to_wire(one) for one in figures])
    for one in results.publications:
        yield operator_pb2.ResultsPart(publication=to_wire(one))


def results_from_wire(parts: Iterable[operator_pb2.ResultsPart]) -> StudyResults:
    """Decode and validate. Raises `MessageError` if there is no part."""
    rest = iter(parts)
    first = next(rest, None)
    if first is None:
        msg = "results: no part came"
        raise MessageError(msg)
    received = list(rest)
    lists: dict[str, Any] = {
        "agreed": tuple(from_wire(AgreedFigure, one) for part in received for one in part.agreed),
        "publications": tuple(
            from_wire(SignedPublication, part.publication) for part in received if part.HasField("publication")
        ),
    }
    return StudyResults(**_read(StudyResults, first, but=lists), **lists)


@dataclass(frozen=True)
class _Field:
    """How a field is written and read: here a number, a text or a blob, which is on the wire as it is."""

    called: str

    def put(self, wire: Any, value: Any) -> None:
        setattr(wire, self.called, value)

    def get(self, wire: Any) -> Any:
        return getattr(wire, self.called)


@dataclass(frozen=True)
class _Absentable(_Field):
    """The same, or None."""

    def put(self, wire: Any, value: Any) -> None:
        if value is not None:
            super().put(wire, value)

    def get(self, wire: Any) -> Any:
        return super().get(wire) if wire.HasField(self.called) else None


@dataclass(frozen=True)
class _Member(_Field):
    """A member of an enum; or None, if the enum's numbers have it."""

    kind: type[StrEnum]
    needed: str
    """What the error calls the field if it may not be None."""

    def put(self, wire: Any, value: Any) -> None:
        super().put(wire, _NUMBERS[self.kind][value])

    def get(self, wire: Any) -> Any:
        value = _known(self.kind, super().get(wire), self.called)
        if value is None and self.needed:
            msg = f"{self.needed}: is missing"
            raise MessageError(msg)
        return value


@dataclass(frozen=True)
class _Nested(_Field):
    """A message in the message."""

    kind: type[Message]
    optional: bool

    def put(self, wire: Any, value: Any) -> None:
        if value is not None:
            inner = super().get(wire)
            inner.SetInParent()  # it is there even if all its fields are zero or empty
            _fill(inner, value)

    def get(self, wire: Any) -> Any:
        absent = self.optional and not wire.HasField(self.called)
        return None if absent else from_wire(self.kind, super().get(wire))


@dataclass(frozen=True)
class _Messages(_Field):
    """A list of messages."""

    kind: type[Message]

    def put(self, wire: Any, value: Any) -> None:
        for one in value:
            _fill(super().get(wire).add(), one)

    def get(self, wire: Any) -> Any:
        return tuple(from_wire(self.kind, one) for one in super().get(wire))


@dataclass(frozen=True)
class _Texts(_Field):
    """A list of texts."""

    def put(self, wire: Any, value: Any) -> None:
        super().get(wire).extend(value)

    def get(self, wire: Any) -> Any:
        return tuple(super().get(wire))


@dataclass(frozen=True)
class _Column(_Field):
    """One field of every item of a list."""

    column: str

    def put(self, wire: Any, value: Any) -> None:
        for item, one in zip(super().get(wire), value, strict=True):
            setattr(item, self.column, one)

    def get(self, wire: Any) -> Any:
        return tuple(getattr(item, self.column) for item in super().get(wire))


@cache
def _fields(kind: Any) -> tuple[tuple[str, _Field], ...]:
    hints = get_type_hints(kind)
    names = sorted((one.name for one in fields(kind)), key=lambda name: (kind, name) not in _READ_FIRST)
    return tuple((name, _field(kind, name, hints[name])) for name in names)


def _field(kind: type[Message], name: str, hint: Any) -> _Field:
    called, _, column = CALLED.get((kind, name), name).partition(".")
    if column:
        return _Column(called, column)
    optional = NoneType in get_args(hint)
    given = next(one for one in get_args(hint) if one is not NoneType) if optional else hint
    if get_origin(given) is tuple:
        item = get_args(given)[0]
        return _Messages(called, item) if item in WIRE else _Texts(called)
    if given in WIRE:
        return _Nested(called, given, optional)
    if given in _NUMBERS:
        return _Member(called, given, "" if optional else f"{kind.__name__.lower()}.{name}")
    return _Absentable(called) if optional else _Field(called)


def _fill(wire: Any, message: Message) -> None:
    kind: Any = type(message)
    for name, field in _fields(kind):
        field.put(wire, getattr(message, name))


def _read(kind: Any, wire: Any, but: Collection[str] = ()) -> dict[str, Any]:
    return {name: field.get(wire) for name, field in _fields(kind) if name not in but}


def _known(kind: type[StrEnum], number: int, field: str) -> Any:
    if number not in _MEMBERS[kind]:
        msg = f"{field}: the number {number} is unknown to this version"
        raise MessageError(msg)
    return _MEMBERS[kind][number]
