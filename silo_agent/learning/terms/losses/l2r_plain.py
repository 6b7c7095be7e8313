"""FedSR's L2R term as its code has it: the length of a record's features, not squared."""

from __future__ import annotations

from typing import Final

import torch

from silo_agent.learning.terms.losses.l2r import squared_norm
from silo_agent.learning.terms.term import Seen

_LEAST: Final = 1e-12
"""Under the root, so that the gradient at 0 is 0 and not infinite."""


def losses(seen: Seen) -> torch.Tensor:
    """|phi| of every record, (b,), within 1e-6. Its gradient by phi is at most 1 long, at 0 too."""
    return torch.sqrt(squared_norm(seen.phi) + _LEAST)
