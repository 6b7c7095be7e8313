"""More than two classes: a softmax over one logit for each class.

Sensitivity. Let p be the probabilities and y the one-hot label. Then S = diag(p) - p p' and e = p - y. A record's
packed terms are (2 r svec(H) / C^2, g / (sqrt(2) C)), with r = `SHARE` = 1/2. Their norm is at most 1 if
||z||^2 <= C^2, for any number of classes. No larger r has that (docs/design/heads.md, "Joint sensitivity 1").
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy.special import softmax
from torch.nn import functional

from policies.plan.families import Form, form_of
from silo_agent.learning.outcomes.expected import ExpectedOutcomes, others
from silo_agent.learning.outcomes.family import C, Floats, Integers
from silo_agent.learning.outcomes.open_bins import power_means
from silo_agent.learning.outcomes.products import kronecker_matrix, pair_products, pairs, rows_at_once
from silo_agent.learning.outcomes.response import LEAST, Response

SHARE = 0.5
"""r, the share of the Hessian. The module's docstring has the proof."""


@dataclass(frozen=True)
class Categorical:
    """The family of outcomes with `classes` classes, three or more."""

    classes: int
    curvature_part: float = 1.0

    @property
    def form(self) -> Form:
        """One logit for each class."""
        return form_of(self.classes)

    # --- sums of heads --------------------------------------------------------------------------------------------
    @property
    def hessian_factor(self) -> float:
        """The factor 2 r / C^2, times `curvature_part`."""
        return self.curvature_part * 2.0 * SHARE / C**2

    @property
    def gradient_divisor(self) -> float:
        """The divisor sqrt(2) C."""
        return math.sqrt(2.0) * C

    def with_curvature(self, part: float) -> Categorical:
        """The same with `part` of the factor. A smaller factor on the Hessian's term lengthens no term."""
        return replace(self, curvature_part=part)

    def expected(self, logits: torch.Tensor) -> ExpectedOutcomes:
        """The probabilities p of the classes, and of each what the other classes have."""
        parts = torch.exp(logits - logits.amax(dim=1, keepdim=True))
        total = parts.sum(dim=1, keepdim=True)
        return ExpectedOutcomes(parts / total, others(parts) / total)

    def residual(self, expected: ExpectedOutcomes, labels: torch.Tensor) -> torch.Tensor:
        """The residual p - y, y one-hot."""
        classes = torch.arange(expected.mean.shape[1], device=labels.device)
        return torch.where(labels[:, None] == classes, -expected.rest, expected.mean)

    def farthest(self, expected: ExpectedOutcomes) -> torch.Tensor:
        """The least probable class: ||p - y||^2 = 1 + sum p^2 - 2 p_y."""
        return expected.mean.argmin(dim=1)

    def curvature_norm(self, expected: ExpectedOutcomes) -> torch.Tensor:
        """||diag(p) - p p'||_F, a sum of the squares of all entries. The diagonal is p times what the others have."""
        squares = expected.mean**2
        return torch.sqrt((squares * (expected.rest**2 + others(squares))).sum(dim=1))

    def curvature_sum(self, expected: ExpectedOutcomes, z: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """The sum of S (x) z z', from products of a pair of classes and of a pair of features.

        Both factors are symmetric, so a quarter of the matrix is made, by one matrix product over the records.
        """
        count, width = expected.mean.shape[1], z.shape[1]
        sums = z.new_zeros(pairs(count), pairs(width))
        rows = rows_at_once(pairs(count) + pairs(width))
        i, j = torch.triu_indices(count, count, device=z.device)
        for part, own, u in zip(expected.split(rows), torch.split(z, rows), torch.split(weight, rows), strict=True):
            curvature = pair_products(part.mean.T.contiguous()).neg_()
            curvature[i == j] = (part.mean * part.rest).T
            sums.addmm_(curvature * u, pair_products(own.T.contiguous()).T)
        return kronecker_matrix(sums, count, width)

    @property
    def intercept_scale(self) -> tuple[float, ...]:
        """For every class sqrt(2/5), sqrt(12/5) and sqrt(1/5)."""
        return tuple(math.sqrt(part) for part in (0.4, 2.4, 0.2) for _ in range(self.classes))

    def intercept_terms(self, expected: ExpectedOutcomes, error: torch.Tensor) -> torch.Tensor:
        """The residuals p - y, the curvatures p (1 - p) and the predictions p of all classes, scaled.

        Let q = sum p^2. Then ||p - y||^2 = 1 + q - 2 p_y <= 1 + q, and because no p (1 - p) is above 1/4, the sum of
        their squares is at most (1 - q) / 4. So the squared norm is at most 2/5 (1 + q) + 3/5 (1 - q) + q / 5 = 1.
        """
        scale = error.new_tensor(self.intercept_scale)
        return scale * torch.cat([error, expected.mean * expected.rest, expected.mean], dim=1)

    def response(self, sums: Floats) -> Response:
        """As if shifts u multiplied the sums P of the classes' predictions by exp(k u), before they are divided by n.

        n is the sum of all P, and k = sum v / sum P (1 - P / n) for the curvatures v: 1 if all records have the same
        prediction, less if they differ. One k for all classes was as good as one for each, and has less noise.
        """
        _, curvature, predicted = np.maximum(sums, LEAST).reshape(3, -1)
        others = np.maximum(1.0 - predicted / predicted.sum(), LEAST)
        slope = min(float(curvature.sum() / (predicted @ others)), 1.0)
        return Response(slope * others, others)

    def centred(self, hessian: Floats, gradient: Floats) -> tuple[Floats, Floats]:
        """P H P and P g, where P subtracts the mean over the classes' rows.

        Adding the same row to the weights of every class changes no softmax. So the true sums have no part in this
        direction, and whatever the opened sums have there is noise.
        """
        blocks, width = gradient.shape
        classes = self.classes
        g = gradient.reshape(blocks, classes, -1)
        h = hessian.reshape(blocks, classes, width // classes, classes, width // classes)
        h = h - h.mean(axis=1, keepdims=True)
        h = h - h.mean(axis=3, keepdims=True)
        return h.reshape(hessian.shape), (g - g.mean(axis=1, keepdims=True)).reshape(gradient.shape)

    # --- training -------------------------------------------------------------------------------------------------
    def losses(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Cross-entropy (n,) of the softmax."""
        return functional.cross_entropy(logits, labels, reduction="none")

    # --- prediction -----------------------------------------------------------------------------------------------
    @property
    def operation(self) -> str:
        """A softmax."""
        return "softmax"

    def probabilities(self, logits: Floats) -> Floats:
        """The softmax of the logits."""
        return np.asarray(softmax(logits, axis=1), np.float64)

    def decisions(self, probabilities: Floats) -> Integers:
        """The most probable class."""
        return np.asarray(np.argmax(probabilities, axis=1), np.int64)

    # --- metrics --------------------------------------------------------------------------------------------------
    @property
    def has_auc(self) -> bool:
        """False: no single score orders the records."""
        return False

    def edges(self, bins: int) -> Floats:
        """Edges in confidence, from 1/C to 1."""
        return np.linspace(1.0 / self.classes, 1.0, bins + 1)

    def scores(self, probabilities: Floats) -> Floats:
        """Confidence: the largest probability."""
        return np.asarray(np.nan_to_num(probabilities.max(axis=1), nan=1.0 / self.classes), np.float64)

    def side(self, probabilities: Floats, labels: Integers) -> Integers:
        """0 for a wrong prediction, 1 for a right one."""
        return np.asarray(self.decisions(probabilities) == labels, np.int64)

    def right_cells(self, bins: int) -> Floats:
        """For every class the second half of the cells."""
        return np.tile(np.repeat([0.0, 1.0], bins), (self.classes, 1))

    def claim(self, probabilities: Floats, labels: Integers) -> tuple[Floats, Floats]:
        """Whether the prediction is right, and the prediction's confidence."""
        return self.side(probabilities, labels).astype(np.float64), probabilities.max(axis=1)

    def calibration_cells(self, cells: Floats) -> tuple[Floats, int]:
        """The counts of wrong predictions, then of right ones. Each is added up over the classes."""
        return cells.reshape(len(cells), 2, -1).sum(axis=0).ravel(), len(cells)

    def ends(self, edges: Floats) -> Floats:
        """The edges, which are confidences."""
        return np.stack([edges[:-1], edges[1:]], axis=1)

    def claimed(self, edges: Floats, counts: Floats) -> Floats:
        """Sums of the confidence in each bin.

        Within a bin the density is taken to be linear. But confidence piles up at 1. If the last bin holds more than
        the one before, 1 - confidence is taken to follow a power law over these two bins.
        """
        bins, width = len(edges) - 1, edges[1] - edges[0]
        rows = np.diag((edges[:-1] + edges[1:]) / 2.0)
        for b in range(1, bins - 1):
            rows[b, b + 1] += width / 24.0
            rows[b, b - 1] -= width / 24.0
        if counts[-1] > max(counts[-2], 0.0):
            last, before = power_means(width, 2.0 * width, counts[-1], counts[-2])
            rows[-2:] = 0.0
            rows[-1, -1], rows[-2, -2] = 1.0 - last, 1.0 - before
        return rows
