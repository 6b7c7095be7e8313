from protos.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class LinkConsoleRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class LinkConsoleReply(_message.Message):
    __slots__ = ("url",)
    URL_FIELD_NUMBER: _ClassVar[int]
    url: str
    def __init__(self, url: _Optional[str] = ...) -> None: ...

class CreateStudyRequest(_message.Message):
    __slots__ = ("canonical", "author")
    CANONICAL_FIELD_NUMBER: _ClassVar[int]
    AUTHOR_FIELD_NUMBER: _ClassVar[int]
    canonical: bytes
    author: _common_pb2.AuthorSignature
    def __init__(self, canonical: _Optional[bytes] = ..., author: _Optional[_Union[_common_pb2.AuthorSignature, _Mapping]] = ...) -> None: ...

class PollAnswer(_message.Message):
    __slots__ = ("silo", "verdict")
    SILO_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    silo: str
    verdict: str
    def __init__(self, silo: _Optional[str] = ..., verdict: _Optional[str] = ...) -> None: ...

class PollReply(_message.Message):
    __slots__ = ("study", "answers")
    STUDY_FIELD_NUMBER: _ClassVar[int]
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    study: str
    answers: _containers.RepeatedCompositeFieldContainer[PollAnswer]
    def __init__(self, study: _Optional[str] = ..., answers: _Optional[_Iterable[_Union[PollAnswer, _Mapping]]] = ...) -> None: ...

class CreateStudyReply(_message.Message):
    __slots__ = ("study",)
    STUDY_FIELD_NUMBER: _ClassVar[int]
    study: str
    def __init__(self, study: _Optional[str] = ...) -> None: ...

class StudyRequest(_message.Message):
    __slots__ = ("study", "reason")
    STUDY_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    study: str
    reason: str
    def __init__(self, study: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class AbortStudyRequest(_message.Message):
    __slots__ = ("study", "reason")
    STUDY_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    study: str
    reason: str
    def __init__(self, study: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class ForgiveSiloRequest(_message.Message):
    __slots__ = ("study", "silo", "reason")
    STUDY_FIELD_NUMBER: _ClassVar[int]
    SILO_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    study: str
    silo: str
    reason: str
    def __init__(self, study: _Optional[str] = ..., silo: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class DrainRequest(_message.Message):
    __slots__ = ("undo", "reason")
    UNDO_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    undo: bool
    reason: str
    def __init__(self, undo: _Optional[bool] = ..., reason: _Optional[str] = ...) -> None: ...

class DrainReply(_message.Message):
    __slots__ = ("within",)
    WITHIN_FIELD_NUMBER: _ClassVar[int]
    within: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, within: _Optional[_Iterable[str]] = ...) -> None: ...

class GetAuditLogRequest(_message.Message):
    __slots__ = ("first",)
    FIRST_FIELD_NUMBER: _ClassVar[int]
    first: int
    def __init__(self, first: _Optional[int] = ...) -> None: ...

class AuditEntry(_message.Message):
    __slots__ = ("number", "at", "who", "certificate", "action", "study", "name", "silo", "reason", "outcome", "why")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    WHO_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    STUDY_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SILO_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    number: int
    at: str
    who: str
    certificate: str
    action: str
    study: str
    name: str
    silo: str
    reason: str
    outcome: str
    why: str
    def __init__(self, number: _Optional[int] = ..., at: _Optional[str] = ..., who: _Optional[str] = ..., certificate: _Optional[str] = ..., action: _Optional[str] = ..., study: _Optional[str] = ..., name: _Optional[str] = ..., silo: _Optional[str] = ..., reason: _Optional[str] = ..., outcome: _Optional[str] = ..., why: _Optional[str] = ...) -> None: ...

class AuditPart(_message.Message):
    __slots__ = ("entries", "cosignatures")
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    COSIGNATURES_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[AuditEntry]
    cosignatures: _containers.RepeatedCompositeFieldContainer[_common_pb2.AuditCosignature]
    def __init__(self, entries: _Optional[_Iterable[_Union[AuditEntry, _Mapping]]] = ..., cosignatures: _Optional[_Iterable[_Union[_common_pb2.AuditCosignature, _Mapping]]] = ...) -> None: ...

class StudyReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListStudiesRequest(_message.Message):
    __slots__ = ("states", "name", "owner", "archived", "most", "after")
    STATES_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    ARCHIVED_FIELD_NUMBER: _ClassVar[int]
    MOST_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    states: _containers.RepeatedScalarFieldContainer[str]
    name: str
    owner: str
    archived: bool
    most: int
    after: str
    def __init__(self, states: _Optional[_Iterable[str]] = ..., name: _Optional[str] = ..., owner: _Optional[str] = ..., archived: _Optional[bool] = ..., most: _Optional[int] = ..., after: _Optional[str] = ...) -> None: ...

class ListStudiesReply(_message.Message):
    __slots__ = ("studies", "more")
    STUDIES_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    studies: _containers.RepeatedCompositeFieldContainer[StudyStatus]
    more: int
    def __init__(self, studies: _Optional[_Iterable[_Union[StudyStatus, _Mapping]]] = ..., more: _Optional[int] = ...) -> None: ...

class MemberStatus(_message.Message):
    __slots__ = ("silo", "state", "why", "last_seen", "slow_seconds", "slow_budget", "lost_attempts", "set_aside")
    SILO_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    LAST_SEEN_FIELD_NUMBER: _ClassVar[int]
    SLOW_SECONDS_FIELD_NUMBER: _ClassVar[int]
    SLOW_BUDGET_FIELD_NUMBER: _ClassVar[int]
    LOST_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    SET_ASIDE_FIELD_NUMBER: _ClassVar[int]
    silo: str
    state: str
    why: str
    last_seen: float
    slow_seconds: float
    slow_budget: float
    lost_attempts: int
    set_aside: bool
    def __init__(self, silo: _Optional[str] = ..., state: _Optional[str] = ..., why: _Optional[str] = ..., last_seen: _Optional[float] = ..., slow_seconds: _Optional[float] = ..., slow_budget: _Optional[float] = ..., lost_attempts: _Optional[int] = ..., set_aside: _Optional[bool] = ...) -> None: ...

class PhaseTime(_message.Message):
    __slots__ = ("round", "attempt", "phase", "tensor", "seconds")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    TENSOR_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    round: int
    attempt: int
    phase: str
    tensor: _common_pb2.Tensor
    seconds: float
    def __init__(self, round: _Optional[int] = ..., attempt: _Optional[int] = ..., phase: _Optional[str] = ..., tensor: _Optional[_Union[_common_pb2.Tensor, str]] = ..., seconds: _Optional[float] = ...) -> None: ...

class UploadSize(_message.Message):
    __slots__ = ("round", "attempt", "tensor", "kind", "silo", "bytes")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    TENSOR_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    SILO_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    round: int
    attempt: int
    tensor: _common_pb2.Tensor
    kind: str
    silo: str
    bytes: int
    def __init__(self, round: _Optional[int] = ..., attempt: _Optional[int] = ..., tensor: _Optional[_Union[_common_pb2.Tensor, str]] = ..., kind: _Optional[str] = ..., silo: _Optional[str] = ..., bytes: _Optional[int] = ...) -> None: ...

class StudyStatus(_message.Message):
    __slots__ = ("study", "name", "state", "why", "round", "rounds", "attempt", "phase", "tensor", "waiting_for", "members", "times", "uploads", "owner", "revision", "archived", "since", "until")
    STUDY_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    ROUNDS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    TENSOR_FIELD_NUMBER: _ClassVar[int]
    WAITING_FOR_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    TIMES_FIELD_NUMBER: _ClassVar[int]
    UPLOADS_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    ARCHIVED_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    study: str
    name: str
    state: str
    why: str
    round: int
    rounds: int
    attempt: int
    phase: str
    tensor: _common_pb2.Tensor
    waiting_for: _containers.RepeatedScalarFieldContainer[str]
    members: _containers.RepeatedCompositeFieldContainer[MemberStatus]
    times: _containers.RepeatedCompositeFieldContainer[PhaseTime]
    uploads: _containers.RepeatedCompositeFieldContainer[UploadSize]
    owner: str
    revision: int
    archived: bool
    since: float
    until: float
    def __init__(self, study: _Optional[str] = ..., name: _Optional[str] = ..., state: _Optional[str] = ..., why: _Optional[str] = ..., round: _Optional[int] = ..., rounds: _Optional[int] = ..., attempt: _Optional[int] = ..., phase: _Optional[str] = ..., tensor: _Optional[_Union[_common_pb2.Tensor, str]] = ..., waiting_for: _Optional[_Iterable[str]] = ..., members: _Optional[_Iterable[_Union[MemberStatus, _Mapping]]] = ..., times: _Optional[_Iterable[_Union[PhaseTime, _Mapping]]] = ..., uploads: _Optional[_Iterable[_Union[UploadSize, _Mapping]]] = ..., owner: _Optional[str] = ..., revision: _Optional[int] = ..., archived: _Optional[bool] = ..., since: _Optional[float] = ..., until: _Optional[float] = ...) -> None: ...

class Figure(_message.Message):
    __slots__ = ("domain", "metric", "value", "low", "high")
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    METRIC_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    LOW_FIELD_NUMBER: _ClassVar[int]
    HIGH_FIELD_NUMBER: _ClassVar[int]
    domain: str
    metric: str
    value: float
    low: float
    high: float
    def __init__(self, domain: _Optional[str] = ..., metric: _Optional[str] = ..., value: _Optional[float] = ..., low: _Optional[float] = ..., high: _Optional[float] = ...) -> None: ...

class AgreedFigure(_message.Message):
    __slots__ = ("figure", "silos")
    FIGURE_FIELD_NUMBER: _ClassVar[int]
    SILOS_FIELD_NUMBER: _ClassVar[int]
    figure: Figure
    silos: int
    def __init__(self, figure: _Optional[_Union[Figure, _Mapping]] = ..., silos: _Optional[int] = ...) -> None: ...

class SignedPublication(_message.Message):
    __slots__ = ("silo", "blob", "signature", "certificate_pem")
    SILO_FIELD_NUMBER: _ClassVar[int]
    BLOB_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_PEM_FIELD_NUMBER: _ClassVar[int]
    silo: str
    blob: bytes
    signature: bytes
    certificate_pem: bytes
    def __init__(self, silo: _Optional[str] = ..., blob: _Optional[bytes] = ..., signature: _Optional[bytes] = ..., certificate_pem: _Optional[bytes] = ...) -> None: ...

class ResultsPart(_message.Message):
    __slots__ = ("study", "name", "needed", "agreed", "publication")
    STUDY_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    NEEDED_FIELD_NUMBER: _ClassVar[int]
    AGREED_FIELD_NUMBER: _ClassVar[int]
    PUBLICATION_FIELD_NUMBER: _ClassVar[int]
    study: str
    name: str
    needed: int
    agreed: _containers.RepeatedCompositeFieldContainer[AgreedFigure]
    publication: SignedPublication
    def __init__(self, study: _Optional[str] = ..., name: _Optional[str] = ..., needed: _Optional[int] = ..., agreed: _Optional[_Iterable[_Union[AgreedFigure, _Mapping]]] = ..., publication: _Optional[_Union[SignedPublication, _Mapping]] = ...) -> None: ...
