"""Notes that are cut for who reads them: what the sender signed, and of the rest only some readers' slices.

Guarantees: a note's sender signs its head, which has the root of a hash tree over the slices or is signed together with
it. There is one slice for each reader. A slice comes with the hashes beside its way to the root (RFC 9162, section
2.1, has such trees; here every path has one length). So a reader that has the head needs none of the other slices, and
cannot be shown another slice than anybody else. Whoever relays a note cuts it without understanding it
(docs/design/sums.md, "Slices").
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from crypto.canonical import canonical
from crypto.hkdf import KEY_BYTES
from crypto.secagg.dealt.boxes import SEAL_BYTES
from crypto.secagg.layout import SHARE_BYTES
from crypto.secagg.words import WORD_BYTES

MAGIC: Final = b"fedward shares 3"
HASH_BYTES: Final = 32
MAX_SIGNATURE: Final = 72
"""Longest DER form of an ECDSA P-256 signature."""
_SECRETS: Final = 2
"""Secrets of a silo for each tensor, each of which is shared."""
SIGNATURE_BYTES: Final = 1 + MAX_SIGNATURE
"""Bytes of a signature in a head: its length (1), the signature (DER), zeros."""
MAGIC_BYTES: Final = 16
CIPHERTEXT_BYTES: Final = 1088
"""Bytes of an ML-KEM-768 ciphertext."""
_NOBODY: Final = bytes(HASH_BYTES)
"""The leaf where no reader is: the tree's breadth is a power of two."""


@dataclass(frozen=True)
class SliceForm:
    """Where the slices of a note lie, and whose they are."""

    readers: tuple[str, ...]
    """In the roster's order."""
    head: int
    """Bytes before the first slice, signature included."""
    slice: int
    """Bytes of a slice."""
    rest: int = 0
    """Bytes behind the last slice, which nobody reads who reads slices."""

    @property
    def note(self) -> int:
        """Bytes of a whole note."""
        return self.head + self.slice * len(self.readers) + self.rest

    @property
    def depth(self) -> int:
        """How many hashes a slice's path has."""
        return (len(self.readers) - 1).bit_length() if self.readers else 0

    def cut(self, about: Collection[str]) -> int:
        """Bytes of a note that is cut for these silos. Who is no reader has no slice."""
        return self.head + (self.slice + HASH_BYTES * self.depth) * len(self.among(about))

    def among(self, about: Collection[str]) -> tuple[str, ...]:
        """Return which of these silos have a slice, in the roster's order."""
        return tuple(name for name in self.readers if name in about)


def letter_form(readers: Sequence[str]) -> SliceForm:
    """Return the form of a greeting or call: magic, signature, and a ciphertext for each reader."""
    return SliceForm(tuple(readers), MAGIC_BYTES + SIGNATURE_BYTES, CIPHERTEXT_BYTES)


@dataclass(frozen=True)
class Layout:
    """Where the parts of a shares note lie. It follows from the study and the roster."""

    tensors: tuple[str, ...]
    """Sorted, each once."""
    holders: tuple[str, ...]
    """Who holds shares, in the roster's order."""

    @classmethod
    def of(cls, tensors: Iterable[str], holders: Sequence[str]) -> Layout:
        """Return the layout of a note of these tensors, which may be in any order."""
        return cls(tuple(sorted(set(tensors))), tuple(holders))

    @cached_property
    def signed(self) -> int:
        """Bytes of the head that the owner signs: magic, hash of the keys, word, commitments, two hashes."""
        return len(MAGIC) + WORD_BYTES + HASH_BYTES * (3 + _SECRETS * len(self.tensors))

    @cached_property
    def head(self) -> int:
        """Bytes of the head with its signature: the signature's length (1), signature (DER), zeros."""
        return self.signed + SIGNATURE_BYTES

    @cached_property
    def sealed(self) -> int:
        """Bytes of a holder's sealed shares."""
        return _SECRETS * SHARE_BYTES * len(self.tensors) + SEAL_BYTES

    @cached_property
    def slice(self) -> int:
        """Bytes of a holder's slice."""
        return WORD_BYTES + HASH_BYTES * (1 + (_SECRETS + 1) * len(self.tensors)) + self.sealed

    @cached_property
    def deposit(self) -> int:
        """Bytes of a tensor's sealed deposit."""
        return KEY_BYTES * (len(self.holders) - 1) + SEAL_BYTES

    @cached_property
    def form(self) -> SliceForm:
        """Where the slices lie. Behind them are the deposits."""
        return SliceForm(self.holders, self.head, self.slice, self.deposit * len(self.tensors))


class Tree:
    """The hash tree over a note's slices."""

    def __init__(self, slices: Mapping[str, bytes]) -> None:
        """`slices`: by reader, in the roster's order."""
        leaves = [_leaf(name, one) for name, one in slices.items()] or [_NOBODY]
        leaves += [_NOBODY] * ((1 << (len(leaves) - 1).bit_length()) - len(leaves))
        self._levels = [leaves]
        while len(self._levels[-1]) > 1:
            below = self._levels[-1]
            self._levels.append([_node(below[at], below[at + 1]) for at in range(0, len(below), 2)])

    @property
    def root(self) -> bytes:
        """The hash that stands for all slices and for whose each is."""
        return self._levels[-1][0]

    def path(self, place: int) -> list[bytes]:
        """Return the hashes beside a slice's way to the root, from the leaf up. `place`: the reader's, from 0."""
        return [level[(place >> height) ^ 1] for height, level in enumerate(self._levels[:-1])]


def root_by(path: Sequence[bytes], place: int, reader: str, piece: bytes) -> bytes:
    """Return the root to which a slice and its path lead. `place`: the reader's among the readers, from 0."""
    node = _leaf(reader, piece)
    for height, beside in enumerate(path):
        node = _node(beside, node) if place >> height & 1 else _node(node, beside)
    return node


def closed(head: bytes, signature: bytes) -> bytes:
    """Return a note's head with its signature."""
    return head + len(signature).to_bytes(1) + signature.ljust(MAX_SIGNATURE, b"\0")


def signature_in(blob: bytes, begin: int) -> bytes:
    """Return the signature that a note's head has at `begin`; nothing if it is of another form."""
    length, rest = blob[begin], blob[begin + 1 : begin + SIGNATURE_BYTES]
    return rest[:length] if length <= MAX_SIGNATURE and not any(rest[length:]) else b""


class Cutting:
    """A whole note that is cut for one reader after another. The tree is computed once."""

    def __init__(self, note: bytes, form: SliceForm) -> None:
        """`note`: of the form's length."""
        self._note, self._form = note, form
        self._tree = Tree({name: self._slice(place) for place, name in enumerate(form.readers)})

    def cut(self, about: Collection[str]) -> bytes:
        """Return the head, and each slice of these silos with its path, in the roster's order."""
        pieces = [self._note[: self._form.head]]
        for place, name in enumerate(self._form.readers):
            if name in about:
                pieces += [self._slice(place), *self._tree.path(place)]
        return b"".join(pieces)

    def _slice(self, place: int) -> bytes:
        begin = self._form.head + self._form.slice * place
        return self._note[begin : begin + self._form.slice]


def _leaf(reader: str, piece: bytes) -> bytes:
    return hashlib.sha256(b"\0" + canonical("slice", reader, piece)).digest()


def _node(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\1" + left + right).digest()
