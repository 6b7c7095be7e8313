"""Losses of one record, so that a gradient per patient exists: nothing here couples the records of a batch."""

from __future__ import annotations

import torch
from torch.nn import functional


def head_logits(phi: torch.Tensor, heads: torch.Tensor, domains: torch.Tensor) -> torch.Tensor:
    """Logit (n,) of every record under its own domain's head; `heads` (M, k+1), bias last."""
    own = heads[domains]
    return (phi * own[:, :-1]).sum(dim=1) + own[:, -1]


def cross_entropy(phi: torch.Tensor, heads: torch.Tensor, domains: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Binary cross-entropy (n,) of every record under its own domain's head; `labels` float (n,)."""
    return functional.binary_cross_entropy_with_logits(head_logits(phi, heads, domains), labels, reduction="none")


def squared_norm(phi: torch.Tensor) -> torch.Tensor:
    """FedSR's L2R term |z|^2, (n,) (FedSR Eq. 4, the squared form of the paper)."""
    return (phi**2).sum(dim=1)


def gaussian_kl(
    mean: torch.Tensor, deviation: torch.Tensor, prior_mean: torch.Tensor, prior_deviation: torch.Tensor
) -> torch.Tensor:
    """FedSR's CMI term KL(N(mean, deviation^2) || N(prior_mean, prior_deviation^2)), summed over coordinates: (n,)."""
    ratio = (deviation**2 + (mean - prior_mean) ** 2) / (2.0 * prior_deviation**2)
    return (torch.log(prior_deviation / deviation) + ratio - 0.5).sum(dim=1)
