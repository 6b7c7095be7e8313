"""FedSR's class-conditional prior r(z|y): one Gaussian per class, as tables (docs/design/terms.md, "FedSR").

`nn.Embedding` because Opacus finds the per-sample gradient of a table look-up, and finds none for a bare Parameter.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from silo_agent.learning.encoder.encoder import MIN_DEVIATION

_START = 1.0
"""Raw deviation at the start, as in FedSR: softplus(1) = 1.3133."""


class Prior(nn.Module):
    """Means (start 0) and raw deviations, (C, k) each. Given labels: mean (n, k) and deviation (n, k)."""

    def __init__(self, representation: int, classes: int) -> None:
        super().__init__()
        self.mean = nn.Embedding(classes, representation, _weight=torch.zeros(classes, representation))
        self.raw = nn.Embedding(classes, representation, _weight=torch.full((classes, representation), _START))

    def forward(self, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Moments of r(.|y) for int64 labels (n,)."""
        return self.mean(labels), functional.softplus(self.raw(labels)) + MIN_DEVIATION
