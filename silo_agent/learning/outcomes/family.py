"""What a family of outcomes must provide: from a head's logits it computes predictions, losses, sums, metric cells.

Guarantees that everything that differs between kinds of label is in this interface and nowhere else. A family has no
state and reads no record by itself. `heads` makes sums from its values, `private` adds noise, and `evaluation` makes
metrics.
"""

from __future__ import annotations

import math
from typing import Protocol, TypeGuard

import numpy as np
import torch
from numpy.typing import NDArray

from policies.plan.families import Form
from silo_agent.learning.outcomes.expected import ExpectedOutcomes
from silo_agent.learning.outcomes.response import Response

C = math.sqrt(2.0)
"""Bound on the norm of z = (phi, 1), because ||phi|| <= 1 and the bias adds 1."""
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class Family(Protocol):
    """One kind of outcome. n records, R logits, C classes, K = k + 1 weights in a row, W = R K weights in a head.

    A number has R = 1, and C = 1 stands for its predicted value. A record's terms in the sums of heads are
    H = S (x) z z' and g = e (x) z, with S (R, R) the `curvature` and e (R,) the residual. Packed as (`hessian_factor`
    svec(H), g / `gradient_divisor`) their norm is at most 1 for every record and every head. The noise rests on this
    bound, so each family proves it in its module's docstring.
    """

    @property
    def form(self) -> Form:
        """Name and public sizes."""
        ...

    # --- sums of heads --------------------------------------------------------------------------------------------
    @property
    def hessian_factor(self) -> float:
        """What svec(H) is multiplied by in the packed statistic."""
        ...

    @property
    def gradient_divisor(self) -> float:
        """What g is divided by in the packed statistic."""
        ...

    def with_curvature(self, part: float) -> Family:
        """The same family with `part` of `hessian_factor`, in (0, 1]. A packed term's norm is then no larger."""
        ...

    # Each value is a product, a quotient or a sum of values of one sign; the residual of a number is one difference. So
    # rounding takes but a few last bits from a residual, an entry of S, or a norm (docs/design/heads.md, "Rounding").
    def expected(self, logits: torch.Tensor) -> ExpectedOutcomes:
        """The inverse link: expected outcomes of logits (n, R). Not finite if the logits overflow."""
        ...

    def residual(self, expected: ExpectedOutcomes, labels: torch.Tensor) -> torch.Tensor:
        """Residual e (n, R): expected less observed, the loss's derivative by the logits. `labels` int64 (n,).

        Labels are indices of classes, or places of numbers (`data.outcome`).
        """
        ...

    def farthest(self, expected: ExpectedOutcomes) -> torch.Tensor:
        """Labels (n,), int64, of the outcomes that would be furthest from what is expected: the longest residuals."""
        ...

    def curvature_norm(self, expected: ExpectedOutcomes) -> torch.Tensor:
        """||S||_F (n,), where S is the loss's second derivative by the logits, or a bound on it from above."""
        ...

    def curvature_sum(self, expected: ExpectedOutcomes, z: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """Sum of weight S (x) z z' over the records of one head, (W, W). `z` (n, K), `weight` (n,) >= 0."""
        ...

    @property
    def intercept_scale(self) -> tuple[float, ...]:
        """What the values of `intercept_terms` are multiplied by, (V,); V = `form.calibration_values`."""
        ...

    def response(self, sums: Floats) -> Response:
        """How the sums of predictions answer to intercepts, from sums (V,) of the terms without their scale."""
        ...

    def intercept_terms(self, expected: ExpectedOutcomes, error: torch.Tensor) -> torch.Tensor:
        """A record's terms in the sums of the calibration (n, V), from what is expected and residuals (n, R).

        First the R residuals, then the R curvatures diag(S), then whatever else `response` reads. For every record
        their norm is at most 1.
        """
        ...

    def centred(self, hessian: Floats, gradient: Floats) -> tuple[Floats, Floats]:
        """Opened sums (D, W, W) and (D, W) without their part along directions that no prediction depends on."""
        ...

    # --- training -------------------------------------------------------------------------------------------------
    def losses(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Negative log-likelihood (n,) of every record; `logits` (n, R), `labels` int64 (n,)."""
        ...

    # --- prediction -----------------------------------------------------------------------------------------------
    @property
    def operation(self) -> str:
        """Name of the operation from logits to predictions in an export (`encoder.layers.OPERATIONS`)."""
        ...

    def probabilities(self, logits: Floats) -> Floats:
        """Predictions (n, C) from logits (n, R): probabilities of the classes, or a number's value in [-1, 1]."""
        ...


class OfClasses(Family, Protocol):
    """A family whose outcomes are classes: what its score's bins count."""

    def decisions(self, probabilities: Floats) -> Integers:
        """The predicted class (n,)."""
        ...

    @property
    def has_auc(self) -> bool:
        """Whether one score orders the records by their outcome. Only then is there an area under a curve."""
        ...

    def edges(self, bins: int) -> Floats:
        """Edges (bins + 1,) of the score's bins; the outermost bins are open."""
        ...

    def scores(self, probabilities: Floats) -> Floats:
        """The score (n,) that is binned. A score that is not a number counts as undecided."""
        ...

    def side(self, probabilities: Floats, labels: Integers) -> Integers:
        """The cell (n,) of its score's bin in which a record counts, from 0 to `form.cells_per_bin` - 1."""
        ...

    def right_cells(self, bins: int) -> Floats:
        """Cells (C, cells): 1 if the patients in a cell are predicted rightly, else 0."""
        ...

    def claim(self, probabilities: Floats, labels: Integers) -> tuple[Floats, Floats]:
        """What happened (n,), 0 or 1, and the probability (n,) claimed for it. Calibration compares the two."""
        ...

    def calibration_cells(self, cells: Floats) -> tuple[Floats, int]:
        """From a domain's cells (C, cells) two things for calibration.

        The first is (2 bins,): the counts of what did not happen, then of what happened. The second is the number of
        cells that are added up in each.
        """
        ...

    def ends(self, edges: Floats) -> Floats:
        """Least and largest claim (bins, 2) that each bin of the score can hold."""
        ...

    def claimed(self, edges: Floats, counts: Floats) -> Floats:
        """Rows (bins, bins) that give the sum of a bin's claims from its own and its neighbours' `counts` (bins,)."""
        ...


def is_of_classes(family: Family) -> TypeGuard[OfClasses]:
    """Whether the outcomes are classes. Otherwise they are numbers, which `evaluation.moments` measures."""
    return family.form.cells_per_bin > 0
