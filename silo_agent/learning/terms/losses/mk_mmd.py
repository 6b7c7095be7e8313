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
from scipy.optimize import nnls
from torch.nn import functional

from silo_agent.learning.terms.term import Seen, WholeModel

GAMMAS = tuple(2.0 ** (-3.5 + 0.25 * i) for i in range(19))
"""Kernels exp(-|x - y|^2 / gamma) on features of length 1."""
RIDGE = 1e-5
_OCTAVE = 4
"""So many gammas make a factor of 2."""
FEWEST = 2
"""The fewest records that have a kernel covariance."""


def loss(seen: Seen, _own: WholeModel, _anchor: WholeModel) -> torch.Tensor:
    """Squared MK-MMD between the features and those of the constant model, a scalar; 0 for fewer than two records.

    Features are the encoder's output. What heads read beside it is the same in both models. Deeper layers that are
    compared too add their own values.

    The kernel weights are those of `seen.mixtures`, or chosen anew for the batch. The gradient treats them as
    constants.
    """
    if len(seen.phi) < FEWEST:
        return seen.phi.new_zeros(())
    parts = []
    for place, layer in enumerate(seen.compared()):
        compared = compare(layer.own, layer.constant)
        chosen = kernel_weights(compared.statistics()) if seen.mixtures is None else seen.mixtures[place]
        parts.append(compared.mmd(chosen))
    return torch.stack(parts).sum()


@dataclass(frozen=True, repr=False, eq=False)
class PairedKernels:
    """Features x and constant features y (..., n, k), and their kernels' values (19, ..., n, n).

    Leading dimensions are batches that do not see each other.
    """

    x: torch.Tensor
    y: torch.Tensor
    own: torch.Tensor
    other: torch.Tensor
    cross: torch.Tensor

    def statistics(self) -> torch.Tensor:
        """h_st = k(x_s,x_t) + k(y_s,y_t) - k(x_s,y_t) - k(x_t,y_s) per kernel, (19, ..., n, n), without a gradient."""
        return self.own + self.other - self.cross - self.cross.mT

    def mmd(self, weights: NDArray[np.float64]) -> torch.Tensor:
        """Squared MK-MMD >= 0, (...), as the biased V-statistic over all n^2 pairs; its gradient reaches x.

        `weights` (..., 19): those of every batch, or (19,) for all of them.
        """
        value: torch.Tensor = _Mmd.apply(  # type: ignore[no-untyped-call]  # torch has no types for it
            self.x, self, torch.tensor(weights, dtype=self.x.dtype, device=self.x.device)
        )
        return value


def compare(x: torch.Tensor, y: torch.Tensor) -> PairedKernels:
    """Compare features (..., n, k), scaled to length 1: the fixed gammas fit only features of that length."""
    return compare_as_given(functional.normalize(x, dim=-1), functional.normalize(y, dim=-1))


def compare_as_given(x: torch.Tensor, y: torch.Tensor) -> PairedKernels:
    """Compare features (..., n, k) that have a length for which the gammas fit."""
    y = y.detach()
    with torch.no_grad():
        return PairedKernels(x, y, *(_kernels(a, b) for a, b in ((x, x), (y, y), (x, y))))


def _kernels(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """exp(-|a_s - b_t|^2 / gamma) for every gamma, (19, ..., n, n), from one matrix of distances.

    Half of a gamma squares its kernel, so that four exponentials are enough.
    """
    squares = (a**2).sum(dim=-1)[..., :, None] + (b**2).sum(dim=-1)[..., None, :]
    distances = (squares - 2.0 * a @ b.mT).clamp(min=0.0)
    kernels = distances.new_empty((len(GAMMAS), *distances.shape))
    for at in reversed(range(len(GAMMAS))):
        if at + _OCTAVE < len(GAMMAS):
            torch.square(kernels[at + _OCTAVE], out=kernels[at])
        else:
            torch.exp(distances / -GAMMAS[at], out=kernels[at])
    return kernels


class _Mmd(torch.autograd.Function):
    """The weighted mean of the statistics. Its gradient by x is two matrix products, whatever the number of kernels."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, compared: PairedKernels, weights: torch.Tensor) -> torch.Tensor:
        """The statistic at `x`, which is that of `compared`."""
        ctx.save_for_backward(x, weights)
        ctx.compared = compared
        own, other, cross = (part.mean(dim=(-2, -1)) for part in (compared.own, compared.other, compared.cross))
        return (weights * (own + other - 2.0 * cross).movedim(0, -1)).sum(dim=-1)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        """The derivative of a kernel by its distance is -k / gamma, and that of |a - b|^2 by a is 2 (a - b)."""
        x, weights = ctx.saved_tensors
        compared, slopes = ctx.compared, weights / weights.new_tensor(GAMMAS)
        near, far = (torch.einsum("...k,k...st->...st", slopes, part) for part in (compared.own, compared.cross))
        own = near @ x - near.sum(dim=-1, keepdim=True) * x
        other = far @ compared.y - far.sum(dim=-1, keepdim=True) * x
        return gradients[0][..., None, None] * (own - other) * (4.0 / x.shape[-2] ** 2), None, None


def power_problem(statistics: torch.Tensor) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean m (..., 19) and regularised covariance A = 2 Q + 1e-5 I (..., 19, 19) of statistics (19, ..., n, n)."""
    h = statistics.detach().double().flatten(-2).movedim(0, -2).cpu().numpy()
    mean = h.mean(axis=-1)
    centred = h - mean[..., None]
    covariance = centred @ centred.swapaxes(-2, -1) / max(h.shape[-1] - 1, 1)
    return mean, 2.0 * covariance + RIDGE * np.eye(mean.shape[-1])


def kernel_weights(statistics: torch.Tensor) -> NDArray[np.float64]:
    """Return beta (..., 19) >= 0 of sum 1, of greatest power for the statistics (19, ..., n, n)."""
    return coefficients(*power_problem(statistics))


def coefficients(mean: NDArray[np.float64], a: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return beta (..., 19) >= 0 of sum 1: min beta'A beta with m'beta = 1, up to scale; A is (..., 19, 19).

    The minimiser has the direction of argmin_{b>=0} b'A b / 2 - m'b, because the KKT conditions are equal up to scale.
    That is a non-negative least-squares problem. If no kernel sees a difference, all weight goes to the kernel with the
    largest m_i / A_ii.
    """
    lower = np.linalg.cholesky(a)
    target = np.linalg.solve(lower, mean[..., None])[..., 0]
    weights = np.zeros(mean.shape)
    for at in np.ndindex(mean.shape[:-1]):
        if mean[at].max() > 0.0:
            weights[at] = nnls(lower[at].T, target[at])[0]
        if not weights[at].sum() > 0.0:
            weights[at] = np.arange(mean.shape[-1]) == np.argmax(mean[at] / np.diag(a[at]))
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True), np.float64)
