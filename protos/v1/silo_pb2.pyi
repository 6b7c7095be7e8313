from protos.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Task(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TASK_UNSPECIFIED: _ClassVar[Task]
    TASK_WAIT: _ClassVar[Task]
    TASK_DECIDE: _ClassVar[Task]
    TASK_DEAL: _ClassVar[Task]
    TASK_TAKE: _ClassVar[Task]
    TASK_CONTRIBUTE: _ClassVar[Task]
    TASK_OPEN: _ClassVar[Task]
    TASK_SOLVE: _ClassVar[Task]
    TASK_ADOPT: _ClassVar[Task]
    TASK_FINISH: _ClassVar[Task]
    TASK_SHARE: _ClassVar[Task]
    TASK_CATCH_UP: _ClassVar[Task]
    TASK_GREET: _ClassVar[Task]
    TASK_EXCHANGE: _ClassVar[Task]
    TASK_SIGN: _ClassVar[Task]
    TASK_REVEAL: _ClassVar[Task]
    TASK_RECOUNT: _ClassVar[Task]
    TASK_CHECK: _ClassVar[Task]
    TASK_VOID: _ClassVar[Task]
    TASK_JUDGE: _ClassVar[Task]
    TASK_EXAMINE: _ClassVar[Task]
TASK_UNSPECIFIED: Task
TASK_WAIT: Task
TASK_DECIDE: Task
TASK_DEAL: Task
TASK_TAKE: Task
TASK_CONTRIBUTE: Task
TASK_OPEN: Task
TASK_SOLVE: Task
TASK_ADOPT: Task
TASK_FINISH: Task
TASK_SHARE: Task
TASK_CATCH_UP: Task
TASK_GREET: Task
TASK_EXCHANGE: Task
TASK_SIGN: Task
TASK_REVEAL: Task
TASK_RECOUNT: Task
TASK_CHECK: Task
TASK_VOID: Task
TASK_JUDGE: Task
TASK_EXAMINE: Task

class JoinRequest(_message.Message):
    __slots__ = ("protocol", "agent_version", "session")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    AGENT_VERSION_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    agent_version: str
    session: str
    def __init__(self, protocol: _Optional[int] = ..., agent_version: _Optional[str] = ..., session: _Optional[str] = ...) -> None: ...

class JoinReply(_message.Message):
    __slots__ = ("protocol", "coordinator_version", "max_chunk", "heartbeat_seconds", "time")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    COORDINATOR_VERSION_FIELD_NUMBER: _ClassVar[int]
    MAX_CHUNK_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    coordinator_version: str
    max_chunk: int
    heartbeat_seconds: float
    time: float
    def __init__(self, protocol: _Optional[int] = ..., coordinator_version: _Optional[str] = ..., max_chunk: _Optional[int] = ..., heartbeat_seconds: _Optional[float] = ..., time: _Optional[float] = ...) -> None: ...

class GetStudyRequest(_message.Message):
    __slots__ = ("study",)
    STUDY_FIELD_NUMBER: _ClassVar[int]
    study: str
    def __init__(self, study: _Optional[str] = ...) -> None: ...

class GetStudyReply(_message.Message):
    __slots__ = ("canonical", "author")
    CANONICAL_FIELD_NUMBER: _ClassVar[int]
    AUTHOR_FIELD_NUMBER: _ClassVar[int]
    canonical: bytes
    author: _common_pb2.AuthorSignature
    def __init__(self, canonical: _Optional[bytes] = ..., author: _Optional[_Union[_common_pb2.AuthorSignature, _Mapping]] = ...) -> None: ...

class PollRequest(_message.Message):
    __slots__ = ("session", "hold_seconds", "roster_sha256")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    HOLD_SECONDS_FIELD_NUMBER: _ClassVar[int]
    ROSTER_SHA256_FIELD_NUMBER: _ClassVar[int]
    session: str
    hold_seconds: float
    roster_sha256: str
    def __init__(self, session: _Optional[str] = ..., hold_seconds: _Optional[float] = ..., roster_sha256: _Optional[str] = ...) -> None: ...

class Part(_message.Message):
    __slots__ = ("kind", "silo", "size", "sha256")
    KIND_FIELD_NUMBER: _ClassVar[int]
    SILO_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    kind: str
    silo: str
    size: int
    sha256: str
    def __init__(self, kind: _Optional[str] = ..., silo: _Optional[str] = ..., size: _Optional[int] = ..., sha256: _Optional[str] = ...) -> None: ...

class Signature(_message.Message):
    __slots__ = ("silo", "signature")
    SILO_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    silo: str
    signature: bytes
    def __init__(self, silo: _Optional[str] = ..., signature: _Optional[bytes] = ...) -> None: ...

class Voider(_message.Message):
    __slots__ = ("silo", "certificate_pem", "signature")
    SILO_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_PEM_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    silo: str
    certificate_pem: bytes
    signature: bytes
    def __init__(self, silo: _Optional[str] = ..., certificate_pem: _Optional[bytes] = ..., signature: _Optional[bytes] = ...) -> None: ...

class Void(_message.Message):
    __slots__ = ("through", "voiders")
    THROUGH_FIELD_NUMBER: _ClassVar[int]
    VOIDERS_FIELD_NUMBER: _ClassVar[int]
    through: int
    voiders: _containers.RepeatedCompositeFieldContainer[Voider]
    def __init__(self, through: _Optional[int] = ..., voiders: _Optional[_Iterable[_Union[Voider, _Mapping]]] = ...) -> None: ...

class Upload(_message.Message):
    __slots__ = ("part", "signature")
    PART_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    part: Part
    signature: bytes
    def __init__(self, part: _Optional[_Union[Part, _Mapping]] = ..., signature: _Optional[bytes] = ...) -> None: ...

class Spoilt(_message.Message):
    __slots__ = ("attempt", "tensor", "names", "sum", "culprit", "statements")
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    TENSOR_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    SUM_FIELD_NUMBER: _ClassVar[int]
    CULPRIT_FIELD_NUMBER: _ClassVar[int]
    STATEMENTS_FIELD_NUMBER: _ClassVar[int]
    attempt: int
    tensor: _common_pb2.Tensor
    names: _containers.RepeatedScalarFieldContainer[str]
    sum: str
    culprit: str
    statements: _containers.RepeatedCompositeFieldContainer[Voider]
    def __init__(self, attempt: _Optional[int] = ..., tensor: _Optional[_Union[_common_pb2.Tensor, str]] = ..., names: _Optional[_Iterable[str]] = ..., sum: _Optional[str] = ..., culprit: _Optional[str] = ..., statements: _Optional[_Iterable[_Union[Voider, _Mapping]]] = ...) -> None: ...

class Vouch(_message.Message):
    __slots__ = ("silo", "certificate_pem", "signature")
    SILO_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_PEM_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    silo: str
    certificate_pem: bytes
    signature: bytes
    def __init__(self, silo: _Optional[str] = ..., certificate_pem: _Optional[bytes] = ..., signature: _Optional[bytes] = ...) -> None: ...

class Complaint(_message.Message):
    __slots__ = ("silo", "owner", "evidence", "signature")
    SILO_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    EVIDENCE_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    silo: str
    owner: str
    evidence: bytes
    signature: bytes
    def __init__(self, silo: _Optional[str] = ..., owner: _Optional[str] = ..., evidence: _Optional[bytes] = ..., signature: _Optional[bytes] = ...) -> None: ...

class Work(_message.Message):
    __slots__ = ("task", "place", "tensor", "roster", "actor", "why", "outcome", "parts", "participants", "survivors", "signatures", "void", "uploads", "spoilt", "vouches", "complaint", "roster_sha256")
    TASK_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    TENSOR_FIELD_NUMBER: _ClassVar[int]
    ROSTER_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    PARTICIPANTS_FIELD_NUMBER: _ClassVar[int]
    SURVIVORS_FIELD_NUMBER: _ClassVar[int]
    SIGNATURES_FIELD_NUMBER: _ClassVar[int]
    VOID_FIELD_NUMBER: _ClassVar[int]
    UPLOADS_FIELD_NUMBER: _ClassVar[int]
    SPOILT_FIELD_NUMBER: _ClassVar[int]
    VOUCHES_FIELD_NUMBER: _ClassVar[int]
    COMPLAINT_FIELD_NUMBER: _ClassVar[int]
    ROSTER_SHA256_FIELD_NUMBER: _ClassVar[int]
    task: Task
    place: _common_pb2.Place
    tensor: _common_pb2.Tensor
    roster: _containers.RepeatedCompositeFieldContainer[_common_pb2.Member]
    actor: str
    why: str
    outcome: str
    parts: _containers.RepeatedCompositeFieldContainer[Part]
    participants: _containers.RepeatedScalarFieldContainer[str]
    survivors: _containers.RepeatedScalarFieldContainer[str]
    signatures: _containers.RepeatedCompositeFieldContainer[Signature]
    void: Void
    uploads: _containers.RepeatedCompositeFieldContainer[Upload]
    spoilt: Spoilt
    vouches: _containers.RepeatedCompositeFieldContainer[Vouch]
    complaint: Complaint
    roster_sha256: str
    def __init__(self, task: _Optional[_Union[Task, str]] = ..., place: _Optional[_Union[_common_pb2.Place, _Mapping]] = ..., tensor: _Optional[_Union[_common_pb2.Tensor, str]] = ..., roster: _Optional[_Iterable[_Union[_common_pb2.Member, _Mapping]]] = ..., actor: _Optional[str] = ..., why: _Optional[str] = ..., outcome: _Optional[str] = ..., parts: _Optional[_Iterable[_Union[Part, _Mapping]]] = ..., participants: _Optional[_Iterable[str]] = ..., survivors: _Optional[_Iterable[str]] = ..., signatures: _Optional[_Iterable[_Union[Signature, _Mapping]]] = ..., void: _Optional[_Union[Void, _Mapping]] = ..., uploads: _Optional[_Iterable[_Union[Upload, _Mapping]]] = ..., spoilt: _Optional[_Union[Spoilt, _Mapping]] = ..., vouches: _Optional[_Iterable[_Union[Vouch, _Mapping]]] = ..., complaint: _Optional[_Union[Complaint, _Mapping]] = ..., roster_sha256: _Optional[str] = ...) -> None: ...

class AnswerRequest(_message.Message):
    __slots__ = ("place", "session", "refusal", "explanation", "member", "model")
    PLACE_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    EXPLANATION_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    place: _common_pb2.Place
    session: str
    refusal: str
    explanation: str
    member: _common_pb2.Member
    model: str
    def __init__(self, place: _Optional[_Union[_common_pb2.Place, _Mapping]] = ..., session: _Optional[str] = ..., refusal: _Optional[str] = ..., explanation: _Optional[str] = ..., member: _Optional[_Union[_common_pb2.Member, _Mapping]] = ..., model: _Optional[str] = ...) -> None: ...

class AnswerReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class UploadHeader(_message.Message):
    __slots__ = ("place", "tensor", "kind", "silo", "values", "size", "sha256")
    PLACE_FIELD_NUMBER: _ClassVar[int]
    TENSOR_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    SILO_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    place: _common_pb2.Place
    tensor: _common_pb2.Tensor
    kind: str
    silo: str
    values: int
    size: int
    sha256: str
    def __init__(self, place: _Optional[_Union[_common_pb2.Place, _Mapping]] = ..., tensor: _Optional[_Union[_common_pb2.Tensor, str]] = ..., kind: _Optional[str] = ..., silo: _Optional[str] = ..., values: _Optional[int] = ..., size: _Optional[int] = ..., sha256: _Optional[str] = ...) -> None: ...

class UploadChunk(_message.Message):
    __slots__ = ("header", "signature", "offset", "data", "hashes")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    HASHES_FIELD_NUMBER: _ClassVar[int]
    header: UploadHeader
    signature: bytes
    offset: int
    data: bytes
    hashes: bytes
    def __init__(self, header: _Optional[_Union[UploadHeader, _Mapping]] = ..., signature: _Optional[bytes] = ..., offset: _Optional[int] = ..., data: _Optional[bytes] = ..., hashes: _Optional[bytes] = ...) -> None: ...

class UploadReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class UploadStatusRequest(_message.Message):
    __slots__ = ("header",)
    HEADER_FIELD_NUMBER: _ClassVar[int]
    header: UploadHeader
    def __init__(self, header: _Optional[_Union[UploadHeader, _Mapping]] = ...) -> None: ...

class UploadStatusReply(_message.Message):
    __slots__ = ("offset", "complete")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    offset: int
    complete: bool
    def __init__(self, offset: _Optional[int] = ..., complete: _Optional[bool] = ...) -> None: ...

class DownloadRequest(_message.Message):
    __slots__ = ("place", "tensor", "kind", "offset", "silos", "about")
    PLACE_FIELD_NUMBER: _ClassVar[int]
    TENSOR_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    SILOS_FIELD_NUMBER: _ClassVar[int]
    ABOUT_FIELD_NUMBER: _ClassVar[int]
    place: _common_pb2.Place
    tensor: _common_pb2.Tensor
    kind: str
    offset: int
    silos: _containers.RepeatedScalarFieldContainer[str]
    about: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, place: _Optional[_Union[_common_pb2.Place, _Mapping]] = ..., tensor: _Optional[_Union[_common_pb2.Tensor, str]] = ..., kind: _Optional[str] = ..., offset: _Optional[int] = ..., silos: _Optional[_Iterable[str]] = ..., about: _Optional[_Iterable[str]] = ...) -> None: ...

class DownloadChunk(_message.Message):
    __slots__ = ("offset", "data", "hashes", "more")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    HASHES_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    offset: int
    data: bytes
    hashes: bytes
    more: _containers.RepeatedCompositeFieldContainer[DownloadChunk]
    def __init__(self, offset: _Optional[int] = ..., data: _Optional[bytes] = ..., hashes: _Optional[bytes] = ..., more: _Optional[_Iterable[_Union[DownloadChunk, _Mapping]]] = ...) -> None: ...

class ConfirmRequest(_message.Message):
    __slots__ = ("place", "task", "tensor", "model", "dispute", "explanation", "publication", "signature", "culprit", "evidence", "content", "vouch")
    PLACE_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    TENSOR_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    DISPUTE_FIELD_NUMBER: _ClassVar[int]
    EXPLANATION_FIELD_NUMBER: _ClassVar[int]
    PUBLICATION_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    CULPRIT_FIELD_NUMBER: _ClassVar[int]
    EVIDENCE_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    VOUCH_FIELD_NUMBER: _ClassVar[int]
    place: _common_pb2.Place
    task: Task
    tensor: _common_pb2.Tensor
    model: str
    dispute: str
    explanation: str
    publication: bytes
    signature: bytes
    culprit: str
    evidence: bytes
    content: str
    vouch: bytes
    def __init__(self, place: _Optional[_Union[_common_pb2.Place, _Mapping]] = ..., task: _Optional[_Union[Task, str]] = ..., tensor: _Optional[_Union[_common_pb2.Tensor, str]] = ..., model: _Optional[str] = ..., dispute: _Optional[str] = ..., explanation: _Optional[str] = ..., publication: _Optional[bytes] = ..., signature: _Optional[bytes] = ..., culprit: _Optional[str] = ..., evidence: _Optional[bytes] = ..., content: _Optional[str] = ..., vouch: _Optional[bytes] = ...) -> None: ...

class ConfirmReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class NextPollRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class AnswerPollRequest(_message.Message):
    __slots__ = ("study", "verdict")
    STUDY_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    study: str
    verdict: str
    def __init__(self, study: _Optional[str] = ..., verdict: _Optional[str] = ...) -> None: ...

class AnswerPollReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class HeartbeatRequest(_message.Message):
    __slots__ = ("session",)
    SESSION_FIELD_NUMBER: _ClassVar[int]
    session: str
    def __init__(self, session: _Optional[str] = ...) -> None: ...

class HeartbeatReply(_message.Message):
    __slots__ = ("audit_entries", "audit_head")
    AUDIT_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    AUDIT_HEAD_FIELD_NUMBER: _ClassVar[int]
    audit_entries: int
    audit_head: bytes
    def __init__(self, audit_entries: _Optional[int] = ..., audit_head: _Optional[bytes] = ...) -> None: ...

class FollowAuditRequest(_message.Message):
    __slots__ = ("entries", "head")
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    HEAD_FIELD_NUMBER: _ClassVar[int]
    entries: int
    head: bytes
    def __init__(self, entries: _Optional[int] = ..., head: _Optional[bytes] = ...) -> None: ...

class FollowAuditReply(_message.Message):
    __slots__ = ("entries", "digests")
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    DIGESTS_FIELD_NUMBER: _ClassVar[int]
    entries: int
    digests: bytes
    def __init__(self, entries: _Optional[int] = ..., digests: _Optional[bytes] = ...) -> None: ...

class CosignAuditReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SignedStatement(_message.Message):
    __slots__ = ("statement", "certificate_pem", "signature")
    STATEMENT_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_PEM_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    statement: bytes
    certificate_pem: bytes
    signature: bytes
    def __init__(self, statement: _Optional[bytes] = ..., certificate_pem: _Optional[bytes] = ..., signature: _Optional[bytes] = ...) -> None: ...

class Countersignature(_message.Message):
    __slots__ = ("stated", "certificate_pem", "signature")
    STATED_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_PEM_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    stated: SignedStatement
    certificate_pem: bytes
    signature: bytes
    def __init__(self, stated: _Optional[_Union[SignedStatement, _Mapping]] = ..., certificate_pem: _Optional[bytes] = ..., signature: _Optional[bytes] = ...) -> None: ...

class LatestCountersignaturesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CountersignRequest(_message.Message):
    __slots__ = ("place", "statement", "hold_seconds", "evidence")
    PLACE_FIELD_NUMBER: _ClassVar[int]
    STATEMENT_FIELD_NUMBER: _ClassVar[int]
    HOLD_SECONDS_FIELD_NUMBER: _ClassVar[int]
    EVIDENCE_FIELD_NUMBER: _ClassVar[int]
    place: _common_pb2.Place
    statement: SignedStatement
    hold_seconds: float
    evidence: Countersignature
    def __init__(self, place: _Optional[_Union[_common_pb2.Place, _Mapping]] = ..., statement: _Optional[_Union[SignedStatement, _Mapping]] = ..., hold_seconds: _Optional[float] = ..., evidence: _Optional[_Union[Countersignature, _Mapping]] = ...) -> None: ...

class CountersignReply(_message.Message):
    __slots__ = ("coordinator", "peer")
    COORDINATOR_FIELD_NUMBER: _ClassVar[int]
    PEER_FIELD_NUMBER: _ClassVar[int]
    coordinator: Countersignature
    peer: Countersignature
    def __init__(self, coordinator: _Optional[_Union[Countersignature, _Mapping]] = ..., peer: _Optional[_Union[Countersignature, _Mapping]] = ...) -> None: ...

class WitnessRequest(_message.Message):
    __slots__ = ("given", "hold_seconds")
    GIVEN_FIELD_NUMBER: _ClassVar[int]
    HOLD_SECONDS_FIELD_NUMBER: _ClassVar[int]
    given: Countersignature
    hold_seconds: float
    def __init__(self, given: _Optional[_Union[Countersignature, _Mapping]] = ..., hold_seconds: _Optional[float] = ...) -> None: ...

class WitnessReply(_message.Message):
    __slots__ = ("statement", "evidence")
    STATEMENT_FIELD_NUMBER: _ClassVar[int]
    EVIDENCE_FIELD_NUMBER: _ClassVar[int]
    statement: SignedStatement
    evidence: Countersignature
    def __init__(self, statement: _Optional[_Union[SignedStatement, _Mapping]] = ..., evidence: _Optional[_Union[Countersignature, _Mapping]] = ...) -> None: ...
