"""A kernel with a network inside, trained to tell two sets of features apart, and the estimator it is trained with.

Source: Liu et al. 2020, "Learning Deep Kernels for Non-Parametric Two-Sample Tests" (Eq. 1, 4 and 5);
docs/design/terms.md, "MMD-D". The kernel reads a silo's own records, so it is as private as they are: it stays in the
personal model's file.
"""

from __future__ import annotations

import math
from typing import Final, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from silo_agent.learning.terms.resumable import Resumable, public_layers

_HIDDEN: Final = 10
_OUT: Final = 50
RATE: Final = 1e-3
"""Of AdamW, which trains the kernel."""
_LEAST_VARIANCE: Final = 1e-8
_LEAST_WIDTH: Final = 1e-6
"""The widths are squares of what is trained, which may pass 0."""
_START_MIX: Final = math.log(0.5e-10)
"""Raw share of the plain kernel at the start: next to none."""
_START_PLAIN: Final = math.sqrt(2.0 * 32.0 * 32.0)
_START_DEEP: Final = math.sqrt(0.005)


class DeepKernel(nn.Module):
    """k(x, y) = ((1 - e) exp(-|phi x - phi y|^2 / a) + e) exp(-|x - y|^2 / b), of features with `width` values.

    Every kernel of a width starts from the same public weights.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = public_layers((width, _HIDDEN, _HIDDEN, _HIDDEN, _OUT))
        self.raw = nn.Parameter(torch.tensor([_START_MIX, _START_DEEP, _START_PLAIN]))

    def embedded(self, x: torch.Tensor) -> torch.Tensor:
        """Phi of features (n, width), (n, 50)."""
        *hidden, last = self.layers
        for layer in hidden:
            x = functional.softplus(layer(x))
        embedded: torch.Tensor = last(x)
        return embedded

    def statistics(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """H_st = k(x_s,x_t) + k(y_s,y_t) - k(x_s,y_t) - k(x_t,y_s), (n, n), of features (n, width) each."""
        deep = self.embedded(torch.cat([x, y]))
        n, share = len(x), torch.sigmoid(self.raw[0])
        near = (1.0 - share) * torch.exp(-_distances(deep) / (self.raw[1] ** 2 + _LEAST_WIDTH)) + share
        kernel = near * torch.exp(-_distances(torch.cat([x, y])) / (self.raw[2] ** 2 + _LEAST_WIDTH))
        cross = kernel[:n, n:]
        return kernel[:n, :n] + kernel[n:, n:] - cross - cross.T


def discrepancy(statistics: torch.Tensor) -> torch.Tensor:
    """The unbiased squared MMD from statistics (n, n), n >= 2: may be negative. No record is paired with itself."""
    n = len(statistics)
    return (statistics.sum() - statistics.diagonal().sum()) / (n * (n - 1))


def power(statistics: torch.Tensor) -> torch.Tensor:
    """The estimate over its deviation where the two sets differ, which the test's power grows with."""
    n = len(statistics)
    variance = 4.0 / n**3 * (statistics.sum(dim=1) ** 2).sum() - 4.0 / n**4 * statistics.sum() ** 2
    return discrepancy(statistics) / torch.sqrt(variance.clamp(min=0.0) + _LEAST_VARIANCE)


class Trained(Resumable):
    """A kernel with its optimiser (AdamW), which goes on where it was left."""

    def __init__(self, width: int, device: torch.device | str = "cpu") -> None:
        self.kernel = DeepKernel(width).to(device)
        super().__init__(self.kernel, RATE, "deep kernel")

    def improve(self, x: torch.Tensor, y: torch.Tensor, steps: int, shuffle: np.random.Generator) -> None:
        """Take steps towards more power on features (n, width) each, n >= 2, which stay as they are.

        The second set is put in another order at each step, because the same record stands in both.
        """
        held = self.kernel.raw.dtype
        x, y = x.detach().to(held), y.detach().to(held)

        def loss() -> torch.Tensor:
            order = torch.tensor(shuffle.permutation(len(y)), device=y.device)
            return -power(self.kernel.statistics(x, y[order]))

        self.descend(loss, steps)

    @classmethod
    def from_array(cls, width: int, flat: NDArray[np.float32], device: torch.device | str = "cpu") -> Self:
        """Inverse of `to_array`. Raises ValueError for another length, and for values that training never gives."""
        kernel = cls(width, device)
        kernel.load(flat)
        return kernel


def _distances(x: torch.Tensor) -> torch.Tensor:
    """|x_s - x_t|^2, (n, n), of the rows of x; exactly 0 on the diagonal."""
    squares = (x**2).sum(dim=1)
    distances = (squares[:, None] + squares[None, :] - 2.0 * x @ x.T).clamp(min=0.0)
    return distances * (1.0 - torch.eye(len(x), dtype=x.dtype, device=x.device))
