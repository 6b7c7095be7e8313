"""How much a silo has said in a study, as it signs it: the memory that others have of a silo that is put back.

Guarantees: only the silo itself can sign a word, and its durable store raises the count before each word and before
everything else that binds it. So no two words of a silo have one count. A silo that is shown its own signature over a
count that it has yet to reach was put back from an older copy, whoever shows it. What others merely state of it,
without that signature, proves nothing (docs/design/sums.md, "Rolled back").
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Self

from crypto.canonical import canonical
from crypto.secagg.survivors import AttemptRef

MOST: Final = (1 << 53) - 1
"""Largest count: no silo says more. A larger one is that of no silo."""
_MAX_SIGNATURE: Final = 72
"""Longest DER form of an ECDSA P-256 signature."""
_HEAD: Final = struct.Struct("<QIIB")
WORD_BYTES: Final = _HEAD.size + _MAX_SIGNATURE
"""Bytes of a word in a note, whatever it says."""


@dataclass(frozen=True)
class Word:
    """What a silo says of itself in an attempt, with its signature (DER). Words are equal that say the same."""

    said: int
    """How often the silo has bound itself in the study so far, this word included."""
    round: int
    attempt: int
    signature: bytes = field(compare=False)

    @classmethod
    def of(cls, attempt: AttemptRef, silo: str, said: int, sign: Callable[[bytes], bytes]) -> Self:
        """Sign a count in an attempt. `sign` is the silo's own."""
        bare = cls(said, attempt.round, attempt.attempt, b"")
        return replace(bare, signature=sign(bare.to_sign(attempt.study, silo)))

    def to_sign(self, study: str, silo: str) -> bytes:
        """Return the bytes that the silo signs. Raises `SealError` for a number outside [0, 2^64)."""
        return canonical("said", study, silo, self.said, self.round, self.attempt)

    def to_bytes(self) -> bytes:
        """Return count (8), round (4), attempt (4), length of the signature (1), signature, zeros to `WORD_BYTES`."""
        head = _HEAD.pack(self.said, self.round, self.attempt, len(self.signature))
        return (head + self.signature).ljust(WORD_BYTES, b"\0")

    @classmethod
    def from_bytes(cls, blob: bytes) -> Self:
        """The inverse of `to_bytes`. Bytes that no silo made give a word that no silo has signed; nothing is raised."""
        said, number, attempt, length = _HEAD.unpack(blob[: _HEAD.size])
        return cls(said, number, attempt, blob[_HEAD.size :][:length]) if said <= MOST else cls(0, 0, 0, b"")

    def precedes(self, own: Word) -> bool:
        """Whether a silo that now says `own` was put back, if it has signed this other word before."""
        return self.said >= own.said and self != own


NOTHING: Final = Word(0, 0, 0, b"")
"""Stands in the place of the word of a silo of which none was heard."""


def higher(than: Mapping[str, Word], words: Mapping[str, Word]) -> dict[str, Word]:
    """Return the words with a higher count than those that are known of the same silos."""
    return {name: word for name, word in words.items() if word.said > than.get(name, NOTHING).said}
