"""Logits of records under the heads of their own domains."""

from __future__ import annotations

import torch


def head_logits(phi: torch.Tensor, heads: torch.Tensor, domains: torch.Tensor) -> torch.Tensor:
    """Logits (n, R) of every record under its own domain's head; `heads` (M, R (k+1)), of a row the bias is last.

    R is the family's: one row for two classes, whose logit is that of the second class; R = C rows for more.
    """
    own = heads[domains].view(len(phi), heads.shape[1] // (phi.shape[1] + 1), phi.shape[1] + 1)
    return (phi[:, None, :] * own[:, :, :-1]).sum(dim=2) + own[:, :, -1]
