"""How a party, a study, a data set or an institution is called: by one label of a host name (RFC 1123, section 2.1)."""

from __future__ import annotations

import re
from typing import Final

PATTERN: Final = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
"""1 to 63 lowercase letters, digits and inner hyphens; for whole texts, so it has no anchors."""
_NAME: Final = re.compile(PATTERN)


def is_name(text: str) -> bool:
    """Whether this can be a name."""
    return _NAME.fullmatch(text) is not None
