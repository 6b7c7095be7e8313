"""The masks that cover one silo's upload, and those that must be taken off the survivors' sum. Silos only.

Guarantees: each upload is covered by key streams that the coordinator cannot know, even together with all participants
whose masks lie on it but one. The streams that survivors share cancel in their sum, bit for bit. `Unmasking` takes off
the rest: the survivors' own streams, their streams towards those who dropped out, and, in the integer rings, one group
pad for each survivor, which hides even the sum (docs/design/sums.md, "Masks"; Bonawitz et al., CCS 2017). The silo's
durable store makes sure that no label is used twice, since two uploads under one label would leak their difference.
`unmasking` makes sure that the secrets of an `Unmasking` are those that were committed to.

There is one key stream per (secret, kind, label), drawn frame by frame in order. Only c0 of a ciphertext is covered,
uniformly mod the prime, because nobody opens a ciphertext without c0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from crypto.canonical import canonical
from crypto.errors import SealError
from crypto.hkdf import KEY_BYTES
from crypto.rings import ckks_public
from crypto.rings.rings import IntegerRing, Kind, Ring
from crypto.secagg.circle import Circle
from crypto.secagg.labels import SumLabel
from crypto.stream import KeyStream

Term = tuple[bool, KeyStream]
"""True if a stream is added, False if it is subtracted; and the stream."""


@dataclass(frozen=True)
class Masks:
    """The seeds of the masks on one silo's upload of one tensor in one attempt. `repr` prints only its kind."""

    me: str
    own: bytes = field(repr=False)
    """32 bytes that only this silo knows. The roster holds shares of them."""
    pairs: Mapping[str, bytes] = field(repr=False)
    """The name of each other participant that is a neighbour -> the 32 bytes that both silos derive."""
    group: bytes = field(repr=False)
    """32 bytes that every silo of the roster knows."""

    def __post_init__(self) -> None:
        if self.me in self.pairs or not self.pairs or not _are_secrets(self.own, self.group, *self.pairs.values()):
            msg = (
                "masks need seeds of 32 bytes: one with every participant that is a neighbour, the silo's own and the"
                " group's; begin a new attempt"
            )
            raise SealError(msg)

    def terms(self, label: SumLabel, kind: Kind) -> list[Term]:
        """Return the streams that are added to the plain frames."""
        terms = [(self.me < other, _pair_stream(seed, label, kind)) for other, seed in self.pairs.items()]
        terms.append((True, _own_stream(self.own, label, kind)))
        if kind != "ckks":
            terms.append((True, _group_stream(self.group, label, kind, self.me)))
        return terms


@dataclass(frozen=True)
class Unmasking:
    """The seeds of the masks on the sum of the survivors' uploads. `repr` prints only its kind."""

    own: Mapping[str, bytes] = field(repr=False)
    """The own seed of every survivor."""
    dropped: Mapping[str, Mapping[str, bytes]] = field(repr=False)
    """The pair seeds of every participant who is no survivor, at least those with all survivors that are neighbours."""
    group: bytes = field(repr=False)
    circle: Circle | None = field(default=None, repr=False)
    """Who is whose neighbour; None if everybody is everybody's."""

    def __post_init__(self) -> None:
        names = set(self.own)
        seeds = [seed for pairs in self.dropped.values() for seed in pairs.values()]
        if (
            len(names) < 2  # noqa: PLR2004  # the sum of a single silo would show that silo's values
            or names & set(self.dropped)
            or any(set(self._near(gone)) - set(pairs) for gone, pairs in self.dropped.items())
            or not _are_secrets(self.group, *self.own.values(), *seeds)
        ):
            msg = (
                "a sum opens only with seeds of 32 bytes: the own seeds of two or more survivors, and the seeds between"
                " every silo that dropped out and all survivors that are its neighbours; begin a new attempt"
            )
            raise SealError(msg)

    def terms(self, label: SumLabel, kind: Kind) -> list[Term]:
        """Return the streams that are added to the sum's frames to make them plain."""
        terms = [(False, _own_stream(seed, label, kind)) for seed in self.own.values()]
        # If the survivor comes first by name, it added the common stream, which is now subtracted.
        terms += [
            (gone < survivor, _pair_stream(seeds[survivor], label, kind))
            for gone, seeds in self.dropped.items()
            for survivor in self._near(gone)
        ]
        if kind != "ckks":
            terms += [(False, _group_stream(self.group, label, kind, survivor)) for survivor in self.own]
        return terms

    def _near(self, gone: str) -> list[str]:
        """Return the survivors whose masks with a silo that dropped out are on the sum."""
        near = None if self.circle is None else set(self.circle.neighbours(gone))
        return [name for name in self.own if near is None or name in near]


def apply(ring: Ring, words: NDArray[np.unsignedinteger], terms: Sequence[Term]) -> None:
    """Add every term to one frame's words, in place. Call this for the frames of a vector in order, once for each."""
    if isinstance(ring, IntegerRing):
        drawn = np.empty(words.size, dtype=ring.word)
        for adds, stream in terms:
            stream.fill(drawn)
            (np.add if adds else np.subtract)(words, drawn, out=words)
        return
    c0 = words[: ckks_public.DEGREE]
    prime = np.uint64(ckks_public.PRIME)
    for adds, stream in terms:
        mask = stream.uniform(ckks_public.PRIME, c0.size)
        if adds:
            ckks_public.add_residues(c0, mask)
        else:
            # A negative difference wraps around to a huge word. With the prime added it is right, and smaller.
            np.subtract(c0, mask, out=c0)
            np.minimum(c0, c0 + prime, out=c0)


def _are_secrets(*secrets: bytes) -> bool:
    return all(len(secret) == KEY_BYTES for secret in secrets)


def _pair_stream(seed: bytes, label: SumLabel, kind: Kind) -> KeyStream:
    return KeyStream(seed, canonical("pair mask", kind, label.canonical()))


def _own_stream(seed: bytes, label: SumLabel, kind: Kind) -> KeyStream:
    return KeyStream(seed, canonical("self mask", kind, label.canonical()))


def _group_stream(group: bytes, label: SumLabel, kind: Kind, silo: str) -> KeyStream:
    return KeyStream(group, canonical("group pad", kind, silo, label.canonical()))
