"""Finds the family of a study's outcomes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from policies.plan.families import FamilyName, form_of
from silo_agent.learning.outcomes.family import Family
from silo_agent.learning.outcomes.more_classes import Categorical
from silo_agent.learning.outcomes.number import Squared
from silo_agent.learning.outcomes.two_classes import Bernoulli

FAMILIES: Final[Mapping[FamilyName, Callable[[int], Family]]] = {
    "bernoulli": lambda _: Bernoulli(),
    "categorical": Categorical,
    "squared": lambda _: Squared(),
}
"""The families by their name in `policies.plan.families`. Each is made from the number of classes."""


def family_of(classes: int) -> Family:
    """The family of a label with `classes` classes (`study.data.label.count`; `NUMBER` stands for a number)."""
    return FAMILIES[form_of(classes).name](classes)
