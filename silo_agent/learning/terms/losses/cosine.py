"""How far the features of the own model turn away from those of the shared one: a mean of 1 - cosine.

The baseline of the paper of adaptive MMD (docs/design/terms.md, "Ditto, MK-MMD and cosine"). It reads the shared model,
which stays constant, so it acts on the personal model alone.
"""

from __future__ import annotations

import torch
from torch.nn import functional

from silo_agent.learning.terms.term import Seen, WholeModel


def loss(seen: Seen, _own: WholeModel, _anchor: WholeModel) -> torch.Tensor:
    """The mean over records of 1 - cos(own features, the constant model's), a scalar in [0, 2] for each layer compared.

    Features are the encoder's output, and those of deeper layers that are compared too; their values are added. A
    feature vector of zeros has the cosine 0 with any other.
    """
    alike = [turned(layer.own, layer.constant) for layer in seen.compared()]
    return torch.stack(alike).sum()


def turned(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The mean over records of 1 - cos(x, y), (...), of features (..., n, k)."""
    return 1.0 - functional.cosine_similarity(x, y, dim=-1).mean(dim=-1)
