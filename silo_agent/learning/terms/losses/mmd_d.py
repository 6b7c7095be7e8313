"""MMD-D: the squared maximum mean discrepancy under a deep kernel, which is trained beside the personal model.

It is a batch statistic and has no gradient by patient, so it may act only on a model that never leaves the silo
(docs/design/terms.md, "MMD-D").
"""

from __future__ import annotations

from typing import Final

import torch

from silo_agent.learning.terms.losses.deep_kernel import discrepancy
from silo_agent.learning.terms.term import Seen, WholeModel

FEWEST: Final = 2
"""Records that have a pair."""


def loss(seen: Seen, _own: WholeModel, _anchor: WholeModel) -> torch.Tensor:
    """Unbiased squared MMD between the features and the constant model's, a scalar; 0 for fewer than two records.

    The kernel is constant here: `deep_kernel.Trained.improve` trains it before the step. Deeper layers that are
    compared too have kernels of their own and add their values. Raises ValueError if a kernel is absent.
    """
    if len(seen.phi) < FEWEST:
        return seen.phi.new_zeros(())
    parts = []
    for layer in seen.compared():
        if layer.kernel is None:
            msg = "the term mmd_d needs its deep kernel"
            raise ValueError(msg)
        parts.append(discrepancy(layer.kernel.statistics(layer.own, layer.constant)))
    return torch.stack(parts).sum()
