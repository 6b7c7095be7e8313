"""How far the features of the own model turn away from those of the shared one: a mean of 1 - cosine.

The baseline of the paper of adaptive MMD (docs/design/terms.md, "Ditto, MK-MMD and cosine"). It reads the shared model,
which stays constant, so it acts on the personal model alone.
"""

from __future__ import annotations

import torch
from torch.nn import functional

from silo_agent.learning.terms.term import Network, Seen


def loss(seen: Seen, _own: Network, _anchor: Network) -> torch.Tensor:
    """The mean over records of 1 - cos(own features, the constant model's), a scalar in [0, 2].

    Features are the encoder's output. A feature vector of zeros has the cosine 0 with any other.
    """
    reference = seen.constant()
    return 1.0 - functional.cosine_similarity(seen.phi[:, : reference.shape[1]], reference, dim=1).mean()
