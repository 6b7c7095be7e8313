"""Losses of one record, so that a gradient per patient exists: nothing here couples the records of a batch."""

from __future__ import annotations

import torch
from torch.nn import functional


def head_logits(phi: torch.Tensor, heads: torch.Tensor, domains: torch.Tensor) -> torch.Tensor:
    """Logits (n, R) of every record under its own domain's head; `heads` (M, R (k+1)), of a row the bias is last.

    Of two classes there is R = 1 row, whose logit is that of the second class; of C > 2 there are R = C.
    """
    own = heads[domains].view(len(phi), heads.shape[1] // (phi.shape[1] + 1), phi.shape[1] + 1)
    return (phi[:, None, :] * own[:, :, :-1]).sum(dim=2) + own[:, :, -1]


def cross_entropy(phi: torch.Tensor, heads: torch.Tensor, domains: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Cross-entropy (n,) of every record under its own domain's head; `labels` int64 (n,), the index of the class."""
    logits = head_logits(phi, heads, domains)
    if logits.shape[1] > 1:
        return functional.cross_entropy(logits, labels, reduction="none")
    return functional.binary_cross_entropy_with_logits(logits[:, 0], labels.to(logits.dtype), reduction="none")


def squared_norm(phi: torch.Tensor) -> torch.Tensor:
    """FedSR's L2R term |z|^2, (n,) (FedSR Eq. 4, the squared form of the paper)."""
    return (phi**2).sum(dim=1)


def gaussian_kl(
    mean: torch.Tensor, deviation: torch.Tensor, prior_mean: torch.Tensor, prior_deviation: torch.Tensor
) -> torch.Tensor:
    """FedSR's CMI term KL(N(mean, deviation^2) || N(prior_mean, prior_deviation^2)), summed over coordinates: (n,)."""
    ratio = (deviation**2 + (mean - prior_mean) ** 2) / (2.0 * prior_deviation**2)
    return (torch.log(prior_deviation / deviation) + ratio - 0.5).sum(dim=1)
