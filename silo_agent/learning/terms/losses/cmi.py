"""FedSR's CMI term: how far a record's features q(z|x) lie from its class's, r(z|y) (docs/design/terms.md, "FedSR").

r(z|y) is one Gaussian for each class, held in tables that are trained in the same step. The tables are `nn.Embedding`,
because Opacus takes per-sample gradients of a table look-up, but not of a bare Parameter.

If the study says `encoder.cmi_scale`, mean and deviation of q(z|x) are multiplied by one positive number before they
are compared, which is trained with the tables: so FedSR's published code does, and its paper does not say so.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from policies.documents.study import DataSchema, EncoderPlan, Model
from silo_agent.learning.encoder.encoder import MIN_DEVIATION
from silo_agent.learning.terms.term import Seen

_START: Final = 1.0
"""Raw deviation at the start, as in FedSR: softplus(1) = 1.3133."""
MIN_SCALE: Final = 1e-3
"""Added to the scale, because noise may push its raw value far down and the divergence must stay finite."""
_SCALE_START: Final = math.log(math.expm1(1.0 - MIN_SCALE))
"""Raw scale at the start: with `MIN_SCALE` it is 1."""
_APART = 1
"""Beside the seed, so that fixed means are drawn apart from the encoder's weights."""


def losses(seen: Seen) -> torch.Tensor:
    """KL(q(z|x) || r(z|y)) of every record, (b,). Raises ValueError if the encoder is not stochastic."""
    latent = seen.latent
    if latent is None:
        msg = "the term cmi needs a stochastic encoder and the tables of r(z|y)"
        raise ValueError(msg)
    mean, deviation = latent.mean, latent.deviation
    if latent.scale is not None:
        mean, deviation = latent.scale * mean, latent.scale * deviation
    return gaussian_kl(mean, deviation, *latent.tables(seen.batch.y))


def gaussian_kl(
    mean: torch.Tensor, deviation: torch.Tensor, prior_mean: torch.Tensor, prior_deviation: torch.Tensor
) -> torch.Tensor:
    """KL(N(mean, deviation^2) || N(prior_mean, prior_deviation^2)), summed over coordinates: (n,)."""
    ratio = (deviation**2 + (mean - prior_mean) ** 2) / (2.0 * prior_deviation**2)
    return (torch.log(prior_deviation / deviation) + ratio - 0.5).sum(dim=1)


class Prior(nn.Module):
    """Means (which start at 0) and raw deviations, (C, k) each, and with `scaled` the raw scale of q(z|x), (1, 1)."""

    def __init__(self, representation: int, classes: int, *, scaled: bool = False) -> None:
        super().__init__()
        self.mean = nn.Embedding(classes, representation, _weight=torch.zeros(classes, representation))
        self.raw = nn.Embedding(classes, representation, _weight=torch.full((classes, representation), _START))
        self.scale = nn.Embedding(1, 1, _weight=torch.full((1, 1), _SCALE_START)) if scaled else None

    def forward(self, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean and deviation of r(.|y), (n, k) each, for int64 labels (n,)."""
        return self.mean(labels), functional.softplus(self.raw(labels)) + MIN_DEVIATION

    def scale_of(self, labels: torch.Tensor) -> torch.Tensor | None:
        """The positive scale of q(z|x), (n, 1), the same for all n labels; None if there is none."""
        if self.scale is None:
            return None
        return functional.softplus(self.scale(torch.zeros_like(labels))) + MIN_SCALE


def prior_of(model: Model, data: DataSchema, plan: EncoderPlan) -> Prior:
    """The tables of a study with the term, at their start."""
    return Prior(model.representation, data.label.count, scaled=plan.cmi_scale)


class FixedPrior:
    """A public r(z|y) that is never trained: means (C, k) from a seed, of variance 1, and one deviation.

    It is no module, so no step can find a weight in it.
    """

    def __init__(self, representation: int, classes: int, seed: int) -> None:
        raw = np.random.PCG64([seed, _APART]).random_raw(classes * representation).reshape(classes, representation)
        even = (raw >> np.uint64(11)).astype(np.float64) * 2.0**-52 - 1.0
        self.means = torch.from_numpy((even * math.sqrt(3.0)).astype(np.float32))
        self.deviation = math.log1p(math.exp(_START)) + MIN_DEVIATION

    def __call__(self, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean and deviation of r(.|y), (n, k) each, for int64 labels (n,)."""
        mean = self.means.to(labels.device)[labels]
        return mean, torch.full_like(mean, self.deviation)


def fixed_prior(model: Model, data: DataSchema) -> FixedPrior:
    """The fixed r(z|y) of a study, from its public seed."""
    return FixedPrior(model.representation, data.label.count, model.seed)
