"""FedProx' pull: half the squared distance of a silo's weights from where the round began (Li et al. 2020, Eq. 2).

It reads weights alone, and no record. So its gradient needs no clip and no noise: it is added to a step after these.
"""

from __future__ import annotations

import torch


def pull(weight: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
    """The gradient of |w - w_start|^2 / 2 by one tensor of weights, in its shape."""
    return weight - start
