"""The public part of a shares note, and who lied where a silo complains about one. It needs no secret.

The holders are those of the owner's shares (`circle`): the whole roster, or the owner's neighbours and the owner.

Guarantees: a note's owner signs the note's head, which stands for all that follows it (`slices`): for every holder, a
commitment to the key under which it sealed that holder's shares, and commitments to the shares. So a holder whose
shares are wrong can publish that one key, and everybody sees who lied: the owner, if the key is the committed one and
does not open shares that fit; else the holder. The key is derived for this note alone, and tells nothing but the
holder's shares of a silo that has dealt wrongly (docs/design/sums.md, "Complaints").
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, Self

from crypto.canonical import canonical
from crypto.errors import RecoveryRefused, SealError
from crypto.secagg.dealt.boxes import open_under
from crypto.secagg.dealt.slices import HASH_BYTES, MAGIC, Layout, Tree, closed, root_by, signature_in
from crypto.secagg.layout import SHARE_BYTES
from crypto.secagg.survivors import AttemptRef
from crypto.secagg.words import WORD_BYTES, Word

Part = Literal["own", "key"]
"""A silo's two secrets for a tensor: the key of its own mask (revealed if the silo survives) and its attempt key."""
Spot = tuple[str, Part]
"""Tensor and part. They say which of one silo's secrets of an attempt is meant."""

PARTS: Final[tuple[Part, ...]] = ("own", "key")


@dataclass(frozen=True)
class Slice:
    """What a shares note has for one holder. Nothing of it is secret."""

    word: Word
    """The last word that the owner has heard of the holder, or the owner's own in its own slice."""
    note_key: bytes
    """The commitment to the key under which the holder's shares are sealed."""
    commitments: Mapping[Spot, bytes]
    """To each of the holder's shares."""
    pairs: Mapping[str, bytes]
    """By tensor: the commitment to the owner's pair seed with the holder. Zeros in the owner's own slice."""
    sealed: bytes = field(repr=False)
    """The holder's shares, sealed."""

    @classmethod
    def parse(cls, piece: bytes, layout: Layout) -> Self:
        """Cut a slice. `piece` has the layout's length."""
        pieces, spots = Pieces(piece, 0), spots_of(layout)
        return cls(
            word=Word.from_bytes(pieces.take(WORD_BYTES, 1)[0]),
            note_key=pieces.take(HASH_BYTES, 1)[0],
            commitments=dict(zip(spots, pieces.take(HASH_BYTES, len(spots)), strict=True)),
            pairs=dict(zip(layout.tensors, pieces.take(HASH_BYTES, len(layout.tensors)), strict=True)),
            sealed=pieces.take(layout.sealed, 1)[0],
        )

    def to_bytes(self) -> bytes:
        """The inverse of `parse`."""
        committed = [*self.commitments.values(), *self.pairs.values()]
        return b"".join([self.word.to_bytes(), self.note_key, *committed, self.sealed])


@dataclass(frozen=True)
class Published:
    """What everybody may read in a shares note. Nothing of it is secret."""

    owner: str
    attempt: AttemptRef
    keys: bytes
    """Hash of the roster's keys as the owner holds them (`commit_keys`)."""
    word: Word
    """The owner's own."""
    secrets: Mapping[Spot, bytes]
    """Commitments to the owner's secrets."""
    slices: Mapping[str, Slice]
    """By holder: all of a whole note, and else those for which it was cut."""
    deposits: Mapping[str, bytes]
    """By tensor: the pair seeds with all neighbours in the roster's order, sealed under the attempt key. A whole note
    alone has them."""
    head: bytes
    """What the owner has signed."""
    signature: bytes
    """Over `to_sign`."""

    @classmethod
    def parse(  # noqa: PLR0917  # a note, and what it is a note of
        cls,
        blob: bytes,
        owner: str,
        attempt: AttemptRef,
        tensors: Iterable[str],
        names: Sequence[str],
        about: Collection[str] | None = None,
    ) -> Self:
        """Read a note whose holders have these names, in the roster's order: whole, or as it was cut for `about`.

        Raises `RecoveryRefused` if it is malformed, or if what follows the head is not what the head stands for.
        """
        layout = Layout.of(tensors, names)
        whole = about is None
        form = layout.form
        among = layout.holders if about is None else form.among(about)
        if len(blob) != (form.note if about is None else form.cut(about)) or not blob.startswith(MAGIC):
            raise _malformed(owner)
        spots = spots_of(layout)
        head = Pieces(blob, len(MAGIC))
        (keys,), (word,) = head.take(HASH_BYTES, 1), head.take(WORD_BYTES, 1)
        secrets = dict(zip(spots, head.take(HASH_BYTES, len(spots)), strict=True))
        deposits_hash, root = head.take(HASH_BYTES, 2)
        rest = Pieces(blob, layout.head)
        cut: dict[str, bytes] = {}
        for name in among:
            (cut[name],) = rest.take(layout.slice, 1)
            path = [] if whole else rest.take(HASH_BYTES, form.depth)
            if not whole and root_by(path, layout.holders.index(name), name, cut[name]) != root:
                raise unsigned(owner)
        deposits = dict(zip(layout.tensors, rest.take(layout.deposit, len(layout.tensors)), strict=True))
        if whole and (Tree(cut).root != root or _hash_of(deposits) != deposits_hash):
            raise unsigned(owner)
        return cls(
            owner=owner,
            attempt=attempt,
            keys=keys,
            word=Word.from_bytes(word),
            secrets=secrets,
            slices={name: Slice.parse(piece, layout) for name, piece in cut.items()},
            deposits=deposits if whole else {},
            head=blob[: layout.signed],
            signature=signature_in(blob, layout.signed),
        )

    def opened(self, holder: str, key: bytes) -> dict[Spot, bytes]:
        """Return a holder's shares under the key of its note. Raises `RecoveryRefused`, which names the owner."""
        bound_ = bound("shares", self.attempt, self.owner, holder)
        try:
            plain = open_under(key, self.slices[holder].sealed, bound_, "shares note")
        except SealError:
            msg = f"{self.owner!r} sealed its shares for this silo wrongly; begin a new attempt without {self.owner!r}"
            raise RecoveryRefused(msg, self.owner, key) from None
        shares = dict(zip(self.secrets, Pieces(plain, 0).take(SHARE_BYTES, len(self.secrets)), strict=True))
        committed = self.slices[holder].commitments
        if any(
            committed[spot] != commit(self.attempt, self.owner, spot, holder, share) for spot, share in shares.items()
        ):
            msg = (
                f"{self.owner!r} dealt this silo shares that it did not commit to; begin a new attempt without"
                f" {self.owner!r}"
            )
            raise RecoveryRefused(msg, self.owner, key)
        return shares

    def commits_to(self, holder: str, key: bytes) -> bool:
        """Whether the owner has committed to this key for the holder's note. It has to none for who is no holder."""
        committed = self.slices[holder].note_key if holder in self.slices else b""
        return hmac.compare_digest(committed, commit_note_key(self.attempt, self.owner, holder, key))

    def to_sign(self, threshold: int) -> bytes:
        """Return what the note's owner has to have signed. `threshold`: how many shares give a secret."""
        tensors = (tensor for tensor, _ in self.secrets)
        return to_sign(self.attempt, self.owner, tensors, threshold, self.head)


def assemble(  # noqa: PLR0917  # the parts of a note, in their order
    keys: bytes,
    word: Word,
    secrets: Iterable[bytes],
    slices: Mapping[str, bytes],
    deposits: Mapping[str, bytes],
    sign: Callable[[bytes], bytes],
) -> bytes:
    """Put a note together. `slices`: by holder, in the roster's order. `sign` gives the signature of a head."""
    ordered = {tensor: deposits[tensor] for tensor in sorted(deposits)}
    head = b"".join([MAGIC, keys, word.to_bytes(), *secrets, _hash_of(ordered), Tree(slices).root])
    return b"".join([closed(head, sign(head)), *slices.values(), *ordered.values()])


def to_sign(attempt: AttemptRef, owner: str, tensors: Iterable[str], threshold: int, head: bytes) -> bytes:
    """Return what a note's owner signs: the note's head, and what it is a note of."""
    return canonical("shares note", attempt.canonical(), owner, threshold, head, *sorted(set(tensors)))


def signed(  # noqa: PLR0917  # a note, and what it is a note of
    blob: bytes, owner: str, attempt: AttemptRef, tensors: Sequence[str], names: Sequence[str], threshold: int
) -> tuple[bytes, bytes]:
    """Return what the owner of this note has to have signed, and its signature.

    `names`: the holders', in order. `threshold`: how many shares give a secret.

    Whoever relays notes checks it, so that no reader has to say of another what only the two of them have seen. Raises
    `RecoveryRefused` if the note is malformed.
    """
    note = Published.parse(blob, owner, attempt, tensors, names)
    return note.to_sign(threshold), note.signature


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


def spots_of(layout: Layout) -> list[Spot]:
    """Return all secrets of a note's owner, in the note's order."""
    return [(tensor, part) for tensor in layout.tensors for part in PARTS]


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


def _hash_of(deposits: Mapping[str, bytes]) -> bytes:
    return hashlib.sha256(canonical("deposits", *deposits.values())).digest()


def unsigned(owner: str) -> RecoveryRefused:
    """Return the refusal of a note that is not as its owner has signed it."""
    msg = f"{owner!r} did not sign its shares note for this attempt; have the note sent again"
    return RecoveryRefused(msg)


def _malformed(owner: str) -> RecoveryRefused:
    msg = f"the shares note of {owner!r} is cut or of another version; have it sent again, then begin a new attempt"
    return RecoveryRefused(msg)
