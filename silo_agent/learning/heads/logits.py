"""Logits of records under the heads of their own domains."""

from __future__ import annotations

import torch


def head_logits(phi: torch.Tensor, heads: torch.Tensor, domains: torch.Tensor) -> torch.Tensor:
    """Logits (n, R) of every record under its own domain's head. `heads` (M, R (k+1)); the bias is last in each row.

    The family sets R. Two classes have one row, the logit of the second class. More classes have R = C rows.
    """
    own = heads[domains].view(len(phi), heads.shape[1] // (phi.shape[1] + 1), phi.shape[1] + 1)
    return (phi[:, None, :] * own[:, :, :-1]).sum(dim=2) + own[:, :, -1]
