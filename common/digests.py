"""How a SHA-256 is written wherever it is a text: 64 lowercase hex digits."""

from __future__ import annotations

import re
from typing import Final

_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


def is_sha256(text: object) -> bool:
    """Whether this is a text that can be a SHA-256."""
    return isinstance(text, str) and _DIGEST.fullmatch(text) is not None
