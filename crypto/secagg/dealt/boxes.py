"""Sealed boxes: AES-256-GCM under a key that is derived for one purpose (NIST SP 800-38D)."""

from __future__ import annotations

from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from crypto.entropy import Entropy
from crypto.errors import SealError

_NONCE = 12
_TAG = 16
SEAL_BYTES: Final = _NONCE + _TAG
"""Bytes that sealing adds to a plain text."""


def seal_under(key: bytes, plain: bytes, bound: bytes, entropy: Entropy) -> bytes:
    """Seal with AES-256-GCM, with `bound` as associated data.

    Returns nonce (12), ciphertext, tag (16); this is `SEAL_BYTES` longer than the plain text.
    """
    nonce = entropy.bytes(_NONCE)
    return nonce + AESGCM(key).encrypt(nonce, plain, bound)


def open_under(key: bytes, blob: bytes, bound: bytes, what: str) -> bytes:
    """The inverse of `seal_under`. Raises `SealError`, whose message names the blob by `what`."""
    try:
        return AESGCM(key).decrypt(blob[:_NONCE], blob[_NONCE:], bound)
    except (InvalidTag, ValueError):
        msg = f"the {what} is not authentic for this roster and purpose; have it sent again, then begin a new attempt"
        raise SealError(msg) from None
