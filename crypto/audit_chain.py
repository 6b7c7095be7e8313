"""The chain of a coordinator's audit log, and what a silo signs about how far it has followed it.

An entry's digest is the SHA-256 of its canonical JSON. A head is the hash of the head before and of the next entry's
digest, so a head fixes all entries up to its own. A silo sees digests alone, and no word of the entries.

Guarantees: `follow` gives the same head for the same entries only. Who changes, adds or removes an entry that a silo
has followed must find a collision of SHA-256, or show that silo a log which does not go on from its head
(docs/design/audit-log.md).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from crypto.canonical import canonical

DIGEST_BYTES: Final = 32
NOTHING: Final = bytes(DIGEST_BYTES)
"""The head of a log without an entry."""


def entry_digest(content: bytes) -> bytes:
    """Return the digest of an entry's canonical JSON, 32 bytes."""
    return hashlib.sha256(canonical("audit entry", content)).digest()


def follow(head: bytes, digests: Iterable[bytes]) -> bytes:
    """Return the head after these entries, which come after `head`. Both are 32 bytes."""
    for digest in digests:
        head = hashlib.sha256(canonical("audit head", head, digest)).digest()
    return head


@dataclass(frozen=True)
class Followed:
    """How far a silo has followed a log: the number of its entries, and the head after them."""

    entries: int
    head: bytes


UNKNOWN: Final = Followed(0, NOTHING)
"""Nothing was followed yet."""


@dataclass(frozen=True)
class AuditStatement:
    """What a silo signs: how far it has followed the log, and the head that a later log did not go on from."""

    now: Followed
    """The first entry has a random word, so a head says which log it is of."""
    broke: Followed = UNKNOWN
    """The highest head that this silo had followed, and that the coordinator could not go on from any more. It stands
    in every later statement, so that a log which was rewritten or put back from a backup is known by it."""

    def to_sign(self) -> bytes:
        """Return the bytes that a silo signs."""
        parts = (self.now.entries, self.now.head, self.broke.entries, self.broke.head)
        return canonical("audit statement", *parts)
