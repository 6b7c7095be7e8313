"""What a family of outcomes must say: from the logits of a head to probabilities, losses, sums and metric cells.

Guarantees that everything that differs between kinds of label is asked here and nowhere else. A family has no state
and reads no record by itself; sums, noise and metrics over its answers are `heads`', `private`'s and `evaluation`'s.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from policies.plan.families import Form

C = math.sqrt(2.0)
"""Bound on the norm of z = (phi, 1): ||phi|| <= 1 and the bias."""
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class Family(Protocol):
    """One kind of outcome. n records, R logits, C classes, K = k + 1 weights a row, W = R K weights a head.

    A record's terms in the sums of heads are H = S (x) z z' and g = e (x) z, with S (R, R) the `curvature` and e (R,)
    the residual. Packed as (`hessian_factor` svec(H), g / `gradient_divisor`) their norm is at most 1 for every
    record and every head: whoever writes a family proves this in its docstring, since the noise rests on it.
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

    def mean(self, logits: torch.Tensor) -> torch.Tensor:
        """The inverse link: expected outcome (n, R) of logits (n, R). Not finite where the logits overflow."""
        ...

    def residual(self, mean: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Residual e (n, R): expected less observed, the loss's derivative by the logits. `labels` int64 (n,)."""
        ...

    def curvature_norm(self, mean: torch.Tensor) -> torch.Tensor:
        """||S||_F (n,), S the loss's second derivative by the logits."""
        ...

    def curvature_sum(self, mean: torch.Tensor, z: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """Sum of weight S (x) z z' over records of one head, (W, W); `z` (n, K), `weight` (n,) >= 0."""
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
        """From logits to probabilities, by its name in an export (`encoder.layers.OPERATIONS`)."""
        ...

    def probabilities(self, logits: Floats) -> Floats:
        """Probability of every class, (n, C), of logits (n, R)."""
        ...

    def decisions(self, probabilities: Floats) -> Integers:
        """The predicted class (n,)."""
        ...

    # --- metrics --------------------------------------------------------------------------------------------------
    @property
    def has_auc(self) -> bool:
        """Whether one score orders the records by their outcome, so that there is an area under its curve."""
        ...

    def edges(self, bins: int) -> Floats:
        """Edges (bins + 1,) of the score's bins; the outermost bins are open."""
        ...

    def scores(self, probabilities: Floats) -> Floats:
        """The score (n,) that is binned; what is no number counts as undecided."""
        ...

    def side(self, probabilities: Floats, labels: Integers) -> Integers:
        """Which cell of its score's bin a record counts in, (n,), from 0 to `form.cells_per_bin` - 1."""
        ...

    def right_cells(self, bins: int) -> Floats:
        """Which cells (C, cells) are predicted rightly: 1, else 0."""
        ...

    def claim(self, probabilities: Floats, labels: Integers) -> tuple[Floats, Floats]:
        """What happened (n,), 0 or 1, and the probability (n,) that was claimed for it: calibration compares them."""
        ...

    def calibration_cells(self, cells: Floats) -> tuple[Floats, int]:
        """Of a domain's cells (C, cells): (2 bins,), what did not happen and then what did; and how many each adds."""
        ...

    def claimed(self, edges: Floats, counts: Floats) -> Floats:
        """Rows (bins, bins): sum of the claims in a bin, from its own and its neighbours' `counts` (bins,)."""
        ...
