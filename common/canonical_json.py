"""One form of JSON for everything that is hashed or signed: sorted keys, no spaces, shortest floats, no infinities."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

_DIGITS: Final = frozenset("0123456789abcdef")


def canonical_json(content: Mapping[str, object]) -> str:
    """Return the text of a content, which is the same everywhere. Raises `ValueError` for infinities and NaN."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)


def lower_hex(text: object, length: int) -> bool:
    """Whether this is a text of exactly `length` lowercase hex digits."""
    return isinstance(text, str) and len(text) == length and _DIGITS.issuperset(text)
