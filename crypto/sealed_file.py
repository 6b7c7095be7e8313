"""A long content on this machine's disk, sealed piece by piece.

Guarantees: AES-256-GCM (NIST SP 800-38D) under a key of its own, with a fresh random nonce for each piece. Each piece
is bound to the content's name, to its place, and to whether it is the last, so pieces that were changed, left out, put
in another order or taken from another content give `SealError`. The caller keeps the key sealed (`pki.at_rest`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import BinaryIO

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from crypto.canonical import canonical
from crypto.entropy import Entropy
from crypto.errors import SealError

KEY_BYTES = 32
_NONCE, _TAG = 12, 16
_PIECE = 16 << 20


def seal(key: bytes, name: str, content: Iterable[bytes], entropy: Entropy, *, piece: int = _PIECE) -> Iterator[bytes]:
    """Yield the sealed pieces of a content, which comes in parts of any size: nonce (12 bytes), ciphertext, tag (16).

    No more of it is held than two pieces and one part.
    """
    cipher, place = AESGCM(key), 0

    def sealed(part: bytes, *, last: bool) -> bytes:
        nonce = entropy.bytes(_NONCE)
        return nonce + cipher.encrypt(nonce, part, _bound(name, place, last=last))

    waiting = bytearray()
    for part in content:
        waiting += part
        while len(waiting) > piece:  # what is left is the last piece, unless more comes
            yield sealed(bytes(waiting[:piece]), last=False)
            del waiting[:piece]
            place += 1
    yield sealed(bytes(waiting), last=True)


def opened(key: bytes, name: str, sealed: BinaryIO, *, piece: int = _PIECE) -> Iterator[bytes]:
    """The inverse of `seal`: yield the content piece by piece. Raises `SealError`, OSError.

    Whoever uses a piece before the end must drop what came of it if a later one raises.
    """
    cipher, whole, place = AESGCM(key), piece + _NONCE + _TAG, 0
    current = sealed.read(whole)
    while True:
        following = sealed.read(whole)
        try:
            bound = _bound(name, place, last=not following)
            content = cipher.decrypt(current[:_NONCE], current[_NONCE:], bound)
        except (InvalidTag, ValueError):
            msg = f"{name} was sealed by another key, or was changed since"
            raise SealError(msg) from None
        yield content
        if not following:
            return
        current, place = following, place + 1


def _bound(name: str, place: int, *, last: bool) -> bytes:
    return canonical("sealed file", name, place, last)
