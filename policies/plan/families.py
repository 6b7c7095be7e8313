"""Families of outcomes, as far as public sizes go: rows of a head, cells of a metric sum.

Guarantees that one place decides which family a study has. What a family computes is the silo's
(`silo_agent.learning.families`); a test there holds the two against each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from policies.documents.study import BINARY

FamilyName = Literal["bernoulli", "categorical"]


@dataclass(frozen=True)
class Form:
    """A family's name and sizes.

    Attributes:
        name: of the module in `silo_agent.learning.families`.
        classes: C, the rows of a domain's metric table.
        logits: R, the rows of K = k + 1 weights that one head has.
        cells_per_bin: cells that one bin of the score has in a metric sum.
    """

    name: FamilyName
    classes: int
    logits: int
    cells_per_bin: int


def form_of(classes: int) -> Form:
    """The family of a label with so many classes.

    Two classes share one logit, that of the second; more have a logit each (a softmax), and their metric cells tell
    wrong predictions from right ones.
    """
    if classes == BINARY:
        return Form("bernoulli", classes, logits=1, cells_per_bin=1)
    return Form("categorical", classes, logits=classes, cells_per_bin=2)
