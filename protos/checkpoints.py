"""What silos say about their ledgers, signed and cosigned, as frozen values validated on construction.

What a checkpoint says is read and checked by `policies.ledger.cosign`; whose signature it is, by the certificate alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from protos.messages import MessageError

MAX_CHECKPOINT: Final = 1 << 20
"""Bytes: some thousand kinds of release."""
_MAX_PEM: Final = 16_384
_MAX_SIGNATURE: Final = 256


@dataclass(frozen=True)
class SignedCheckpoint:
    """How far a silo's ledger has come, signed by that silo."""

    checkpoint: bytes
    """Exactly what is signed."""
    certificate_pem: bytes
    signature: bytes

    def __post_init__(self) -> None:
        _require_size("checkpoint", self.checkpoint, MAX_CHECKPOINT, "checkpoint")
        _require_signed("checkpoint", self.certificate_pem, self.signature)


@dataclass(frozen=True)
class CosignedCheckpoint:
    """The same bytes, signed by another party as well; its silo's own signature shows that nobody made them up."""

    stated: SignedCheckpoint
    certificate_pem: bytes
    signature: bytes

    def __post_init__(self) -> None:
        _require_signed("cosignature", self.certificate_pem, self.signature)


@dataclass(frozen=True)
class Cosigned:
    """The coordinator's answer to a checkpoint: its own cosignature, and another silo's where there is one."""

    coordinator: CosignedCheckpoint
    peer: CosignedCheckpoint | None = None
    """Of the same checkpoint; or of the newest that this silo knows, which the checkpoint does not contain."""


def _require_signed(what: str, certificate_pem: bytes, signature: bytes) -> None:
    _require_size("certificate_pem", certificate_pem, _MAX_PEM, what)
    _require_size("signature", signature, _MAX_SIGNATURE, what)


def _require_size(field: str, value: bytes, most: int, what: str) -> None:
    if not 0 < len(value) <= most:
        msg = f"{what}.{field}: is empty or above {most} bytes"
        raise MessageError(msg)
