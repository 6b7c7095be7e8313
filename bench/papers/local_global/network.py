"""The MLP of the LG-FedAvg paper on MNIST, 784-512-256-256-128-10 with ReLU, and its SGD.

A round is 600 steps of ten digits, too small for autograd to be worth its cost: the gradient is written out, and a
test compares it with `torch.optim.SGD`. The published code puts a softmax before the cross-entropy, which has one of
its own; here the network ends in logits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import torch
from torch.nn import functional

SIZES: Final = (784, 512, 256, 256, 128, 10)
LAYERS: Final = range(len(SIZES) - 1)
TOP: Final = 3
"""Layers of the shared part. The paper writes two, and the count of three, as its scripts have it."""
_MEAN, _DEVIATION = 0.1307, 0.3081

Weights = list[torch.Tensor]
"""Weights (out, in) and biases (out,) of layer after layer."""


@dataclass(frozen=True)
class Digits:
    """Images (n, 784) of bytes and labels (n,)."""

    images: torch.Tensor
    labels: torch.Tensor

    def inputs(self) -> torch.Tensor:
        """Images (n, 784) as the network reads them."""
        return (self.images.float() / 255.0 - _MEAN) / _DEVIATION

    def of(self, rows: np.ndarray) -> Digits:
        """Some of them."""
        chosen = torch.from_numpy(rows)
        return Digits(self.images[chosen], self.labels[chosen])


@dataclass(frozen=True)
class VisitTraining:
    """SGD of one visit; momentum begins at zero in each. The paper's values (its Table 5)."""

    rate: float = 0.05
    momentum: float = 0.5
    batch: int = 10


def start(seed: int, sizes: Sequence[int] = SIZES) -> Weights:
    """First weights as `torch.nn.Linear` draws them."""
    drawn = torch.Generator().manual_seed(seed)
    return [
        (2.0 * torch.rand(shape, generator=drawn) - 1.0) * inputs**-0.5
        for inputs, outputs in pairwise(sizes)
        for shape in ((outputs, inputs), (outputs,))
    ]


def lower(weights: Weights, top: int = TOP) -> Weights:
    """The local part: all layers but the last `top`."""
    return weights[: len(weights) - 2 * top]


def upper(weights: Weights, top: int = TOP) -> Weights:
    """The shared part: the last `top` layers."""
    return weights[len(weights) - 2 * top :]


def count(weights: Weights) -> int:
    """Values in all."""
    return sum(values.numel() for values in weights)


def mean(models: Sequence[Weights], records: Sequence[int]) -> Weights:
    """The mean of models by their records."""
    shares = torch.tensor(records, dtype=torch.float32) / sum(records)
    return [torch.tensordot(shares, torch.stack(parts), dims=1) for parts in zip(*models, strict=True)]


def logits(weights: Weights, inputs: torch.Tensor) -> torch.Tensor:
    """(n, 10) of inputs (n, 784)."""
    return _hidden(weights, inputs)[-1]


@torch.inference_mode()
def train(weights: Weights, digits: Digits, rng: np.random.Generator, training: VisitTraining, *,
          epochs: int = 1, frozen: int = 0) -> Weights:  # fmt: skip
    """What a silo's visit makes of the weights: the last `frozen` layers stay, the others are trained.

    Each step is plain SGD with momentum on the mean cross-entropy of a batch. The result lies in one piece of memory.
    """
    whole, parts = _joined(weights)
    moving = len(weights) - 2 * frozen
    velocity, velocities = _joined([torch.zeros_like(values) for values in weights[:moving]])
    moved, ones = whole[: len(velocity)], torch.ones(training.batch)
    inputs, wanted = digits.inputs(), functional.one_hot(digits.labels, len(weights[-1])).float()
    for _ in range(epochs):
        order = torch.from_numpy(rng.permutation(len(inputs)))
        for x, y in zip(
            torch.split(inputs[order], training.batch), torch.split(wanted[order], training.batch), strict=True
        ):
            hidden = _hidden(parts, x)
            error = torch.softmax(hidden.pop(), dim=1).sub_(y).div_(len(x))
            for at in reversed(range(0, len(weights), 2)):
                if at < moving:
                    velocities[at].addmm_(error.T, hidden[-1], beta=training.momentum)
                    velocities[at + 1].addmv_(error.T, ones[: len(x)], beta=training.momentum)
                if at:
                    error = torch.ops.aten.threshold_backward(torch.mm(error, parts[at]), hidden.pop(), 0)
            moved.add_(velocity, alpha=-training.rate)
    return parts


def _hidden(weights: Weights, inputs: torch.Tensor) -> list[torch.Tensor]:
    """The inputs, what each layer makes of them, and the logits last."""
    layers = [inputs]
    for at in range(0, len(weights), 2):
        made = torch.addmm(weights[at + 1], layers[-1], weights[at].T)
        layers.append(made.relu_() if at + 2 < len(weights) else made)
    return layers


def _joined(weights: Weights) -> tuple[torch.Tensor, Weights]:
    """A copy in one piece, and the same by layers: one addition moves them all."""
    whole = torch.cat([values.flatten() for values in weights])
    pieces = torch.split(whole, [values.numel() for values in weights])
    return whole, [piece.view(values.shape) for piece, values in zip(pieces, weights, strict=True)]
