"""What a silo signs that complains about the shares that another has sealed for it, and who lied.

Guarantees: whoever has the note and the complaint finds the same silo. The coordinator does, and so does every silo of
the roster for itself, so neither the coordinator nor the silo that complains decides by its word whom a study loses
(docs/design/sums.md, "Complaints").
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Self

from crypto.canonical import canonical
from crypto.hkdf import KEY_BYTES
from crypto.secagg.dealt.bundles import liar
from crypto.secagg.survivors import AttemptRef

EVIDENCE_BYTES: Final = KEY_BYTES + 32
"""The key, and then the roster's digest."""


@dataclass(frozen=True)
class ShareComplaint:
    """One silo's complaint about another, with the key of that one's note for it."""

    attempt: AttemptRef
    """The attempt, with the roster as the silo that complains has it."""
    owner: str
    """Whose note it is about."""
    holder: str
    """Who complains."""
    key: bytes
    """Of the holder's shares in the note."""

    @classmethod
    def read(cls, study: str, place: tuple[int, int], owner: str, holder: str, evidence: bytes) -> Self:
        """Return the complaint that came with this evidence. `place`: round and attempt."""
        attempt = AttemptRef(study, evidence[KEY_BYTES:].hex(), *place)
        return cls(attempt, owner, holder, evidence[:KEY_BYTES])

    @property
    def evidence(self) -> bytes:
        """What is published with the complaint: key and roster."""
        return self.key + bytes.fromhex(self.attempt.roster)

    def to_sign(self) -> bytes:
        """Return the bytes that the holder signs. Raises `SealError` for a round or attempt outside [0, 2^64)."""
        return canonical("complaint", self.attempt.canonical(), self.owner, self.holder, self.key)

    def liar(self, note: bytes, tensors: Iterable[str], names: Sequence[str]) -> str:
        """Return who lied, the owner or the silo that complains. `names`: who holds the owner's shares, in order."""
        return liar(note, self.owner, self.holder, self.key, self.attempt, tensors, names)
