"""How a SHA-256 is written wherever it is a text: 64 lowercase hex digits."""

from __future__ import annotations

import re
from typing import Final

_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


def is_sha256(text: object) -> bool:
    """Whether this is a text that can be a SHA-256."""
    return isinstance(text, str) and _DIGEST.fullmatch(text) is not None


LEAST_DIGITS: Final = 12
"""A study is called by its whole name, or by so many digits of its digest at least: nobody hits another by chance."""


def means(wanted: str, name: str, digest: str) -> bool:
    """Whether somebody who writes `wanted` may mean the study with this name and digest."""
    return wanted == name or (len(wanted) >= LEAST_DIGITS and digest.startswith(wanted))
