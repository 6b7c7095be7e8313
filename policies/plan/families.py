"""The public sizes of each family of outcomes: rows of a head, cells of a metric sum.

Guarantees that one place decides which family a study has. The silo computes with it (`silo_agent.learning.outcomes`);
a test there compares the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from policies.documents.study import BINARY, NUMBER

FamilyName = Literal["bernoulli", "categorical", "squared"]
TARGET_STEPS: Final = 1 << 20
"""A label that is a number is one of 2^20 + 1 places between its minimum and its maximum, both included. float32 holds
each exactly, and the rounding moves an outcome by less than a millionth of its range."""
MOMENT_DEGREE: Final = 4
"""Sums of a number's errors and outcomes hold their moments up to this one."""
MOMENT_CELLS: Final = 2 * (MOMENT_DEGREE + 1) + 1
"""Cells of the errors' sizes and of the outcomes, and one of the errors with their sign."""


@dataclass(frozen=True)
class Form:
    """A family's name and sizes.

    Attributes:
        name: name of the family's module in `silo_agent.learning.outcomes`.
        classes: C, the rows of a domain's metric table.
        logits: R, the rows of K = k + 1 weights that one head has.
        cells_per_bin: cells that one bin of the score has in a metric sum; 0 if there is no score.
        labels: number of values that a record's label may have. They count from 0.
        moments: cells of a metric sum that belong to no bin.
        calibration_values: values of one block of the calibration's sum.
    """

    name: FamilyName
    classes: int
    logits: int
    cells_per_bin: int
    labels: int
    calibration_values: int
    moments: int = 0

    def cells(self, bins: int) -> int:
        """Cells in a row of a domain's metric table."""
        return self.cells_per_bin * bins + self.moments


def form_of(classes: int) -> Form:
    """The family of a label with `classes` classes (`Label.count`).

    Two classes share one logit, the logit of the second class. If there are more, each class has a logit (a softmax),
    and the metric cells count wrong and right predictions separately. A number has one row of weights, which gives the
    number itself.
    """
    if classes == NUMBER:
        return Form(
            "squared",
            1,
            logits=1,
            cells_per_bin=0,
            labels=TARGET_STEPS + 1,
            moments=MOMENT_CELLS,
            calibration_values=2,
        )
    if classes == BINARY:
        return Form("bernoulli", classes, logits=1, cells_per_bin=1, labels=classes, calibration_values=3)
    return Form("categorical", classes, logits=classes, cells_per_bin=2, labels=classes, calibration_values=3 * classes)
