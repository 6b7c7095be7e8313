"""One unambiguous byte form for everything that is signed, hashed or used as a key-derivation label.

Guarantees: two different sequences of parts never have the same bytes. Every part is preceded by its type and its
length, and the whole by a domain that says what the bytes are for. The callers choose a separate domain for each
purpose.
"""

from __future__ import annotations

import struct

from crypto.errors import SealError

_VERSION = b"fedward/1"


def canonical(domain: str, *parts: bytes | str | int) -> bytes:
    """Encode parts under a domain. Each part is a type byte, a 64-bit little-endian length and the content.

    Integers are 64-bit little-endian and must lie in [0, 2^64). Raises `SealError` for any other integer.
    """
    pieces = [_VERSION, _part(domain)]
    pieces += [_part(part) for part in parts]
    return b"".join(pieces)


def _part(part: bytes | str | int) -> bytes:
    if isinstance(part, int):
        if not 0 <= part < 1 << 64:
            msg = "an integer of a label must lie in [0, 2^64); number rounds and attempts from 0"
            raise SealError(msg)
        kind, content = b"i", struct.pack("<Q", part)
    elif isinstance(part, str):
        kind, content = b"s", part.encode()
    else:
        kind, content = b"b", bytes(part)
    return kind + struct.pack("<Q", len(content)) + content
