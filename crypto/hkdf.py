"""Keys from keys, by HKDF (RFC 5869). It needs no numpy, so commands that only open a key start quickly."""

from __future__ import annotations

from typing import Final

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

KEY_BYTES: Final = 32


def derive(key: bytes, info: bytes, *, salt: bytes | None = None) -> bytes:
    """Derive 32 bytes by HKDF-SHA256 (RFC 5869)."""
    return HKDF(SHA256(), KEY_BYTES, salt, info).derive(key)
