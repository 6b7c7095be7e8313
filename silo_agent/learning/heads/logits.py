"""Logits of records under the heads of their own domains."""

from __future__ import annotations

import torch


def head_logits(phi: torch.Tensor, heads: torch.Tensor, domains: torch.Tensor, rows: int) -> torch.Tensor:
    """Logits (n, R) of every record under its own domain's head. `heads` (M, R K), R = `rows` as the family says.

    Two classes have one row, the logit of the second class. More classes have R = C rows. A row has a weight for each
    of the k values of `phi`, and the bias last if K = k + 1.
    """
    k = phi.shape[1]
    own = heads[domains].view(len(phi), rows, heads.shape[1] // rows)
    logits = (phi[:, None, :] * own[:, :, :k]).sum(dim=2)
    return logits if own.shape[2] == k else logits + own[:, :, k]
