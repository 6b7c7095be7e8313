"""The statement of a silo that opened a sum, refused it, and found that the coordinator had added it rightly.

Guarantees: statements of t + 1 silos of the list over the same bytes are the proof that one of them who is honest has
refused the sum. It counts as opened for ever, because whoever spoilt it may read it. The proof ends an epoch of its
round: lists that were signed before bind nobody any more, and nothing that was charged before is ever sent again
(docs/design/sums.md, "Spoilt sums"). The silo's durable store makes sure that a silo states only what it has refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from crypto.canonical import canonical
from crypto.pki.certificates import Trust
from crypto.secagg.survivors import signers


@dataclass(frozen=True)
class SpoiltStatement:
    """What a silo states: it refused this sum, whose bytes are the total of the uploads that these silos signed."""

    study: str
    """Digest of the study."""
    round: int
    attempt: int
    tensor: str
    names: tuple[str, ...]
    """The survivor list of the sum, sorted."""
    sum: str
    """Digest of the sum's list of chunks, lowercase hex (`protos.chunks`)."""
    culprit: str = ""
    """The silo whose own signed notes show the fault; empty if no signed evidence shows one."""

    def to_sign(self) -> bytes:
        """Return the bytes that a silo signs. Raises `SealError` for a round or attempt outside [0, 2^64)."""
        return canonical(
            "spoilt", self.study, self.round, self.attempt, self.tensor, self.sum, self.culprit, *self.names
        )

    def signed_by(
        self, certificates: Mapping[str, bytes], signatures: Mapping[str, bytes], trust: Trust
    ) -> tuple[str, ...]:
        """Return the listed silos that signed exactly this, sorted.

        `certificates` maps names to PEM, `signatures` names to DER. Signatures of others, and over other bytes, are
        ignored.
        """
        return signers(self.names, self.to_sign(), certificates, signatures, trust)


def needed(colluders: int) -> int:
    """Return how many statements are a proof: one more than may lie."""
    return colluders + 1
