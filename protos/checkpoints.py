"""Checkpoints of silos' ledgers, signed and cosigned, as frozen values that are validated on construction.

`policies.ledger.cosign` reads and checks the content of a checkpoint. The certificate alone says who signed it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from protos.messages import MessageError

MAX_CHECKPOINT: Final = 1 << 20
"""Bytes. This is enough for some thousand kinds of release."""
_MAX_PEM: Final = 16_384
_MAX_SIGNATURE: Final = 256


@dataclass(frozen=True)
class SignedCheckpoint:
    """A checkpoint of a silo's ledger (how far it has come), signed by that silo."""

    checkpoint: bytes
    """Exactly the signed bytes."""
    certificate_pem: bytes
    signature: bytes

    def __post_init__(self) -> None:
        _require_size("checkpoint", self.checkpoint, MAX_CHECKPOINT, "checkpoint")
        _require_signed("checkpoint", self.certificate_pem, self.signature)


@dataclass(frozen=True)
class CosignedCheckpoint:
    """The same bytes, signed by another party too. The signature of the ledger's silo shows that they are genuine."""

    stated: SignedCheckpoint
    certificate_pem: bytes
    signature: bytes

    def __post_init__(self) -> None:
        _require_signed("cosignature", self.certificate_pem, self.signature)


@dataclass(frozen=True)
class Cosigned:
    """The coordinator's answer to a checkpoint: its own cosignature, and another silo's if there is one."""

    coordinator: CosignedCheckpoint
    peer: CosignedCheckpoint | None = None
    """The other silo's cosignature. It is of the same checkpoint, or of the newest one that the other silo knows, if
    this checkpoint does not contain that one."""


def _require_signed(what: str, certificate_pem: bytes, signature: bytes) -> None:
    _require_size("certificate_pem", certificate_pem, _MAX_PEM, what)
    _require_size("signature", signature, _MAX_SIGNATURE, what)


def _require_size(field: str, value: bytes, most: int, what: str) -> None:
    if not 0 < len(value) <= most:
        msg = f"{what}.{field}: is empty or above {most} bytes"
        raise MessageError(msg)
