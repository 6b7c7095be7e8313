"""Finds the family of a study's outcomes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from policies.plan.families import FamilyName, form_of
from silo_agent.learning.families.bernoulli import Bernoulli
from silo_agent.learning.families.categorical import Categorical
from silo_agent.learning.families.family import Family
from silo_agent.learning.families.squared import Squared

FAMILIES: Final[Mapping[FamilyName, Callable[[int], Family]]] = {
    "bernoulli": lambda _: Bernoulli(),
    "categorical": Categorical,
    "squared": lambda _: Squared(),
}
"""The families by their name in `policies.plan.families`. Each is made from the number of classes."""


def family_of(classes: int) -> Family:
    """The family of a label with `classes` classes (`study.data.label.count`; `NUMBER` stands for a number)."""
    return FAMILIES[form_of(classes).name](classes)
