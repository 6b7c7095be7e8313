"""What silos say about their ledgers, signed and countersigned, as frozen values validated on construction.

What a statement says is read and checked by `policies.countersign`; whose signature it is, by the certificate alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from protos.messages import MessageError

MAX_STATEMENT: Final = 1 << 20
"""Bytes: some thousand kinds of release."""
_MAX_PEM: Final = 16_384
_MAX_SIGNATURE: Final = 256


@dataclass(frozen=True)
class SignedStatement:
    """How far a silo's ledger has come, signed by that silo."""

    statement: bytes
    """Exactly what is signed."""
    certificate_pem: bytes
    signature: bytes

    def __post_init__(self) -> None:
        _require_size("statement", self.statement, MAX_STATEMENT, "statement")
        _require_signed("statement", self.certificate_pem, self.signature)


@dataclass(frozen=True)
class CountersignedStatement:
    """The same bytes, signed by another party as well; its silo's own signature shows that nobody made them up."""

    stated: SignedStatement
    certificate_pem: bytes
    signature: bytes

    def __post_init__(self) -> None:
        _require_signed("countersignature", self.certificate_pem, self.signature)


@dataclass(frozen=True)
class Countersigned:
    """The coordinator's answer to a statement: its own countersignature, and another silo's where there is one."""

    coordinator: CountersignedStatement
    peer: CountersignedStatement | None = None
    """Of the same statement; or of the newest that this silo knows, which the statement does not contain."""


def _require_signed(what: str, certificate_pem: bytes, signature: bytes) -> None:
    _require_size("certificate_pem", certificate_pem, _MAX_PEM, what)
    _require_size("signature", signature, _MAX_SIGNATURE, what)


def _require_size(field: str, value: bytes, most: int, what: str) -> None:
    if not 0 < len(value) <= most:
        msg = f"{what}.{field}: is empty or above {most} bytes"
        raise MessageError(msg)
