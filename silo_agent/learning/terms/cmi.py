"""FedSR's CMI term: how far a record's features q(z|x) lie from its class's, r(z|y) (docs/design/terms.md, "FedSR").

r(z|y) is one Gaussian for each class, held in tables that are trained in the same step. The tables are `nn.Embedding`,
because Opacus takes per-sample gradients of a table look-up, but not of a bare Parameter.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from silo_agent.learning.encoder.encoder import MIN_DEVIATION
from silo_agent.learning.terms.term import Seen

_START = 1.0
"""Raw deviation at the start, as in FedSR: softplus(1) = 1.3133."""


def losses(seen: Seen) -> torch.Tensor:
    """KL(q(z|x) || r(z|y)) of every record, (b,). Raises ValueError if the encoder is not stochastic."""
    latent = seen.latent
    if latent is None:
        msg = "the term cmi needs a stochastic encoder and the tables of r(z|y)"
        raise ValueError(msg)
    return gaussian_kl(latent.mean, latent.deviation, *latent.tables(seen.batch.y))


def gaussian_kl(
    mean: torch.Tensor, deviation: torch.Tensor, prior_mean: torch.Tensor, prior_deviation: torch.Tensor
) -> torch.Tensor:
    """KL(N(mean, deviation^2) || N(prior_mean, prior_deviation^2)), summed over coordinates: (n,)."""
    ratio = (deviation**2 + (mean - prior_mean) ** 2) / (2.0 * prior_deviation**2)
    return (torch.log(prior_deviation / deviation) + ratio - 0.5).sum(dim=1)


class Prior(nn.Module):
    """Means (which start at 0) and raw deviations, (C, k) each. For labels (n,) it gives mean and deviation, (n, k)."""

    def __init__(self, representation: int, classes: int) -> None:
        super().__init__()
        self.mean = nn.Embedding(classes, representation, _weight=torch.zeros(classes, representation))
        self.raw = nn.Embedding(classes, representation, _weight=torch.full((classes, representation), _START))

    def forward(self, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean and deviation of r(.|y), (n, k) each, for int64 labels (n,)."""
        return self.mean(labels), functional.softplus(self.raw(labels)) + MIN_DEVIATION
