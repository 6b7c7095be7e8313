"""One form of JSON for everything that is hashed or signed: sorted keys, no spaces, shortest floats, no infinities."""

from __future__ import annotations

import json
from collections.abc import Mapping


def canonical_json(content: Mapping[str, object]) -> str:
    """Return the text of a content, which is the same everywhere. Raises `ValueError` for infinities and NaN."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
