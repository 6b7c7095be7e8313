"""IRMv1's penalty: how much a common factor on the logits would help in each environment (Arjovsky et al. 2019).

Squaring a mean couples the records of a batch, so the term may feed no upload that needs noise
(docs/design/terms.md, "IRM and GroupDRO").
"""

from __future__ import annotations

import torch

from silo_agent.learning.heads.logits import head_logits
from silo_agent.learning.terms.term import Seen, WholeModel


def loss(seen: Seen, _own: WholeModel, _anchor: WholeModel) -> torch.Tensor:
    """Mean over the batch's environments of the squared derivative of the risk by a factor at 1, a scalar.

    In closed form, so there is no second backward pass: a record's derivative is its residual times its logits. Raises
    ValueError if the batch has no environments.
    """
    means, _ = seen.batch.environment_means(slopes(seen))
    return (means**2).mean()


def slopes(seen: Seen) -> torch.Tensor:
    """Derivative (b,) of every record's loss by a factor on its logits, at 1; weighted as the loss is."""
    batch = seen.batch
    logits = head_logits(seen.phi, batch.heads, batch.domains, batch.family.form.logits)
    slope = (batch.family.residual(batch.family.expected(logits), batch.y) * logits).sum(dim=1)
    return slope if batch.weights is None else batch.weights * slope
