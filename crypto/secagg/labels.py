"""Labels: what a mask, pad or note is for. Two different purposes never share key stream.

Guarantees: `canonical()` differs if any field differs. A silo that was given another study, roster, model, round or
attempt, or that lacks the proof of a spoilt sum, derives other masks, so its upload makes the sum unusable instead of
leaking a difference (docs/design/sums.md, "Labels"). The silo's durable store makes sure that no label is ever used
twice.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from crypto.canonical import canonical


@dataclass(frozen=True)
class SumLabel:
    """One tensor of one attempt of one round, under one study, roster and model."""

    study: str
    """Digest of the study."""
    roster: str
    """`Roster.digest`."""
    model: str
    """Digest of the model that the roster starts from (`packages.model_digest`)."""
    round: int
    attempt: int
    tensor: str
    spoilt: int = 0
    """The last attempt of the round with a proven spoilt sum that this silo knows of; 0 for none (`spoilt`)."""

    def canonical(self) -> bytes:
        """Return the unambiguous bytes. Raises `SealError` for a round or attempt outside [0, 2^64)."""
        epoch = (self.spoilt,) if self.spoilt else ()
        return canonical("label", self.study, self.roster, self.model, self.round, self.attempt, self.tensor, *epoch)

    @property
    def digest(self) -> str:
        """SHA-256 of `canonical()`, lowercase hex. A silo stores it so that it never uses the label again."""
        return hashlib.sha256(self.canonical()).hexdigest()
