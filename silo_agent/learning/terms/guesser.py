"""The network that guesses protected attributes from a representation, and how it is trained.

Source: docs/design/terms.md, "Adversary". It reads the silo's own records, so it is as private as they are: it stays in
the personal model's file.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import torch
from torch import nn
from torch.nn import functional

from silo_agent.learning.terms.resumable import Resumable, public_layers

_HIDDEN: Final = 32
_RATE: Final = 3e-3


class Guesser(nn.Module):
    """Two hidden layers of 32 with ReLU, and logits for every value of every attribute.

    `counts`: number of values of each attribute; `width`: k of the representation, whose values lie in
    [-1, 1] / sqrt(k).
    """

    def __init__(self, width: int, counts: Sequence[int]) -> None:
        super().__init__()
        self.layers = public_layers((width, _HIDDEN, _HIDDEN, sum(counts)))
        self.counts, self._scale = list(counts), math.sqrt(width)

    def forward(self, phi: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Logits (n, values) of each attribute, for representations (n, width)."""
        *hidden, last = self.layers
        x = phi * self._scale
        for layer in hidden:
            x = functional.relu(layer(x))
        return torch.split(last(x), self.counts, dim=1)

    def losses(self, phi: torch.Tensor, protected: torch.Tensor) -> torch.Tensor:
        """Cross-entropy of each attribute, (P,), for places int64 (n, P), n >= 1: the mean of its groups' means.

        Each group that the batch has counts the same. In a mean over records a rare group would hardly count, and an
        attacker tells it from the others all the same.
        """
        pairs = zip(self(phi), protected.T, strict=True)
        return torch.stack([_by_group(functional.cross_entropy(q, own, reduction="none"), own) for q, own in pairs])

    def chance(self, protected: torch.Tensor) -> torch.Tensor:
        """The losses (P,) of who guesses without looking: log of the number of groups that the batch has."""
        return torch.stack([torch.log(torch.tensor(float(len(torch.unique(own))))) for own in protected.T])


def _by_group(values: torch.Tensor, groups: torch.Tensor) -> torch.Tensor:
    """The mean over the groups present of the mean of `values` (n,) in each."""
    present, index = torch.unique(groups, return_inverse=True)
    sums = values.new_zeros(len(present)).index_add(0, index, values)
    return (sums / torch.bincount(index, minlength=len(present)).to(values)).mean()


class TrainedGuesser(Resumable):
    """A guesser with its optimiser, which goes on where it was left."""

    def __init__(self, width: int, counts: Sequence[int], device: torch.device | str = "cpu") -> None:
        self.network = Guesser(width, counts).to(device)
        super().__init__(self.network, _RATE, "adversary")

    def improve(self, phi: torch.Tensor, protected: torch.Tensor, steps: int) -> None:
        """Take steps towards better guesses on representations (n, width), which stay as they are."""
        fixed = phi.detach()
        self.descend(lambda: self.network.losses(fixed, protected).sum(), steps)
