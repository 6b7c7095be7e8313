"""Checkpoints of silos' ledgers, signed and cosigned, as frozen values that are validated on construction.

`policies.ledger.cosign` reads and checks the content of a checkpoint. The certificate alone says who signed it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Final

from protos.bounds import Count, Pem, SignatureBytes
from protos.messages import Message

MAX_CHECKPOINT: Final = 1 << 20
"""Bytes. This is enough for some thousand kinds of release."""


@dataclass(frozen=True)
class SignedCheckpoint(Message):
    """A checkpoint of a silo's ledger (how far it has come), signed by that silo."""

    called: ClassVar[str | None] = "checkpoint"

    checkpoint: Annotated[bytes, Count(1, MAX_CHECKPOINT)]
    """Exactly the signed bytes."""
    certificate_pem: Pem
    signature: SignatureBytes


@dataclass(frozen=True)
class CosignedCheckpoint(Message):
    """The same bytes, signed by another party too. The signature of the ledger's silo shows that they are genuine."""

    called: ClassVar[str | None] = "cosignature"

    stated: SignedCheckpoint
    certificate_pem: Pem
    signature: SignatureBytes


@dataclass(frozen=True)
class Handed(Message):
    """A checkpoint that somebody is asked to cosign, with what explains its charges."""

    called: ClassVar[str | None] = "checkpoint with its evidence"

    stated: SignedCheckpoint
    evidence: CosignedCheckpoint | None = None
    """The coordinator's signature on an earlier checkpoint of the same ledger; None if there is none."""


@dataclass(frozen=True)
class Cosigned(Message):
    """The coordinator's answer to a checkpoint: its own cosignature, and another silo's if there is one."""

    coordinator: CosignedCheckpoint
    peer: CosignedCheckpoint | None = None
    """The other silo's cosignature. It is of the same checkpoint, or of the newest one that the other silo knows, if
    this checkpoint does not contain that one."""
