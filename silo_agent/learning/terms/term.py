"""The types of a term's code, and of what a term may read.

The types alone guarantee nothing. `policies.documents.terms` declares that a loss is per record, `private.accountable`
examines it when a study begins, and tests show it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import nn

from silo_agent.learning.encoder.encoder import Encoder
from silo_agent.learning.families.family import Family
from silo_agent.learning.terms.deep_kernel import DeepKernel


@dataclass(frozen=True, repr=False, eq=False)
class Batch:
    """b records, and the heads and family for their losses.

    `x` (b, d); `images` (b, c, h, w) or None; `y` int64 (b,); `domains` int64 (b,); `weights` (b,), how much each
    record counts, or None if each counts once; `heads` (M, W).
    """

    x: torch.Tensor
    images: torch.Tensor | None
    y: torch.Tensor
    domains: torch.Tensor
    weights: torch.Tensor | None
    heads: torch.Tensor
    family: Family


@dataclass(frozen=True, repr=False, eq=False)
class Latent:
    """What a stochastic encoder adds: mean and deviation (b, k) of the draw, and the tables trained with it."""

    mean: torch.Tensor
    deviation: torch.Tensor
    tables: nn.Module


@dataclass(frozen=True, repr=False, eq=False)
class Seen:
    """A batch with what heads read of it: `phi` (b, width), the encoder's output (b, k) first.

    `latent` if the output is drawn at random. `reference` (b, k): what the encoder of the constant model gives, if
    there is such a model; without a gradient. `kernel`: the deep kernel, if a term needs it.
    """

    batch: Batch
    phi: torch.Tensor
    latent: Latent | None = None
    reference: torch.Tensor | None = None
    kernel: DeepKernel | None = None

    def constant(self) -> torch.Tensor:
        """`reference`. Raises ValueError if there is no constant model."""
        if self.reference is None:
            msg = "the term compares with the features of a constant model, and there is none"
            raise ValueError(msg)
        return self.reference


class Network(Protocol):
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
ModelTerm = Callable[[Seen, Network, Network], torch.Tensor]
"""One number for a batch, the model that is trained, and the constant model that it is held close to."""
