"""A kernel with a network inside, trained to tell two sets of features apart, and the estimator it is trained with.

Source: Liu et al. 2020, "Learning Deep Kernels for Non-Parametric Two-Sample Tests" (Eq. 1, 4 and 5);
docs/design/terms.md, "MMD-D". The kernel reads a silo's own records, so it is as private as they are: it stays in the
personal model's file.
"""

from __future__ import annotations

import itertools
import math
from typing import Final, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

_HIDDEN: Final = 10
_OUT: Final = 50
_RATE: Final = 1e-3
_LEAST_VARIANCE: Final = 1e-8
_LEAST_WIDTH: Final = 1e-6
"""The widths are squares of what is trained, which may pass 0."""
_START_MIX: Final = math.log(0.5e-10)
"""Raw share of the plain kernel at the start: next to none."""
_START_PLAIN: Final = math.sqrt(2.0 * 32.0 * 32.0)
_START_DEEP: Final = math.sqrt(0.005)
_SEED: Final = 1
_MOMENTS: Final = ("exp_avg", "exp_avg_sq")


class DeepKernel(nn.Module):
    """k(x, y) = ((1 - e) exp(-|phi x - phi y|^2 / a) + e) exp(-|x - y|^2 / b), of features with `width` values.

    Every kernel of a width starts from the same public weights.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        drawn = torch.Generator().manual_seed(_SEED)
        self.layers = nn.ModuleList()
        for inputs, outputs in itertools.pairwise((width, _HIDDEN, _HIDDEN, _HIDDEN, _OUT)):
            layer, bound = nn.Linear(inputs, outputs), inputs**-0.5
            for values in layer.parameters():
                nn.init.uniform_(values, -bound, bound, generator=drawn)
            self.layers.append(layer)
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


class Trained:
    """A kernel with its optimiser (AdamW), which goes on where it was left."""

    def __init__(self, width: int, device: torch.device | str = "cpu") -> None:
        self.kernel = DeepKernel(width).to(device)
        self._optimizer = torch.optim.AdamW(self.kernel.parameters(), lr=_RATE)
        for parameter in self.kernel.parameters():
            moments = {name: torch.zeros_like(parameter) for name in _MOMENTS}
            self._optimizer.state[parameter] = {"step": torch.zeros(()), **moments}

    def improve(self, x: torch.Tensor, y: torch.Tensor, steps: int, shuffle: np.random.Generator) -> None:
        """Take steps towards more power on features (n, width) each, n >= 2, which stay as they are.

        The second set is put in another order at each step, because the same record stands in both.
        """
        x, y = x.detach().float(), y.detach().float()
        with torch.enable_grad():
            for _ in range(steps):
                order = torch.tensor(shuffle.permutation(len(y)), device=y.device)
                self._optimizer.zero_grad()
                torch.autograd.backward(-power(self.kernel.statistics(x, y[order])))
                self._optimizer.step()
        self._optimizer.zero_grad()

    def to_array(self) -> NDArray[np.float32]:
        """Weights and the optimiser's moments, flat, the step last."""
        parts: list[torch.Tensor] = []
        step = torch.zeros(())
        for parameter in self.kernel.parameters():
            state = self._optimizer.state[parameter]
            parts += [parameter.detach(), *(state[name] for name in _MOMENTS)]
            step = state["step"]
        return np.concatenate([*(part.cpu().numpy().ravel() for part in parts), [float(step)]]).astype(np.float32)

    @classmethod
    def from_array(cls, width: int, flat: NDArray[np.float32], device: torch.device | str = "cpu") -> Self:
        """Inverse of `to_array`. Raises ValueError for another length, and for values that training never gives."""
        found = cls(width, device)
        sizes = [parameter.numel() for parameter in found.kernel.parameters() for _ in range(1 + len(_MOMENTS))]
        if flat.shape != (sum(sizes) + 1,) or not np.isfinite(flat).all() or flat[-1] < 0:
            msg = "the deep kernel has another size than its study says, or a value that is not finite"
            raise ValueError(msg)
        parts = iter(torch.tensor(part, device=device) for part in np.split(flat[:-1], np.cumsum(sizes)[:-1]))
        with torch.no_grad():
            for parameter in found.kernel.parameters():
                parameter.copy_(next(parts).view_as(parameter))
                state = found._optimizer.state[parameter]
                state["step"] = torch.tensor(float(flat[-1]))
                for name in _MOMENTS:
                    state[name] = next(parts).view_as(parameter).clone()
        return found


def _distances(x: torch.Tensor) -> torch.Tensor:
    """|x_s - x_t|^2, (n, n), of the rows of x; exactly 0 on the diagonal."""
    squares = (x**2).sum(dim=1)
    found = (squares[:, None] + squares[None, :] - 2.0 * x @ x.T).clamp(min=0.0)
    return found * (1.0 - torch.eye(len(x), dtype=x.dtype, device=x.device))
