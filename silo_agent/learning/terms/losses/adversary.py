"""Less its loss: the model is rewarded where a network fails to guess protected attributes from the representation.

Source: Ganin et al. 2016, in the alternating form of LG-FedAvg's fair variant (docs/design/terms.md, "Adversary"). The
guessing network was trained on other records of the silo, without noise, so the term acts on the personal model alone.
A guess worse than chance is not rewarded: it tells as much as a good one.
"""

from __future__ import annotations

import torch

from silo_agent.learning.terms.term import Seen, WholeModel


def loss(seen: Seen, own: WholeModel, _anchor: WholeModel) -> torch.Tensor:
    """Less the sum of the guesser's losses on the batch, each at most what chance has: a scalar.

    The guesser is constant here: it is trained before the step. Raises ValueError if there is no guesser or the batch
    has no protected attributes.
    """
    if seen.adversary is None or seen.batch.protected is None:
        msg = "the term adversary needs its network and the protected attributes of the records"
        raise ValueError(msg)
    protected = seen.batch.protected
    losses = seen.adversary.losses(seen.phi[:, : own.encoder.representation], protected)
    return -torch.minimum(losses, seen.adversary.chance(protected).to(losses)).sum()
