"""The loss that every training has: how badly the head of a record's domain predicts the record's outcome."""

from __future__ import annotations

import torch

from silo_agent.learning.heads.logits import head_logits
from silo_agent.learning.outcomes.family import Family
from silo_agent.learning.terms.term import Seen


def losses(seen: Seen) -> torch.Tensor:
    """Cross-entropy (b,) of every record. If records have weights (FedDAR's u_m), each is multiplied by its weight."""
    batch = seen.batch
    plain = cross_entropy(batch.family, seen.phi, batch.heads, batch.domains, batch.y)
    return plain if batch.weights is None else batch.weights * plain


def cross_entropy(
    family: Family, phi: torch.Tensor, heads: torch.Tensor, domains: torch.Tensor, labels: torch.Tensor
) -> torch.Tensor:
    """The family's loss (n,) of every record under its own domain's head. `labels` int64 (n,): indices of classes."""
    return family.losses(head_logits(phi, heads, domains, family.form.logits), labels)
