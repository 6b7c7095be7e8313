"""Multi-kernel maximum mean discrepancy between paired features, with the kernel weights of greatest test power.

It is a batch statistic and has no gradient by patient. So it may act only on a model that never leaves the silo
(docs/design/noise.md, "What may feed an upload"). Formulas: Gretton et al. 2012, "Optimal kernel choice";
docs/design/terms.md, "Ditto and MK-MMD".
"""

from __future__ import annotations

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
_PAIRS = 2
"""The fewest records that have a kernel covariance."""


def loss(seen: Seen, _own: Network, anchor: Network) -> torch.Tensor:
    """Squared MK-MMD between the features and those of the constant model, a scalar; 0 for fewer than two records.

    Features are the encoder's output. What heads read beside it is the same in both models.

    The kernel weights are chosen anew for every batch, and its gradient treats them as constants.
    """
    if len(seen.phi) < _PAIRS:
        return seen.phi.new_zeros(())
    with torch.no_grad():
        reference = anchor.encoder(seen.batch.x, seen.batch.images)
    own = anchor.encoder.representation
    statistics = pair_statistics(seen.phi[:, :own], reference[:, :own])
    return mk_mmd(statistics, kernel_weights(statistics))


def pair_statistics(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """h_st = k(x_s,x_t) + k(y_s,y_t) - k(x_s,y_t) - k(x_t,y_s) per kernel, (19, n, n), of features (n, k) each.

    Features are scaled to length 1 first, because the fixed gammas fit only features of that length.
    """
    x, y = functional.normalize(x, dim=1), functional.normalize(y, dim=1)
    gammas = torch.tensor(GAMMAS, dtype=x.dtype, device=x.device)[:, None, None]

    def kernels(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.exp(-(2.0 - 2.0 * a @ b.T).clamp(min=0.0) / gammas)

    cross = kernels(x, y)
    return kernels(x, x) + kernels(y, y) - cross - cross.transpose(1, 2)


def power_problem(statistics: torch.Tensor) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean m (19,) and regularised covariance A = 2 Q + 1e-5 I (19, 19) of the pair statistics."""
    h = statistics.detach().double().flatten(1).cpu().numpy()
    mean = h.mean(axis=1)
    centred = h - mean[:, None]
    covariance = centred @ centred.T / max(h.shape[1] - 1, 1)
    return mean, 2.0 * covariance + RIDGE * np.eye(len(mean))


def kernel_weights(statistics: torch.Tensor) -> NDArray[np.float64]:
    """Return beta (19,) >= 0 of sum 1: min beta'A beta with m'beta = 1, up to scale.

    The minimiser has the direction of argmin_{b>=0} b'A b / 2 - m'b, because the KKT conditions are equal up to scale.
    That is a non-negative least-squares problem. If no kernel sees a difference, all weight goes to the kernel with the
    largest m_i / A_ii.
    """
    mean, a = power_problem(statistics)
    weights = np.zeros(len(mean))
    if mean.max() > 0.0:
        lower = cholesky(a, lower=True)
        weights = nnls(lower.T, solve_triangular(lower, mean, lower=True))[0]
    if not weights.sum() > 0.0:
        weights = np.zeros(len(mean))
        weights[np.argmax(mean / np.diag(a))] = 1.0
    return np.asarray(weights / weights.sum(), np.float64)


def mk_mmd(statistics: torch.Tensor, weights: NDArray[np.float64]) -> torch.Tensor:
    """Squared MK-MMD, a scalar >= 0, as the biased V-statistic over all n^2 pairs."""
    betas = torch.tensor(weights, dtype=statistics.dtype, device=statistics.device)
    return (betas * statistics.mean(dim=(1, 2))).sum()
