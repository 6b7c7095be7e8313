"""Bounds of what a message holds, written beside each field as `Annotated[type, bound]`.

Guarantees: `fault` finds the first field of a frozen dataclass that breaks its bound. `tests/protos/test_bounds.py`
walks all messages and refuses a text, bytes or tuple field without a bound, so nobody can forget one. A text is short
and has no control characters: what one party writes is stored, logged and shown by others, whose messages have a limit
and whose terminals obey escape sequences.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from functools import cache
from typing import Annotated, Any, get_type_hints

from common.digests import is_sha256

MAX_NAME = 64
"""Most characters of a name: of a silo, a reason, a phase, a session."""
MAX_SENTENCE = 1000
"""Most characters of a text for people."""
MAX_SILOS = 256
_CUT = " [...]"
_CONTROL = re.compile(
    "[\x00-\x1f\x7f-\x9f"  # control characters, among them the one that begins an escape sequence
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # they change the direction of the text that follows
    "\u2028\u2029\ufeff"  # separators of lines and paragraphs, the byte order mark
    "\ud800-\udfff"  # halves of characters, which cannot be encoded
    "\U000e0000-\U000e007f]"  # invisible tags
)


@dataclass(frozen=True)
class Text:
    """A text of at most so many characters, none of which controls a terminal."""

    most: int

    def fault(self, value: object) -> str:
        """Return what is wrong with the value; empty if nothing is."""
        if not isinstance(value, str):
            return "is not a text"
        if len(value) > self.most:
            return f"has {len(value)} characters, above {self.most}"
        return "has control characters" if _CONTROL.search(value) else ""


@dataclass(frozen=True)
class Hex:
    """A SHA-256 in lowercase hex."""

    def fault(self, value: object) -> str:
        """Return what is wrong with the value; empty if nothing is."""
        return "" if is_sha256(value) else "is not a SHA-256 in lowercase hex"


@dataclass(frozen=True)
class Count:
    """The number of bytes of a blob, or of items of a tuple. Texts in a tuple are names."""

    least: int
    most: int

    def fault(self, value: object) -> str:
        """Return what is wrong with the value; empty if nothing is."""
        if not isinstance(value, bytes | tuple):
            return "is neither bytes nor a tuple"
        if self.least <= len(value) <= self.most:
            texts = (item for item in value if isinstance(item, str)) if isinstance(value, tuple) else ()
            return next((wrong for text in texts if (wrong := _NAME.fault(text))), "")
        if isinstance(value, tuple):
            few = len(value) < self.least
            return f"has {len(value)} items, {f'below {self.least}' if few else f'above {self.most}'}"
        if self.least == self.most:
            return f"is not {self.most} bytes"
        return f"is empty or above {self.most} bytes" if self.least else f"is above {self.most} bytes"


Bound = Text | Hex | Count
_NAME = Text(MAX_NAME)
_SENTENCE = Text(MAX_SENTENCE)

Name = Annotated[str, _NAME]
Sentence = Annotated[str, _SENTENCE]
Digest = Annotated[str, Hex()]
Pem = Annotated[bytes, Count(1, 16_384)]
SignatureBytes = Annotated[bytes, Count(1, 256)]
Names = Annotated[tuple[str, ...], Count(0, MAX_SILOS)]


@cache
def bounds_of(kind: type) -> dict[str, Bound]:
    """Return the bound of each field of a dataclass that has one."""
    hints = get_type_hints(kind, include_extras=True)
    return {
        field.name: bound
        for field in fields(kind)
        for bound in getattr(hints[field.name], "__metadata__", ())
        if isinstance(bound, Bound)
    }


def fault(message: Any) -> tuple[str, str] | None:
    """Return the first field of a dataclass that breaks its bound, with what is wrong; None if none does."""
    kind: Any = type(message)
    for name, bound in bounds_of(kind).items():
        if wrong := bound.fault(getattr(message, name)):
            return name, wrong
    return None


def sentence(text: str, most: int = MAX_SENTENCE) -> str:
    """Return the text as a `Sentence`: a space for each control character, and cut to `most` characters.

    Whoever writes for others calls this. A right sentence is returned as it is.
    """
    plain = _CONTROL.sub(" ", text)
    return plain if len(plain) <= most else plain[: most - len(_CUT)] + _CUT
