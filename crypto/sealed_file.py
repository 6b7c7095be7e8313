"""A long content on this machine's disk, sealed piece by piece.

Guarantees: AES-256-GCM (NIST SP 800-38D) under a key of its own, with a fresh random nonce for each piece. Each piece
is bound to the content's name, to its place, and to whether it is the last, so pieces that were changed, left out, put
in another order or taken from another content give `SealError`. The caller keeps the key sealed (`pki.at_rest`).
"""

from __future__ import annotations

from collections.abc import Iterator

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from crypto.canonical import canonical
from crypto.entropy import Entropy
from crypto.errors import SealError

KEY_BYTES = 32
_NONCE, _TAG = 12, 16
_PIECE = 16 << 20


def seal(key: bytes, name: str, content: bytes, entropy: Entropy, *, piece: int = _PIECE) -> Iterator[bytes]:
    """Yield the sealed pieces of a content: nonce (12 bytes), ciphertext, tag (16)."""
    cipher, view = AESGCM(key), memoryview(content)
    count = max(1, -(-len(content) // piece))
    for place in range(count):
        nonce = entropy.bytes(_NONCE)
        part = view[place * piece : (place + 1) * piece]
        yield nonce + cipher.encrypt(nonce, bytes(part), _bound(name, place, last=place == count - 1))


def open_sealed(key: bytes, name: str, sealed: bytes, *, piece: int = _PIECE) -> bytes:
    """The inverse of `seal`, for all pieces after one another. Raises `SealError`."""
    cipher, view, whole = AESGCM(key), memoryview(sealed), piece + _NONCE + _TAG
    count = max(1, -(-len(sealed) // whole))
    opened = []
    try:
        for place in range(count):
            part = view[place * whole : (place + 1) * whole]
            bound = _bound(name, place, last=place == count - 1)
            opened.append(cipher.decrypt(bytes(part[:_NONCE]), bytes(part[_NONCE:]), bound))
    except (InvalidTag, ValueError):
        msg = f"{name} was sealed by another key, or was changed since"
        raise SealError(msg) from None
    return b"".join(opened)


def _bound(name: str, place: int, *, last: bool) -> bytes:
    return canonical("sealed file", name, place, last)
