"""What silos sign about the model that they hold after a round, and about a note that does not give it.

Guarantees: a silo that was away adopts a model only if t + 1 other silos of the study have signed its content's keyed
digest, so one honest silo at least has made this model of opened sums, or has adopted it under the same rule
(docs/design/sums.md, "A model for a silo that was away"). The digest is keyed (`packages.content_digest`), so whoever
carries the signatures cannot test guesses of the model with them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from crypto.canonical import canonical
from crypto.pki.certificates import Trust
from crypto.secagg.survivors import signers


@dataclass(frozen=True)
class Holding:
    """What a silo signs when it has finished a round: it holds a model of this content after it."""

    study: str
    """Digest of the study."""
    round: int
    content: str
    """Keyed digest of the content (`packages.content_digest`)."""

    def to_sign(self) -> bytes:
        """Return the bytes that a silo signs. Raises `SealError` for a round outside [0, 2^64)."""
        return canonical("holding", self.study, self.round, self.content)

    def signed_by(
        self, silos: Collection[str], certificates: Mapping[str, bytes], signatures: Mapping[str, bytes], trust: Trust
    ) -> tuple[str, ...]:
        """Return those of `silos` that signed exactly this, sorted.

        `certificates` maps names to PEM, `signatures` names to DER. Signatures of others, over other bytes, and by
        certificates that do not count now, are ignored.
        """
        return signers(silos, self.to_sign(), certificates, signatures, trust)


@dataclass(frozen=True)
class FalseNote:
    """What a silo signs that holds the model of a round, and was shown a note of a peer that does not give this model.

    The peer has signed the note's digest with its upload, so t + 1 such statements show which note was false, and whose
    it was.
    """

    study: str
    round: int
    """The round and the attempt in which the note was shared."""
    attempt: int
    sharer: str
    sha256: str
    """The note's digest, as in the header that its silo signed (`protos.chunks`)."""

    def to_sign(self) -> bytes:
        """Return the bytes that a silo signs. Raises `SealError` for a round or attempt outside [0, 2^64)."""
        return canonical("false note", self.study, self.round, self.attempt, self.sharer, self.sha256)
