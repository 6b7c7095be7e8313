"""FedAvg: the heads are trained with the encoder, in its own steps, and averaged with it.

One head for all, or one for each domain (docs/design/recipes.md, "FedAvg"). The heads are part of what a step clips and
noises, so with noise this is FedAvg with DP-SGD, and costs what the encoder's steps cost.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from silo_agent.learning.terms.term import Batch


class TrainedHeads(nn.Module):
    """Heads (D, W) that are trained; D is 1 for one head of all. A table, because Opacus takes gradients of these."""

    def __init__(self, heads: NDArray[np.float64]) -> None:
        super().__init__()
        self.rows = nn.Embedding(len(heads), heads.shape[1], _weight=torch.tensor(heads, dtype=torch.float32))

    def forward(self, domains: torch.Tensor) -> torch.Tensor:
        """The heads (b, W) of records of these domains (b,)."""
        rows: torch.Tensor = self.rows(domains if self.rows.num_embeddings > 1 else torch.zeros_like(domains))
        return rows

    def read_by(self, batch: Batch) -> Batch:
        """The batch under these heads, each record under its own."""
        own = self(batch.domains)
        return replace(batch, heads=own, domains=torch.arange(len(own), device=own.device))
