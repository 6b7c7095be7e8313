"""What a silo has read of another's shares note: its own slice at first, more where a sum cannot be opened without."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from crypto.errors import RecoveryRefused
from crypto.secagg.dealt.bundles import Spot
from crypto.secagg.survivors import AttemptRef
from crypto.secagg.words import Word


@dataclass(frozen=True)
class ShareBundle:
    """What this silo has read of one member's shares note. `repr` prints only its owner and kind."""

    owner: str
    attempt: AttemptRef
    digest: bytes = field(repr=False)
    """SHA-256 of what the owner has signed, the note's head without the signature."""
    holders: tuple[str, ...] = field(repr=False)
    """Who holds shares of the owner's secrets, in the roster's order."""
    shares: Mapping[Spot, bytes] = field(repr=False)
    """The shares that this silo holds; none if it is neither the owner nor the owner's neighbour."""
    commitments: Mapping[Spot, Mapping[str, bytes]] = field(repr=False)
    """Commitments by holder, each to that holder's share. The empty name has the commitment to the secret."""
    pairs: Mapping[str, Mapping[str, bytes]] = field(repr=False)
    """By tensor and neighbour: the commitment to the pair seed with that neighbour."""
    deposits: Mapping[str, bytes] = field(repr=False)
    """By tensor: the pair seeds with all neighbours in the roster's order, sealed under the attempt key. Nothing, until
    the whole note is read."""
    keys: bytes = field(default=b"", repr=False)
    """Hash of the roster's keys as the owner holds them."""
    words: Mapping[str, Word] = field(default_factory=dict, repr=False)
    """By silo: the owner's own word, and of the holders that were read about the last that the owner has heard."""

    @property
    def whole(self) -> bool:
        """Whether the whole note was read."""
        return bool(self.deposits)

    def joined(self, more: ShareBundle) -> ShareBundle:
        """Return what two readings of one note give together. Raises `RecoveryRefused` if they are of two notes."""
        if (self.owner, self.attempt, self.digest) != (more.owner, more.attempt, more.digest):
            msg = f"the coordinator shows two shares notes of {self.owner!r}; begin a new attempt"
            raise RecoveryRefused(msg)
        return replace(
            self,
            shares={**self.shares, **more.shares},
            commitments={spot: {**held, **more.commitments[spot]} for spot, held in self.commitments.items()},
            pairs={tensor: {**held, **more.pairs[tensor]} for tensor, held in self.pairs.items()},
            deposits=more.deposits or self.deposits,
            words={**self.words, **more.words},
        )
