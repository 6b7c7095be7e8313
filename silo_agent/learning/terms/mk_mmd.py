"""Multi-kernel maximum mean discrepancy between paired features, with the kernel weights of greatest test power.

It is a batch statistic and has no gradient by patient. So it may act only on a model that never leaves the silo
(docs/design/noise.md, "What may feed an upload"). Formulas: Gretton et al. 2012, "Optimal kernel choice";
docs/design/terms.md, "Ditto, MK-MMD and cosine".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import cholesky, solve_triangular
from scipy.optimize import nnls
from torch.nn import functional

from silo_agent.learning.terms.term import Network, Seen

GAMMAS = tuple(2.0 ** (-3.5 + 0.25 * i) for i in range(19))
"""Kernels exp(-|x - y|^2 / gamma) on features of length 1."""
RIDGE = 1e-5
_OCTAVE = 4
"""So many gammas make a factor of 2."""
_PAIRS = 2
"""The fewest records that have a kernel covariance."""


def loss(seen: Seen, _own: Network, _anchor: Network) -> torch.Tensor:
    """Squared MK-MMD between the features and those of the constant model, a scalar; 0 for fewer than two records.

    Features are the encoder's output. What heads read beside it is the same in both models.

    The kernel weights are chosen anew for every batch, and its gradient treats them as constants.
    """
    if len(seen.phi) < _PAIRS:
        return seen.phi.new_zeros(())
    reference = seen.constant()
    compared = compare(seen.phi[:, : reference.shape[1]], reference)
    return compared.mmd(kernel_weights(compared.statistics()))


@dataclass(frozen=True, repr=False, eq=False)
class Compared:
    """Features x and constant features y, of length 1 (n, k), and their kernels' values (19, n, n)."""

    x: torch.Tensor
    y: torch.Tensor
    own: torch.Tensor
    other: torch.Tensor
    cross: torch.Tensor

    def statistics(self) -> torch.Tensor:
        """h_st = k(x_s,x_t) + k(y_s,y_t) - k(x_s,y_t) - k(x_t,y_s) per kernel, (19, n, n), without a gradient."""
        return self.own + self.other - self.cross - self.cross.transpose(1, 2)

    def mmd(self, weights: NDArray[np.float64]) -> torch.Tensor:
        """Squared MK-MMD, a scalar >= 0, as the biased V-statistic over all n^2 pairs; its gradient reaches x."""
        value: torch.Tensor = _Mmd.apply(  # type: ignore[no-untyped-call]  # torch has no types for it
            self.x, self, torch.tensor(weights, dtype=self.x.dtype, device=self.x.device)
        )
        return value


def compare(x: torch.Tensor, y: torch.Tensor) -> Compared:
    """Compare features (n, k), scaled to length 1: the fixed gammas fit only features of that length."""
    x, y = functional.normalize(x, dim=1), functional.normalize(y.detach(), dim=1)
    with torch.no_grad():
        return Compared(x, y, *(_kernels(a, b) for a, b in ((x, x), (y, y), (x, y))))


def _kernels(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """exp(-|a_s - b_t|^2 / gamma) for every gamma, (19, n, n), from one matrix of distances.

    Half of a gamma squares its kernel, so that four exponentials are enough.
    """
    distances = (2.0 - 2.0 * a @ b.T).clamp(min=0.0)
    found = distances.new_empty((len(GAMMAS), *distances.shape))
    for at in reversed(range(len(GAMMAS))):
        if at + _OCTAVE < len(GAMMAS):
            torch.square(found[at + _OCTAVE], out=found[at])
        else:
            torch.exp(distances / -GAMMAS[at], out=found[at])
    return found


class _Mmd(torch.autograd.Function):
    """The weighted mean of the statistics. Its gradient by x is two matrix products, whatever the number of kernels."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, compared: Compared, weights: torch.Tensor) -> torch.Tensor:
        """The statistic at `x`, which is that of `compared`."""
        ctx.save_for_backward(x, weights)
        ctx.compared = compared
        means = compared.own.mean(dim=(1, 2)) + compared.other.mean(dim=(1, 2)) - 2.0 * compared.cross.mean(dim=(1, 2))
        return weights @ means

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        """The derivative of a kernel by its distance is -k / gamma, and that of |a - b|^2 by a is 2 (a - b)."""
        x, weights = ctx.saved_tensors
        compared, slopes = ctx.compared, weights / weights.new_tensor(GAMMAS)
        near, far = (torch.tensordot(slopes, part, dims=1) for part in (compared.own, compared.cross))
        own = near @ x - near.sum(dim=1, keepdim=True) * x
        other = far @ compared.y - far.sum(dim=1, keepdim=True) * x
        return gradients[0] * (own - other) * (4.0 / len(x) ** 2), None, None


def power_problem(statistics: torch.Tensor) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean m (19,) and regularised covariance A = 2 Q + 1e-5 I (19, 19) of the pair statistics."""
    h = statistics.detach().double().flatten(1).cpu().numpy()
    mean = h.mean(axis=1)
    centred = h - mean[:, None]
    covariance = centred @ centred.T / max(h.shape[1] - 1, 1)
    return mean, 2.0 * covariance + RIDGE * np.eye(len(mean))


def kernel_weights(statistics: torch.Tensor) -> NDArray[np.float64]:
    """Return beta (19,) >= 0 of sum 1, of greatest power for the statistics (19, n, n)."""
    return coefficients(*power_problem(statistics))


def coefficients(mean: NDArray[np.float64], a: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return beta (19,) >= 0 of sum 1: min beta'A beta with m'beta = 1, up to scale.

    The minimiser has the direction of argmin_{b>=0} b'A b / 2 - m'b, because the KKT conditions are equal up to scale.
    That is a non-negative least-squares problem. If no kernel sees a difference, all weight goes to the kernel with the
    largest m_i / A_ii.
    """
    weights = np.zeros(len(mean))
    if mean.max() > 0.0:
        lower = cholesky(a, lower=True)
        weights = nnls(lower.T, solve_triangular(lower, mean, lower=True))[0]
    if not weights.sum() > 0.0:
        weights = np.zeros(len(mean))
        weights[np.argmax(mean / np.diag(a))] = 1.0
    return np.asarray(weights / weights.sum(), np.float64)
