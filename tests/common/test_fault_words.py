"""Faults of documents in words: every kind that a schema of ours can raise, and no word of the validator's."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from common import names
from common.fault_words import in_words


class Colour(StrEnum):
    RED = "red"


class Inner(BaseModel):
    one: int = 1


class Sample(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    text: Annotated[str, Field(min_length=2, max_length=4)] = "ab"
    name: Annotated[str, Field(pattern=f"^{names.PATTERN}$")] = "a"
    form: Annotated[str, Field(pattern="^x+$")] = "x"
    share: Annotated[float, Field(gt=0, lt=1)] = 0.5
    whole: Annotated[int, Field(ge=2, le=5)] = 3
    yes: bool = True
    word: Literal["a", "b"] = "a"
    colour: Colour = Colour.RED
    values: Annotated[tuple[int, ...], Field(min_length=1, max_length=2)] = (1,)
    many: list[int] = []
    inner: Inner = Inner()
    fields: dict[str, int] = {}
    nothing: None = None
    odd: int = 1

    @field_validator("odd")
    @classmethod
    def _odd(cls, value):
        if value % 2 == 0:
            msg = "write an odd number"
            raise ValueError(msg)
        return value


FAULTS = [
    ("other", 1, "unknown field; remove it or fix its spelling"),
    ("text", 5, "no text; write a text, in quotes if it looks like a number"),
    ("text", "a", "too short; write 2 characters or more"),
    ("text", "abcde", "too long; write 4 characters or fewer"),
    ("name", "A b", "no name; write 1 to 63 lower-case letters, digits and inner hyphens"),
    ("form", "y", "another form is needed; write it as the pattern ^x+$ has it"),
    ("share", "many", "no number; write one"),
    ("share", [], "no number; write one"),
    ("share", math.inf, "no finite number; write one"),
    ("share", 0.0, "too small; write more than 0"),
    ("share", 1, "too large; write less than 1"),
    ("whole", 1.5, "no whole number; write one"),
    ("whole", "x", "no whole number; write one"),
    ("whole", [], "no whole number; write one"),
    ("whole", 1, "too small; write 2 or more"),
    ("whole", 6, "too large; write 5 or less"),
    ("yes", "maybe", "neither true nor false; write one of them"),
    ("yes", [], "neither true nor false; write one of them"),
    ("word", "c", "none of the values that can stand here; write 'a' or 'b'"),
    ("colour", "blue", "none of the values that can stand here; write 'red'"),
    ("values", 3, "no list; write [a, b], or each value on a line with a dash"),
    ("values", [], "too few values; write 1 or more"),
    ("values", [1, 2, 3], "too many values; write 2 or fewer"),
    ("many", 3, "no list; write [a, b], or each value on a line with a dash"),
    ("inner", 3, "this field has fields of its own; write each on a line below it"),
    ("fields", 3, "this field has fields of its own; write each on a line below it"),
    ("nothing", 3, "write null"),
    ("odd", 2, "write an odd number"),
]


@pytest.mark.parametrize(("field", "value", "told"), FAULTS)
def test_a_fault_is_told_in_words(field, value, told):
    with pytest.raises(ValidationError) as found:
        Sample.model_validate({field: value})
    (error,) = found.value.errors()
    assert in_words(error["type"], error["msg"], error.get("ctx", {})) == told


def test_a_fault_of_another_kind_keeps_its_sentence():
    assert in_words("new_kind", "A new sentence", {}) == "A new sentence"
    assert in_words("greater_than", "Input should be greater than 0", {}) == "Input should be greater than 0"
