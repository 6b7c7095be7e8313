"""What silos say about their ledgers, with one party's signature, as frozen values validated on construction.

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
    """How far a silo's ledger has come, signed by that silo, which states it, or by another, which countersigned it."""

    statement: bytes
    """Exactly what is signed."""
    certificate_pem: bytes
    signature: bytes

    def __post_init__(self) -> None:
        for field, value, most in (
            ("statement", self.statement, MAX_STATEMENT),
            ("certificate_pem", self.certificate_pem, _MAX_PEM),
            ("signature", self.signature, _MAX_SIGNATURE),
        ):
            if not 0 < len(value) <= most:
                msg = f"statement.{field}: is empty or above {most} bytes"
                raise MessageError(msg)


@dataclass(frozen=True)
class Countersigned:
    """The coordinator's answer to a statement: its own countersignature, and another silo's where there is one."""

    coordinator: SignedStatement
    peer: SignedStatement | None = None
    """Of the same statement; or of the newest that this silo knows, which the statement does not contain."""
