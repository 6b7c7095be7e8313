"""The public sizes of each family of outcomes: rows of a head, cells of a metric sum.

Guarantees that one place decides which family a study has. The silo computes with it (`silo_agent.learning.families`);
a test there compares the two.
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
        name: name of the family's module in `silo_agent.learning.families`.
        classes: C, the rows of a domain's metric table.
        logits: R, the rows of K = k + 1 weights that one head has.
        cells_per_bin: cells that one bin of the score has in a metric sum.
    """

    name: FamilyName
    classes: int
    logits: int
    cells_per_bin: int


def form_of(classes: int) -> Form:
    """The family of a label with `classes` classes.

    Two classes share one logit, the logit of the second class. If there are more, each class has a logit (a softmax),
    and the metric cells count wrong and right predictions separately.
    """
    if classes == BINARY:
        return Form("bernoulli", classes, logits=1, cells_per_bin=1)
    return Form("categorical", classes, logits=classes, cells_per_bin=2)
