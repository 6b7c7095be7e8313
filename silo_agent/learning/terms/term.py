"""What the code of a term looks like, and what it may look at.

Guarantees nothing by itself: that a loss is per record is declared in `policies.documents.terms`, examined when a study
begins (`private.accountable`), and shown by tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import nn

from silo_agent.learning.encoder.encoder import Encoder
from silo_agent.learning.families.family import Family


@dataclass(frozen=True, repr=False, eq=False)
class Batch:
    """b records, and what they are judged by.

    `x` (b, d), `images` (b, c, h, w) or None, `y` int64 (b,), `domains` int64 (b,), `weights` (b,) how much each record
    counts or None for once, `heads` (M, W).
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
    """Of a stochastic encoder: moments (b, k) of what was drawn, and the tables that are trained with it."""

    mean: torch.Tensor
    deviation: torch.Tensor
    tables: nn.Module


@dataclass(frozen=True, repr=False, eq=False)
class Seen:
    """A batch as the encoder sees it: `phi` (b, k); `latent` where features are drawn."""

    batch: Batch
    phi: torch.Tensor
    latent: Latent | None = None


class Network(Protocol):
    """A whole model that is trained, or read as a constant: encoder and heads."""

    @property
    def encoder(self) -> Encoder:
        """What gives phi."""
        ...

    def parameters(self) -> Iterator[nn.Parameter]:
        """All weights, in one order."""
        ...


RecordTerm = Callable[[Seen], torch.Tensor]
"""Loss of every record, (b,), each of its own record alone."""
ModelTerm = Callable[[Seen, Network, Network], torch.Tensor]
"""One number for the model that is trained, given the constant one that it is held to."""
