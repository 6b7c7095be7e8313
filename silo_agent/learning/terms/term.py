"""The types of a term's code, and of what a term may read.

The types alone guarantee nothing. `policies.documents.terms` declares that a loss is per record, `dpsgd.examination`
examines it when a study begins, and tests show it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from silo_agent.learning.encoder.encoder import Encoder
from silo_agent.learning.outcomes.family import Family
from silo_agent.learning.terms.guesser import Guesser
from silo_agent.learning.terms.losses.deep_kernel import DeepKernel


@dataclass(frozen=True, repr=False, eq=False)
class Batch:
    """b records, and the heads and family for their losses.

    `x` (b, d); `images` (b, c, h, w) or None; `y` int64 (b,); `domains` int64 (b,); `weights` (b,), how much each
    record counts, or None if each counts once; `heads` (M, W); `environments` int64 (b,), if the study names a column;
    `protected` int64 (b, P), places of the protected attributes, or None if no term reads them.
    """

    x: torch.Tensor
    images: torch.Tensor | None
    y: torch.Tensor
    domains: torch.Tensor
    weights: torch.Tensor | None
    heads: torch.Tensor
    family: Family
    environments: torch.Tensor | None = None
    protected: torch.Tensor | None = None

    def environment_means(self, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean of `values` (b,) in each environment that the batch has, (P,), and which these are, int64 (P,).

        Raises ValueError if the records have no environments.
        """
        if self.environments is None:
            msg = "the term compares environments, and the records have none"
            raise ValueError(msg)
        present, index = torch.unique(self.environments, return_inverse=True)
        sums = values.new_zeros(len(present)).index_add(0, index, values)
        return sums / torch.bincount(index, minlength=len(present)).to(values), present


@dataclass(frozen=True, repr=False, eq=False)
class Latent:
    """What a stochastic encoder adds: mean and deviation (b, k) of the draw, and by label those of r(z|y).

    `scale` (b, 1): what both are multiplied by before they are compared with r(z|y), if it is trained.
    """

    mean: torch.Tensor
    deviation: torch.Tensor
    tables: Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]
    scale: torch.Tensor | None = None


@dataclass(frozen=True, repr=False, eq=False)
class LayerPair:
    """One layer's output in the model that is trained and in the constant one, (b, w) each; its deep kernel, if any."""

    own: torch.Tensor
    constant: torch.Tensor
    kernel: DeepKernel | None = None


@dataclass(frozen=True, repr=False, eq=False)
class Seen:
    """A batch with what heads read of it: `phi` (b, width), the encoder's output (b, k) first.

    `latent` if the output is drawn at random. `reference` (b, k): what the encoder of the constant model gives, if
    there is such a model; without a gradient. `kernel`: the deep kernel, if a term needs it. `groups` (E,): how much
    each environment counts, if a term needs it. `deeper`: the layers below that are compared too, from the last down.
    `mixtures` (1 + deeper, 19): weights of MK-MMD's kernels for each layer; None if they are chosen on the batch.
    `adversary`: what guesses the protected attributes.
    """

    batch: Batch
    phi: torch.Tensor
    latent: Latent | None = None
    reference: torch.Tensor | None = None
    kernel: DeepKernel | None = None
    groups: torch.Tensor | None = None
    deeper: tuple[LayerPair, ...] = ()
    mixtures: NDArray[np.float64] | None = None
    adversary: Guesser | None = None

    def compared(self) -> tuple[LayerPair, ...]:
        """The layers that are compared: the encoder's output, then `deeper`. Raises ValueError as `constant`."""
        constant = self.constant()
        return (LayerPair(self.phi[:, : constant.shape[1]], constant, self.kernel), *self.deeper)

    def constant(self) -> torch.Tensor:
        """`reference`. Raises ValueError if there is no constant model."""
        if self.reference is None:
            msg = "the term compares with the features of a constant model, and there is none"
            raise ValueError(msg)
        return self.reference


class WholeModel(Protocol):
    """A whole model, encoder and heads. It is trained, or read as a constant."""

    @property
    def encoder(self) -> Encoder:
        """The encoder, which gives phi."""
        ...

    def parameters(self) -> Iterator[nn.Parameter]:
        """All weights, always in the same order."""
        ...


RecordTerm = Callable[[Seen], torch.Tensor]
"""Loss of every record, (b,). Each loss depends on its own record alone."""
ModelTerm = Callable[[Seen, WholeModel, WholeModel], torch.Tensor]
"""One number for a batch, the model that is trained, and the constant model that it is held close to."""
StepTerm = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""Gradient by one tensor of weights, from it and from what it was at the start of the round. No record is read."""
