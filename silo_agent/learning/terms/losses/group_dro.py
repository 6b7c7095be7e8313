"""GroupDRO: environments that are predicted badly count more (Sagawa et al. 2020, Algorithm 1).

It is written as what the environments' weights change in the mean over records. So with a coefficient of 1 the two
together are GroupDRO's loss, and nothing is left of the mean. It couples the records of a batch, so it may feed no
upload that needs noise (docs/design/terms.md, "IRM and GroupDRO").
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from silo_agent.learning.terms.losses import cross_entropy
from silo_agent.learning.terms.term import Seen, WholeModel

Floats = NDArray[np.float64]


def loss(seen: Seen, _own: WholeModel, _anchor: WholeModel) -> torch.Tensor:
    """Weighted sum of the environments' risks less the mean loss of the records, a scalar.

    An environment that the batch lacks adds nothing. Raises ValueError without environments or their weights.
    """
    if seen.groups is None:
        msg = "the term group_dro needs the weights of the environments"
        raise ValueError(msg)
    losses = cross_entropy.losses(seen)
    means, present = seen.batch.environment_means(losses)
    return seen.groups[present].to(means) @ means - losses.mean()


def risks(seen: Seen, count: int) -> Floats:
    """Mean loss of each of `count` environments, (E,), without a gradient; 0 of one that the batch lacks."""
    with torch.no_grad():
        means, present = seen.batch.environment_means(cross_entropy.losses(seen))
    mean_loss = np.zeros(count)
    mean_loss[present.cpu().numpy()] = means.double().cpu().numpy()
    return mean_loss


def moved(weights: Floats, risks: Floats, rate: float) -> Floats:
    """Weights (E,) after one step of exponentiated gradient: q exp(rate risk), scaled to sum 1."""
    grown = weights * np.exp(rate * (risks - risks.max()))
    return np.asarray(grown / grown.sum(), np.float64)
