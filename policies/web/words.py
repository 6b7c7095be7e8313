"""How the pages of a console write times, sizes and places on an axis."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

MEANINGS: Final[Mapping[str, str]] = {
    "Not Found": "There is no such page.",
    "Method Not Allowed": "This address takes no such call.",
}
"""What a page says for the words of the web framework."""
_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
_THOUSAND: Final = 1000.0


def time(at: float) -> str:
    """A time, in seconds since the epoch."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S} UTC" if at else "never"


def span(seconds: float) -> str:
    """How long something lasts, in few words."""
    if 0 < seconds < 1:
        return "under 1 s"
    if seconds < 2 * _MINUTE:
        return f"{seconds:.0f} s"
    if seconds < 2 * _HOUR:
        return f"{seconds / _MINUTE:.0f} min"
    return f"{seconds / _HOUR:.0f} h" if seconds < 2 * _DAY else f"{seconds / _DAY:.0f} days"


def size(count: float) -> str:
    """A number of bytes."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < _THOUSAND:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= _THOUSAND
    return f"{count:.1f} TB"


def along(value: float, low: float, high: float) -> str:
    """How far along an axis a value lies, in per cent; what lies beyond stands at the end."""
    share = (value - low) / ((high - low) or 1.0)
    return f"{100.0 * min(max(share, 0.0), 1.0):.2f}"


FILTERS: Final[Mapping[str, Callable[..., Any]]] = {"time": time, "span": span, "size": size, "along": along}
