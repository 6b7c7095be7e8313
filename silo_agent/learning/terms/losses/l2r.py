"""FedSR's L2R term: the squared length of a record's features (FedSR Eq. 4, the squared form of the paper)."""

from __future__ import annotations

import torch

from silo_agent.learning.terms.term import Seen


def losses(seen: Seen) -> torch.Tensor:
    """|phi|^2 of every record, (b,). What heads read beside the encoder's output adds a constant."""
    return squared_norm(seen.phi)


def squared_norm(phi: torch.Tensor) -> torch.Tensor:
    """|z|^2 of features (n, k): (n,)."""
    return (phi**2).sum(dim=1)
