"""The statement with which silos close a sum that was never opened, so that its round goes on with others.

Guarantees: T silos that signed a `VoidPromise` have revealed nothing for a tensor in the attempts up to `through`, and
never will. T silos are needed to open a sum, and 2T > N + t, so a sum of these attempts was not opened and never will
be. (On a circle fewer are needed, but more than are left: `circle`.) A list that was signed there binds nobody any more
(docs/design/sums.md, "Voided lists"). The silo's durable store makes sure that who has revealed does not sign, and that
who has signed does not reveal.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from crypto.canonical import canonical
from crypto.pki.certificates import Trust
from crypto.secagg.survivors import signers


@dataclass(frozen=True)
class VoidPromise:
    """What a silo promises: it has revealed nothing for this tensor in the attempts up to `through`, and never will."""

    study: str
    """Digest of the study."""
    round: int
    tensor: str
    through: int
    """The last attempt at the round that is closed."""
    after: int = 0
    """The last attempt with a proven spoilt sum (`spoilt`): the promise is about the attempts after it."""

    def to_sign(self) -> bytes:
        """Return the bytes that a silo signs. Raises `SealError` for a round or attempt outside [0, 2^64)."""
        epoch = (self.after,) if self.after else ()
        return canonical("void", self.study, self.round, self.tensor, self.through, *epoch)

    def signed_by(
        self, silos: Collection[str], certificates: Mapping[str, bytes], signatures: Mapping[str, bytes], trust: Trust
    ) -> tuple[str, ...]:
        """Return the silos of the study (`silos`) that signed exactly this, sorted.

        `certificates` maps names to PEM, `signatures` names to DER. Signatures of others, and over other bytes, are
        ignored.
        """
        return signers(silos, self.to_sign(), certificates, signatures, trust)
