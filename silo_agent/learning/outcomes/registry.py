"""Finds the family of a study's outcomes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from policies.documents.study import Study
from policies.plan.families import FamilyName, form_of
from silo_agent.learning.outcomes.family import Family
from silo_agent.learning.outcomes.more_classes import Categorical
from silo_agent.learning.outcomes.number import Squared
from silo_agent.learning.outcomes.two_classes import HALF, Bernoulli

FAMILIES: Final[Mapping[FamilyName, Callable[[int, float], Family]]] = {
    "bernoulli": lambda _, threshold: Bernoulli(threshold=threshold),
    "categorical": lambda classes, _: Categorical(classes),
    "squared": lambda *_: Squared(),
}
"""The families by their name in `policies.plan.families`, made from the number of classes and the threshold of two."""


def family_of(classes: int, threshold: float = HALF) -> Family:
    """The family of a label with `classes` classes (`study.data.label.count`; `NUMBER` stands for a number).

    `threshold` is the risk from which on two classes are decided for the second. What trains and sums does not read it.
    """
    return FAMILIES[form_of(classes).name](classes, threshold)


def family_of_study(study: Study) -> Family:
    """The family of a study's outcomes, with the study's threshold."""
    return family_of(study.data.label.count, study.threshold)
