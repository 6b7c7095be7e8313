"""Bounds of what a study may state: every number, text and list has a floor and a ceiling that no hospital needs.

Guarantees: within the bounds no arithmetic on an allowed cell overflows, divides by zero or loses its precision
(docs/design/threat-model.md, invariant 8). A constant outside them would make a silo's work fail on some records and
not on others, which would answer questions about single patients at no charge.

A bound is an annotation, so it stands beside the field and in the JSON Schema. Studies that were stored before a bound
existed are read with the context `STORED`, which lifts the bounds and nothing else; `policies.documents.study` says
what happens to them then.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sized
from dataclasses import dataclass
from typing import Any, Final

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import PydanticCustomError, core_schema

KIND: Final = "out_of_bounds"
"""Pydantic's type of the errors that these bounds raise."""
STORED: Final = {"stored": True}
"""The validation context that lifts the bounds."""
_SHOWN: Final = 40
_UNSEEN: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode categories that change how a console shows a text: control, format, surrogate, line and paragraph."""
_LINES: Final = frozenset("\n\t")


def lifted(info: core_schema.ValidationInfo[Any]) -> bool:
    """Whether the document that is being read was stored before, so that no bound applies."""
    return bool(info.context) and info.context == STORED


def broken(fault: str) -> PydanticCustomError:
    """Return the error for a value outside its bounds. `fault` says what stands there and what to write instead."""
    return PydanticCustomError(KIND, "{fault}", {"fault": fault})


@dataclass(frozen=True)
class Bound:
    """An annotation: `fault_of` says what is wrong with a value, or None; `stated` is added to the JSON Schema."""

    fault_of: Callable[[Any], str | None]
    stated: Callable[[dict[str, Any]], None]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        """Check the value after its own schema has."""

        def check(value: Any, info: core_schema.ValidationInfo[Any]) -> Any:
            fault = None if lifted(info) else self.fault_of(value)
            if fault is not None:
                raise broken(fault)
            return value

        return core_schema.with_info_after_validator_function(check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """State the bound where an editor or a test finds it."""
        found: dict[str, Any] = handler(schema)
        self.stated(found)
        return found


def within(least: float, most: float, *, zero: bool = False, fix: str = "choose one within") -> Bound:
    """A number in [least, most]; with `zero` 0 is allowed too."""

    def fault_of(value: float) -> str | None:
        if least <= value <= most or (zero and value == 0):
            return None
        allowed = f"0, or {least:g} to {most:g}" if zero else f"{least:g} to {most:g}"
        return f"{_shown(value)} is outside {allowed}; {fix}"

    def stated(schema: dict[str, Any]) -> None:
        schema |= {"minimum": 0 if zero else least, "maximum": most}

    return Bound(fault_of, stated)


def text(most: int, *, lines: bool = False) -> Bound:
    """A text of at most `most` characters, none of which a console would not show; with `lines` it may have several."""

    def fault_of(value: str) -> str | None:
        return text_fault(value, most, _LINES if lines else frozenset())

    def stated(schema: dict[str, Any]) -> None:
        schema |= {"maxLength": most}

    return Bound(fault_of, stated)


def items(most: int) -> Bound:
    """A list of at most `most` entries."""

    def fault_of(value: Sized) -> str | None:
        return None if len(value) <= most else f"{len(value)} entries stand here; at most {most} are allowed"

    def stated(schema: dict[str, Any]) -> None:
        schema |= {"maxItems": most}

    return Bound(fault_of, stated)


def code(longest: int, largest: int) -> Bound:
    """A text, number or truth value that a cell is compared with. All numbers in it are exact in float64."""

    def fault_of(value: str | float) -> str | None:
        if isinstance(value, str):
            return text_fault(value, longest, _LINES)
        if -largest <= value <= largest:
            return None
        return f"{_shown(value)} is outside {-largest} to {largest}; write it in quotes, then it is compared as a text"

    def stated(schema: dict[str, Any]) -> None:
        for one in schema["anyOf"]:
            if one["type"] == "string":
                one |= {"maxLength": longest}
            elif one["type"] != "boolean":
                one |= {"minimum": -largest, "maximum": largest}

    return Bound(fault_of, stated)


def text_fault(value: str, most: int, allowed: frozenset[str]) -> str | None:
    """Return what is wrong with a text, or None."""
    if len(value) > most:
        return f"a text of {len(value)} characters stands here; at most {most} are allowed"
    if any(character not in allowed and unicodedata.category(character) in _UNSEEN for character in value):
        return "the text has a control character; write plain text"
    return None


def _shown(value: float) -> str:
    """Return a number for an error. An integer of thousands of digits is not spelled out."""
    if isinstance(value, int) and abs(value) >= 10**_SHOWN:
        return "an integer of more than 40 digits"
    return f"{value:g}" if isinstance(value, float) else str(value)
