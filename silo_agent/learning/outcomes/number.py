"""A number: one row of weights, which gives the outcome t in [-1, 1] itself (`data.outcome` places it there).

The prediction is m = clip(f) to [-1, 1], f the row times z. The residual is e = m - t, so |e| <= 2 for every head. It
is the derivative of a convex loss: (f - t)^2 / 2 within the range, a straight line beyond it. At its minimum the sums
of predictions and outcomes are equal in every domain, and where all predictions lie within the range it is least
squares.

The curvature S is 1 everywhere, also beyond the range, where the loss has none. So a Newton step never goes further
than the loss allows and never makes it larger, no head can make the sum singular, and H is the same at every head.

Sensitivity. A record's packed terms are (sqrt(r) svec(H) / C^2, sqrt(1 - r) g / (2 C)), with r = `SHARE`. Their norm is
at most 1 if ||z||^2 <= C^2, for any r from 0 to 1. So r is a choice (docs/design/heads.md, "Joint sensitivity 1" and
"A number").
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch

from policies.documents.study import NUMBER
from policies.plan.families import TARGET_STEPS, Form, form_of
from silo_agent.learning.outcomes.expected import ExpectedOutcomes
from silo_agent.learning.outcomes.family import C, Floats
from silo_agent.learning.outcomes.response import Response

SHARE = 0.2
"""r, the part of the squared norm that the Hessian may take. Measured: docs/design/heads.md, "A number"."""
MOST_RESIDUAL = 2.0
_HALF = TARGET_STEPS // 2


@dataclass(frozen=True)
class Squared:
    """The family of outcomes that are numbers."""

    curvature_part: float = 1.0

    @property
    def form(self) -> Form:
        """One row of weights, one predicted value."""
        return form_of(NUMBER)

    # --- sums of heads --------------------------------------------------------------------------------------------
    @property
    def hessian_factor(self) -> float:
        """The factor sqrt(r) / C^2, times `curvature_part`."""
        return self.curvature_part * math.sqrt(SHARE) / C**2

    @property
    def gradient_divisor(self) -> float:
        """The divisor 2 C / sqrt(1 - r)."""
        return MOST_RESIDUAL * C / math.sqrt(1.0 - SHARE)

    def with_curvature(self, part: float) -> Squared:
        """The same with `part` of the factor. A smaller factor on the Hessian's term lengthens no term."""
        return replace(self, curvature_part=part)

    def expected(self, logits: torch.Tensor) -> ExpectedOutcomes:
        """The prediction: the row's value, clipped to [-1, 1]."""
        mean = logits.clamp(-1.0, 1.0)
        return ExpectedOutcomes(mean, 1.0 - mean)

    def residual(self, expected: ExpectedOutcomes, labels: torch.Tensor) -> torch.Tensor:
        """The residual m - t. One rounding: t lies on a grid of float64."""
        return expected.mean - _targets(labels, expected.mean)[:, None]

    def farthest(self, expected: ExpectedOutcomes) -> torch.Tensor:
        """The end of the public range that is further away."""
        return torch.where(expected.mean[:, 0] > 0.0, 0, TARGET_STEPS)

    def curvature_norm(self, expected: ExpectedOutcomes) -> torch.Tensor:
        """The norm of S, which is 1."""
        return torch.ones_like(expected.mean[:, 0])

    def curvature_sum(self, expected: ExpectedOutcomes, z: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:  # noqa: ARG002 - S is 1
        """The sum Z' diag(weight) Z."""
        return z.T @ (weight[:, None] * z)

    @property
    def intercept_scale(self) -> tuple[float, ...]:
        """The factors sqrt(1 - r) / 2 and sqrt(r)."""
        return (math.sqrt(1.0 - SHARE) / MOST_RESIDUAL, math.sqrt(SHARE))

    def intercept_terms(self, expected: ExpectedOutcomes, error: torch.Tensor) -> torch.Tensor:
        """The residual and the curvature 1, scaled: the squared norm is at most (1 - r) + r, because |e| <= 2."""
        residual, curvature = self.intercept_scale
        return torch.cat([residual * error, torch.full_like(expected.mean, curvature)], dim=1)

    def response(self, sums: Floats) -> Response:  # noqa: ARG002 - the curvature is 1 everywhere
        """No growth."""
        return Response(np.zeros(1), np.ones(1))

    def centred(self, hessian: Floats, gradient: Floats) -> tuple[Floats, Floats]:
        """The sums unchanged, because every direction of a single row of weights moves a prediction."""
        return hessian, gradient

    # --- training -------------------------------------------------------------------------------------------------
    def losses(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Half the squared error (n,) within the range. Beyond it the loss goes on as a straight line."""
        value = logits[:, 0]
        clipped = value.clamp(-1.0, 1.0)
        error = clipped - _targets(labels, value)
        return error**2 / 2.0 + error * (value - clipped)

    # --- prediction -----------------------------------------------------------------------------------------------
    @property
    def operation(self) -> str:
        """The value within [-1, 1]."""
        return "clipped"

    def probabilities(self, logits: Floats) -> Floats:
        """Predictions (n, 1) in [-1, 1]. `data.outcome` brings them to the label's unit."""
        return np.clip(logits, -1.0, 1.0)


def _targets(labels: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Outcomes (n,) in [-1, 1] of places (n,), in the type of `like`; exact in float32."""
    return labels.to(like.dtype) / _HALF - 1.0
