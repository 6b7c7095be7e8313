"""The public part of a shares note, and who lied where a silo complains about one. It needs no secret.

The holders are those of the owner's shares (`circle`): the whole roster, or the owner's neighbours and the owner.

Guarantees: a note's owner signs, for every holder, a commitment to the key under which it sealed that holder's shares,
and commitments to the shares. So a holder whose shares are wrong can publish that one key, and everybody sees who
lied: the owner, if the key is the committed one and does not open shares that fit; else the holder. The key is derived
for this note alone, and tells nothing but the holder's shares of a silo that has dealt wrongly (docs/design/sums.md,
"Complaints").
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, Self

from crypto.canonical import canonical
from crypto.errors import RecoveryRefused, SealError
from crypto.secagg.dealt.boxes import SEAL_BYTES, open_under
from crypto.secagg.layout import SHARE_BYTES
from crypto.secagg.survivors import AttemptRef
from crypto.secagg.words import WORD_BYTES, Word
from crypto.stream import KEY_BYTES

Part = Literal["own", "key"]
"""A silo's two secrets for a tensor: the key of its own mask (revealed if the silo survives) and its attempt key."""
Spot = tuple[str, Part]
"""Tensor and part. They say which of one silo's secrets of an attempt is meant."""

PARTS: Final[tuple[Part, ...]] = ("own", "key")
MAGIC: Final = b"fedward shares 2"
MAX_SIGNATURE: Final = 72
"""Longest DER form of an ECDSA P-256 signature."""
_HASH = 32


def _sealed_bytes(tensors: int, holders: int) -> tuple[int, int]:
    """How many bytes a holder's sealed shares have, and a tensor's sealed deposit."""
    return len(PARTS) * SHARE_BYTES * tensors + SEAL_BYTES, KEY_BYTES * (holders - 1) + SEAL_BYTES


def body_bytes(tensors: int, holders: int) -> int:
    """Return how many bytes a note of so many tensors and holders has without its signature."""
    shares, deposit = _sealed_bytes(tensors, holders)
    end = len(MAGIC) + _HASH + (WORD_BYTES + _HASH + shares) * holders
    return end + tensors * (len(PARTS) * _HASH * (1 + holders) + _HASH * (holders - 1) + deposit)


@dataclass(frozen=True)
class Published:
    """What everybody reads in a shares note. Nothing of it is secret."""

    owner: str
    attempt: AttemptRef
    keys: bytes
    """Hash of the roster's keys as the owner holds them (`commit_keys`)."""
    words: Mapping[str, Word]
    """By holder: the owner's own word, and the last that the owner has heard of each other."""
    note_keys: Mapping[str, bytes]
    """By holder: the commitment to the key under which its shares are sealed."""
    commitments: Mapping[Spot, Mapping[str, bytes]]
    """Commitments by holder, each to that holder's share. The empty name has the commitment to the secret."""
    pairs: Mapping[str, Mapping[str, bytes]]
    """By tensor and neighbour: the commitment to the pair seed with that neighbour."""
    sealed: Mapping[str, bytes] = field(repr=False)
    """By holder: its shares, sealed."""
    deposits: Mapping[str, bytes] = field(repr=False)
    """By tensor: the pair seeds with all neighbours in the roster's order, sealed under the attempt key."""
    signed: int
    """How many bytes of the note are signed. The signature follows."""

    @classmethod
    def parse(cls, blob: bytes, owner: str, attempt: AttemptRef, tensors: Iterable[str], names: Sequence[str]) -> Self:
        """Cut a note whose holders have these names, in the roster's order.

        Raises `RecoveryRefused` if it is malformed.
        """
        ordered, others = sorted(set(tensors)), [name for name in names if name != owner]
        shares, deposit = _sealed_bytes(len(ordered), len(names))
        end = body_bytes(len(ordered), len(names))
        if not end < len(blob) <= end + MAX_SIGNATURE or not blob.startswith(MAGIC):
            msg = (
                f"the shares note of {owner!r} is cut or of another version; have it sent again, then begin a new"
                " attempt"
            )
            raise RecoveryRefused(msg)
        pieces = Pieces(blob, len(MAGIC))
        return cls(
            owner=owner,
            attempt=attempt,
            keys=pieces.take(_HASH, 1)[0],
            words=dict(zip(names, map(Word.from_bytes, pieces.take(WORD_BYTES, len(names))), strict=True)),
            note_keys=dict(zip(names, pieces.take(_HASH, len(names)), strict=True)),
            commitments={
                (tensor, part): dict(zip(("", *names), pieces.take(_HASH, 1 + len(names)), strict=True))
                for tensor in ordered
                for part in PARTS
            },
            pairs={tensor: dict(zip(others, pieces.take(_HASH, len(others)), strict=True)) for tensor in ordered},
            sealed=dict(zip(names, pieces.take(shares, len(names)), strict=True)),
            deposits=dict(zip(ordered, pieces.take(deposit, len(ordered)), strict=True)),
            signed=end,
        )

    def opened(self, holder: str, key: bytes) -> dict[Spot, bytes]:
        """Return a holder's shares under the key of its note. Raises `RecoveryRefused`, which names the owner."""
        bound_ = bound("shares", self.attempt, self.owner, holder)
        try:
            plain = open_under(key, self.sealed[holder], bound_, "shares note")
        except SealError:
            msg = f"{self.owner!r} sealed its shares for this silo wrongly; begin a new attempt without {self.owner!r}"
            raise RecoveryRefused(msg, self.owner, key) from None
        shares = dict(zip(self.commitments, Pieces(plain, 0).take(SHARE_BYTES, len(self.commitments)), strict=True))
        if any(
            self.commitments[spot][holder] != commit(self.attempt, self.owner, spot, holder, share)
            for spot, share in shares.items()
        ):
            msg = (
                f"{self.owner!r} dealt this silo shares that it did not commit to; begin a new attempt without"
                f" {self.owner!r}"
            )
            raise RecoveryRefused(msg, self.owner, key)
        return shares

    def commits_to(self, holder: str, key: bytes) -> bool:
        """Whether the owner has committed to this key for the holder's note. It has to none for who is no holder."""
        committed = self.note_keys.get(holder, b"")
        return hmac.compare_digest(committed, commit_note_key(self.attempt, self.owner, holder, key))


def to_sign(attempt: AttemptRef, owner: str, tensors: Iterable[str], threshold: int, body: bytes) -> bytes:
    """Return what a note's owner signs: the note without its signature, and what it is a note of."""
    return canonical("shares note", attempt.canonical(), owner, threshold, body, *sorted(set(tensors)))


def signed(  # noqa: PLR0917  # a note, and what it is a note of
    blob: bytes, owner: str, attempt: AttemptRef, tensors: Sequence[str], names: Sequence[str], threshold: int
) -> tuple[bytes, bytes]:
    """Return what the owner of this note has to have signed, and its signature.

    `names`: the holders', in order. `threshold`: how many shares give a secret.

    Whoever relays notes checks it, so that no reader has to say of another what only the two of them have seen. Raises
    `RecoveryRefused` if the note is malformed.
    """
    end = Published.parse(blob, owner, attempt, tensors, names).signed
    return to_sign(attempt, owner, tensors, threshold, blob[:end]), blob[end:]


def liar(  # noqa: PLR0917  # a note, and what it is a note of
    blob: bytes, owner: str, holder: str, key: bytes, attempt: AttemptRef, tensors: Iterable[str], names: Sequence[str]
) -> str:
    """Return who lied, the owner of a note that its owner has signed or the silo that complains about its shares in it.

    `names`: the holders', in order. Who holds none of the shares has no reason to complain.
    """
    try:
        published = Published.parse(blob, owner, attempt, tensors, names)
        if published.commits_to(holder, key):
            published.opened(holder, key)
    except RecoveryRefused:
        return owner
    return holder


class Pieces:
    """Cuts bytes of a checked length into pieces, in order."""

    def __init__(self, blob: bytes, begin: int) -> None:
        self._blob, self._at = blob, begin

    def take(self, size: int, count: int) -> list[bytes]:
        """Return the next pieces, all of one size."""
        begin, self._at = self._at, self._at + size * count
        return [self._blob[at : at + size] for at in range(begin, self._at, size)]


def bound(purpose: str, attempt: AttemptRef, owner: str, to: str) -> bytes:
    """Return what a sealed part of a note is bound to."""
    return canonical(purpose, attempt.canonical(), owner, to)


def commit(attempt: AttemptRef, owner: str, spot: Spot, holder: str, value: bytes) -> bytes:
    """Return the commitment to a share, or to a secret if the holder's name is empty."""
    return hashlib.sha256(canonical("commitment", attempt.canonical(), owner, *spot, holder, value)).digest()


def commit_pair(attempt: AttemptRef, tensor: str, seed: bytes) -> bytes:
    """Return the commitment to a pair seed, the same from both its owners."""
    return hashlib.sha256(canonical("pair commitment", attempt.canonical(), tensor, seed)).digest()


def commit_note_key(attempt: AttemptRef, owner: str, holder: str, key: bytes) -> bytes:
    """Return the commitment to the key under which a holder's shares are sealed."""
    return hashlib.sha256(canonical("note key", attempt.canonical(), owner, holder, key)).digest()


def commit_keys(attempt: AttemptRef, ckks: bytes, group: bytes, check: bytes) -> bytes:
    """Return the hash of a roster's keys, which silos that hold the same keys have in common."""
    return hashlib.sha256(canonical("roster keys", attempt.canonical(), ckks, group, check)).digest()
