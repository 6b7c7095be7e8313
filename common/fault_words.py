"""Says what is wrong with a field in words that a person understands, from what a validator says of it.

The kinds and their context are pydantic's (pydantic_core, "Validation errors"). A kind that is not listed keeps the
validator's own sentence.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from common import names

_PLAIN: Final = {
    "extra_forbidden": "unknown field; remove it or fix its spelling",
    "missing": "this field is missing; add it",
    "model_type": "this field has fields of its own; write each on a line below it",
    "dict_type": "this field has fields of its own; write each on a line below it",
    "string_type": "no text; write a text, in quotes if it looks like a number",
    "bool_type": "neither true nor false; write one of them",
    "bool_parsing": "neither true nor false; write one of them",
    "int_type": "no whole number; write one",
    "int_parsing": "no whole number; write one",
    "int_from_float": "no whole number; write one",
    "float_type": "no number; write one",
    "float_parsing": "no number; write one",
    "finite_number": "no finite number; write one",
    "list_type": "no list; write [a, b], or each value on a line with a dash",
    "tuple_type": "no list; write [a, b], or each value on a line with a dash",
    "none_required": "write null",
}
_BOUNDS: Final = {
    "greater_than": ("gt", "too small; write more than {}"),
    "greater_than_equal": ("ge", "too small; write {} or more"),
    "less_than": ("lt", "too large; write less than {}"),
    "less_than_equal": ("le", "too large; write {} or less"),
    "literal_error": ("expected", "none of the values that can stand here; write {}"),
    "enum": ("expected", "none of the values that can stand here; write {}"),
}
_LENGTHS: Final = {
    "too_short": ("min_length", "too few values; write {} or more"),
    "too_long": ("max_length", "too many values; write {} or fewer"),
    "string_too_short": ("min_length", "too short; write {} characters or more"),
    "string_too_long": ("max_length", "too long; write {} characters or fewer"),
}
_NAME: Final = f"^{names.PATTERN}$"
_CUSTOM: Final = "Value error, "


def in_words(kind: str, said: str, context: Mapping[str, object]) -> str:
    """Return the fault in words. `said` is the validator's own sentence, `context` the numbers that it names."""
    if kind in _PLAIN:
        return _PLAIN[kind]
    name, words = {**_BOUNDS, **_LENGTHS}.get(kind, ("", ""))
    if name in context:
        value = context[name]
        return words.format(f"{value:g}" if isinstance(value, float) else value)
    if kind == "string_pattern_mismatch":
        pattern = str(context.get("pattern"))
        if pattern == _NAME:
            return "no name; write 1 to 63 lower-case letters, digits and inner hyphens"
        return f"another form is needed; write it as the pattern {pattern} has it"
    return said.removeprefix(_CUSTOM)
