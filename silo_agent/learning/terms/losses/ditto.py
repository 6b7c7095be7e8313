"""Ditto's distance: half the squared distance of all weights from the shared model's (Li et al. 2021, Algorithm 1).

It reads weights and no record, so it has no gradient by patient. It may act only on the model that never leaves.
"""

from __future__ import annotations

import torch

from silo_agent.learning.terms.term import Seen, WholeModel


def loss(_seen: Seen, own: WholeModel, anchor: WholeModel) -> torch.Tensor:
    """|w - w_shared|^2 / 2, a scalar."""
    pairs = zip(own.parameters(), anchor.parameters(), strict=True)
    return torch.stack([((mine - shared) ** 2).sum() for mine, shared in pairs]).sum() / 2.0
