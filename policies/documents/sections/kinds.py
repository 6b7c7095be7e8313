"""The types that several sections use: names, noises, weights of loss terms, seconds; and a policy's part."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import AfterValidator, ConfigDict, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from common import names
from policies.documents import bounds, recipes
from policies.documents.document import Closed

MOST_SILOS: Final = 1000
"""Silos that a study may name. A federation carries fewer (`policies.plan.quorum`)."""
Name = Annotated[str, Field(pattern=f"^{names.PATTERN}$", max_length=63)]
Purpose = Annotated[str, Field(min_length=1, max_length=2000), bounds.text(2000, lines=True)]
Noise = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False), bounds.within(1e-3, 1e6, zero=True)]
"""A noise multiplier; 0 only in a study of public data (`privacy.mode: none`)."""
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Coefficient = Annotated[float, Field(ge=0, allow_inf_nan=False), bounds.within(0, 100)]
Penalty = Annotated[float, Field(ge=0, allow_inf_nan=False), bounds.within(0, 1_000_000)]
"""IRM's coefficient, which is large where it counts; the whole loss is divided by it if it is above 1."""
Share = Annotated[float, Field(ge=0, le=1)]
GroupRate = Annotated[Positive, bounds.within(1e-6, 10)]
AnnealingSteps = Annotated[int, Field(ge=0, le=100_000)]
Seconds = Annotated[Positive, bounds.within(0.01, 30 * 86_400, fix="choose at most 30 days")]


def _known(name: str) -> str:
    """The name of a registered recipe. The error's type is that of a value which the schema does not have."""
    if name in recipes.RECIPES:
        return name
    kind = "literal_error"
    raise PydanticCustomError(kind, "Input should be {expected}", {"expected": " or ".join(map(repr, recipes.RECIPES))})


Recipe = Annotated[str, AfterValidator(_known), WithJsonSchema({"enum": list(recipes.RECIPES), "type": "string"})]
"""How encoder and heads are learned and aggregated (`policies.documents.recipes`, docs/design/recipes.md)."""


class PolicyPart(Closed):
    """A part of the policy. The texts below its fields are what an editor shows."""

    model_config = ConfigDict(use_attribute_docstrings=True)


def printable(text: str) -> str:
    """Refuse control characters, because the text is shown on consoles, which they would rewrite."""
    if not text.isprintable():
        msg = "the text has a control character or line break; write one line of plain text"
        raise ValueError(msg)
    return text
