"""Two classes: one logit, the logit of the second class.

Sensitivity. Let p be the probability of the second class. Then S = p (1 - p) and e = p - y. A record's packed terms are
(4 r svec(H) / C^2, g / C), with r = `SHARE`. Their norm is at most 1 if ||z||^2 <= C^2. No r above golden^2.5 / 4,
with the golden ratio, has that (docs/design/heads.md, "Joint sensitivity 1").
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy.special import expit, logit
from torch.nn import functional

from policies.documents.study import BINARY
from policies.plan.families import Form, form_of
from silo_agent.learning.outcomes.expected import ExpectedOutcomes
from silo_agent.learning.outcomes.family import C, Floats, Integers
from silo_agent.learning.outcomes.open_bins import power_means
from silo_agent.learning.outcomes.products import weighted_gram
from silo_agent.learning.outcomes.response import LEAST, Response

SHARE: float = ((1.0 + math.sqrt(5.0)) / 2.0) ** 2.5 / 4.0
"""r = 0.8325, the share of the Hessian. The module's docstring has the proof."""
LOGIT_RANGE = 5.0
"""Bins have equal widths in logit(p) over 5 on either side of the threshold, and the two end bins are open. Outcomes
are rare, so equal widths in p would put nearly all patients into one bin. The threshold is an edge. If the number of
bins is odd, the odd one lies at the lower end. If a model's logits spread less than a bin's width, the study needs more
bins."""
HALF = 0.5
_NODES = 33


@dataclass(frozen=True)
class Bernoulli:
    """The family of yes-or-no outcomes."""

    curvature_part: float = 1.0
    threshold: float = HALF
    """The risk from which on a record is decided for the second class: public, never an observed rate."""

    @property
    def form(self) -> Form:
        """One logit, two classes."""
        return form_of(BINARY)

    # --- sums of heads --------------------------------------------------------------------------------------------
    @property
    def hessian_factor(self) -> float:
        """The factor 4 r / C^2, times `curvature_part`."""
        return self.curvature_part * 4.0 * SHARE / C**2

    @property
    def gradient_divisor(self) -> float:
        """The divisor C."""
        return C

    def with_curvature(self, part: float) -> Bernoulli:
        """The same with `part` of the factor. A smaller factor on the Hessian's term lengthens no term."""
        return replace(self, curvature_part=part)

    def expected(self, logits: torch.Tensor) -> ExpectedOutcomes:
        """The probabilities p of the second class, and 1 - p of the first."""
        return ExpectedOutcomes(torch.sigmoid(logits), torch.sigmoid(-logits))

    def residual(self, expected: ExpectedOutcomes, labels: torch.Tensor) -> torch.Tensor:
        """The residual p - y."""
        return torch.where((labels == 1)[:, None], -expected.rest, expected.mean)

    def farthest(self, expected: ExpectedOutcomes) -> torch.Tensor:
        """The less probable class."""
        return (expected.mean <= expected.rest)[:, 0].to(torch.int64)

    def curvature_norm(self, expected: ExpectedOutcomes) -> torch.Tensor:
        """The norm of S, which is p (1 - p)."""
        return (expected.mean * expected.rest)[:, 0]

    def curvature_sum(self, expected: ExpectedOutcomes, z: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """The sum Z' diag(weight p (1 - p)) Z."""
        return weighted_gram(z, weight * self.curvature_norm(expected))

    @property
    def intercept_scale(self) -> tuple[float, ...]:
        """The factors 1, 2 and 2."""
        return (1.0, 2.0, 2.0)

    def intercept_terms(self, expected: ExpectedOutcomes, error: torch.Tensor) -> torch.Tensor:
        """The residual p - y, 2 S and 2 S (1 - 2 p), for S = p (1 - p).

        Let q = |p - y|. The squared norm is q^2 (1 + 4 (1 - q)^2 (1 + (1 - 2 q)^2)), at most q^2 (1 + 8 (1 - q)^2), and
        this is at most 1 iff 8 q^2 (1 - q) <= 1 + q. The left side is at most 32 / 27 and at most 8 q^2, which is below
        1 for q < 1/3; for larger q the right side is above 32 / 27.
        """
        curvature = expected.mean * expected.rest
        return torch.cat([error, 2.0 * curvature, 2.0 * curvature * (expected.rest - expected.mean)], dim=1)

    def response(self, sums: Floats) -> Response:
        """The growth of the curvature, sum S (1 - 2 p) / sum S."""
        return Response(np.clip(sums[2:] / np.maximum(sums[1:2], LEAST), -1.0, 1.0), np.ones(1))

    def centred(self, hessian: Floats, gradient: Floats) -> tuple[Floats, Floats]:
        """The sums unchanged, because every direction of a single row of weights moves a prediction."""
        return hessian, gradient

    # --- training -------------------------------------------------------------------------------------------------
    def losses(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Cross-entropy (n,) from the one logit."""
        return functional.binary_cross_entropy_with_logits(logits[:, 0], labels.to(logits.dtype), reduction="none")

    # --- prediction -----------------------------------------------------------------------------------------------
    @property
    def operation(self) -> str:
        """The logistic function and its complement."""
        return "two_classes"

    def probabilities(self, logits: Floats) -> Floats:
        """The probabilities (1 - p, p)."""
        second = expit(logits)
        return np.concatenate([1.0 - second, second], axis=1)

    def decisions(self, probabilities: Floats) -> Integers:
        """The second class if p is at least the threshold, else the first."""
        return (probabilities[:, 1] >= self.threshold).astype(np.int64)

    # --- metrics --------------------------------------------------------------------------------------------------
    @property
    def has_auc(self) -> bool:
        """True: the logit orders the records."""
        return True

    def edges(self, bins: int) -> Floats:
        """Edges in logits of the second class."""
        half = bins // 2
        width = LOGIT_RANGE / half
        edges = np.linspace(-LOGIT_RANGE, LOGIT_RANGE, 2 * half + 1)
        edges[half] = 0.0  # exactly the threshold; for some numbers of bins, linspace misses it by rounding
        edges += float(logit(self.threshold))
        return edges if bins % 2 == 0 else np.concatenate([[edges[0] - width], edges])

    def scores(self, probabilities: Floats) -> Floats:
        """Logits of the second class."""
        with np.errstate(divide="ignore"):
            return np.asarray(logit(np.nan_to_num(np.clip(probabilities[:, 1], 0.0, 1.0), nan=0.5)), np.float64)

    def side(self, probabilities: Floats, labels: Integers) -> Integers:  # noqa: ARG002 - a bin has one cell
        """Always 0, because class and bin already tell whether a prediction is right."""
        return np.zeros(len(probabilities), np.int64)

    def right_cells(self, bins: int) -> Floats:
        """For the second class the bins above the threshold, for the first class those below."""
        above = (np.arange(bins) >= (bins + 1) // 2).astype(np.float64)
        return np.stack([1.0 - above, above])

    def claim(self, probabilities: Floats, labels: Integers) -> tuple[Floats, Floats]:
        """Whether the outcome is the second class, and the probability of that class."""
        return labels.astype(np.float64), probabilities[:, 1]

    def calibration_cells(self, cells: Floats) -> tuple[Floats, int]:
        """The counts of the first class, then of the second. Each is one cell."""
        return cells.ravel(), 1

    def ends(self, edges: Floats) -> Floats:
        """Probabilities at the edges; the first bin begins at 0, the last ends at 1."""
        inner = expit(edges[1:-1])
        return np.stack([np.concatenate([[0.0], inner]), np.concatenate([inner, [1.0]])], axis=1)

    def claimed(self, edges: Floats, counts: Floats) -> Floats:
        """Sums of the second class's probabilities in each bin of logits.

        Within a bin the density is taken to be linear, with the slope between its neighbours. The two open bins may
        reach far. So p in the lowest bin and 1 - p in the highest are taken to follow power laws.
        """
        bins, width = len(edges) - 1, edges[-1] - edges[-2]
        nodes, weights = np.polynomial.legendre.leggauss(_NODES)
        place, weights = nodes / 2.0, weights / 2.0
        p = expit((edges[:-1, None] + edges[1:, None]) / 2.0 + width * place)
        rows = np.diag(p @ weights)
        tilt = p @ (weights * place) / 2.0
        for b in range(1, bins - 1):
            rows[b, b + 1] += tilt[b]
            rows[b, b - 1] -= tilt[b]
        low, high = expit(edges[1:3]), expit(-edges[-2:-4:-1])
        rows[0, 0] = power_means(low[0], low[1], counts[0], counts[1])[0]
        rows[-1, -1] = 1.0 - power_means(high[0], high[1], counts[-1], counts[-2])[0]
        return rows
