"""The entries of a coordinator's audit log and what silos sign of it, as frozen values validated on construction."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Final

from common.canonical_json import canonical_json
from protos.bounds import Count, Name, Pem, Sentence, SignatureBytes, Text
from protos.messages import Message

MOST_DIGESTS: Final = 4096
"""Most digests of entries in one message: 128 KiB of them."""
_DIGEST: Final = 32


@dataclass(frozen=True)
class AuditEntry(Message):
    """Who did what, or was refused what, to which study, when and why."""

    number: int
    """From 0: the first entry says when the log began."""
    at: Name
    """ISO 8601 in UTC, with microseconds."""
    who: Annotated[str, Text(128)]
    """The identity in the certificate, such as `fedward://author/ada`; empty for what the coordinator notes itself."""
    certificate: Annotated[str, Text(64)]
    """SHA-256 of the certificate's PEM, in hex."""
    action: Name
    study: Annotated[str, Text(64)]
    """Digest of the study; empty if there is none."""
    name: Annotated[str, Text(64)]
    """Name of the study, or what the person called it by."""
    silo: Annotated[str, Text(64)]
    """The silo that an action is about; mostly empty."""
    reason: Sentence
    """What the person gave as a reason."""
    outcome: Name
    """`done` or `refused`."""
    why: Sentence
    """Why it was refused."""

    def content(self) -> str:
        """Return the canonical JSON that the chain hashes."""
        return canonical_json(asdict(self))


@dataclass(frozen=True)
class AuditTrail(Message):
    """The digests of the entries after those that a silo has followed, and how many entries the log has in all."""

    entries: int
    digests: Annotated[bytes, Count(0, MOST_DIGESTS * _DIGEST)]
    """One after the other, 32 bytes each; as many as a message takes."""


@dataclass(frozen=True)
class CosignedAudit(Message):
    """What a silo states of the log (`crypto.audit_chain.AuditStatement`), signed."""

    silo: Name
    entries: int
    head: Annotated[bytes, Count(_DIGEST, _DIGEST)]
    broke_entries: int
    broke_head: Annotated[bytes, Count(_DIGEST, _DIGEST)]
    certificate_pem: Pem
    signature: SignatureBytes
