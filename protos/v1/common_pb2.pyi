from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class Tensor(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TENSOR_UNSPECIFIED: _ClassVar[Tensor]
    TENSOR_COUNTS: _ClassVar[Tensor]
    TENSOR_HEADS: _ClassVar[Tensor]
    TENSOR_ENCODER: _ClassVar[Tensor]
    TENSOR_METRICS: _ClassVar[Tensor]
TENSOR_UNSPECIFIED: Tensor
TENSOR_COUNTS: Tensor
TENSOR_HEADS: Tensor
TENSOR_ENCODER: Tensor
TENSOR_METRICS: Tensor

class Member(_message.Message):
    __slots__ = ("silo", "certificate_pem", "public_key", "signature", "kem_key")
    SILO_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_PEM_FIELD_NUMBER: _ClassVar[int]
    PUBLIC_KEY_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    KEM_KEY_FIELD_NUMBER: _ClassVar[int]
    silo: str
    certificate_pem: bytes
    public_key: bytes
    signature: bytes
    kem_key: bytes
    def __init__(self, silo: _Optional[str] = ..., certificate_pem: _Optional[bytes] = ..., public_key: _Optional[bytes] = ..., signature: _Optional[bytes] = ..., kem_key: _Optional[bytes] = ...) -> None: ...

class Place(_message.Message):
    __slots__ = ("study", "round", "attempt")
    STUDY_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    study: str
    round: int
    attempt: int
    def __init__(self, study: _Optional[str] = ..., round: _Optional[int] = ..., attempt: _Optional[int] = ...) -> None: ...

class AuthorSignature(_message.Message):
    __slots__ = ("certificate_pem", "signature")
    CERTIFICATE_PEM_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    certificate_pem: bytes
    signature: bytes
    def __init__(self, certificate_pem: _Optional[bytes] = ..., signature: _Optional[bytes] = ...) -> None: ...

class AuditCosignature(_message.Message):
    __slots__ = ("silo", "entries", "head", "broke_entries", "broke_head", "certificate_pem", "signature")
    SILO_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    HEAD_FIELD_NUMBER: _ClassVar[int]
    BROKE_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    BROKE_HEAD_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_PEM_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    silo: str
    entries: int
    head: bytes
    broke_entries: int
    broke_head: bytes
    certificate_pem: bytes
    signature: bytes
    def __init__(self, silo: _Optional[str] = ..., entries: _Optional[int] = ..., head: _Optional[bytes] = ..., broke_entries: _Optional[int] = ..., broke_head: _Optional[bytes] = ..., certificate_pem: _Optional[bytes] = ..., signature: _Optional[bytes] = ...) -> None: ...
