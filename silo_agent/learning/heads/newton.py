"""One Newton step per head from the opened, noised sums, with the repair of docs/design/heads.md, "Repair".

Pure float64 numpy on public values (opened sums are differentially private). The result is not bit-identical on all
machines. So one silo of the roster solves and the others check (docs/design/heads.md, "What is solved and checked").
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from policies.documents.study import HeadPlan
from silo_agent.learning.outcomes.family import C

_RELATIVE_FLOOR = 1e-10
_ABSOLUTE_FLOOR = 1e-12
"""An eigenvalue below these is rounding error. The gradient has no part along it, so the floor only avoids 0 / 0."""


def solve(
    heads: NDArray[np.float64],
    hessian: NDArray[np.float64],
    gradient: NDArray[np.float64],
    noise_sd: float,
    plan: HeadPlan,
    *,
    pooled: bool,
) -> NDArray[np.float64]:
    """The next heads: w - U max(|e|, lam)^-1 U' g, lam = c sd_H sqrt(2W), no further than `plan.max_step`.

    `heads` (M, W). `hessian` (D, W, W) and `gradient` (D, W) are summed over the silos; D = 1 if `pooled` (all heads
    are equal then), else M. `noise_sd` is sd_H, the noise on svec(H) (`heads.sums.hessian_noise_sd`). Returns float64
    (M, W). Raises ValueError for other shapes. Without noise this is Newton's step for the pooled logistic regression,
    and FedDAR's Eq. 8 after one local Newton step. In a direction without curvature, a head stays as it is if the
    gradient is zero there too; the family's `centred` ensures that. Such a direction exists in a softmax, which does
    not change if the same row is added to every class.
    """
    count, width = heads.shape
    blocks = 1 if pooled else count
    if hessian.shape != (blocks, width, width) or gradient.shape != (blocks, width):
        msg = f"{blocks} blocks of width {width} were expected, {hessian.shape} and {gradient.shape} came"
        raise ValueError(msg)
    edge = noise_edge(noise_sd, width, plan.repair)
    steps = np.stack([_step(h, g, edge, plan.max_step) for h, g in zip(hessian, gradient, strict=True)])
    return heads + (np.broadcast_to(steps, heads.shape) if pooled else steps)


def shortening(
    moves: NDArray[np.float64], hessian: NDArray[np.float64], heads: NDArray[np.float64]
) -> NDArray[np.float64]:
    """By what each head's move (M, W) has to be multiplied for the loss of classes to fall, (M,), at most 1.

    The factor is log(1 + d) / d, with d = C times the geometric mean of ||move|| and sqrt(move' H move / tr H). It is
    at least exp(-C ||head||), so the first step, from heads of zero, is whole. `hessian` (D, W, W), D = M or 1, and
    `moves` are in one frame, `heads` (M, W) in the features' coordinates.

    Source: the damped step of generalised self-concordant functions, Sun and Tran-Dinh 2019, Math. Program. 178;
    docs/design/heads.md, "Without noise".
    """
    squares = np.einsum("mi,mij,mj->m", moves, np.broadcast_to(hessian, (len(moves), *hessian.shape[1:])), moves)
    masses = np.maximum(np.trace(hessian, axis1=1, axis2=2), _ABSOLUTE_FLOOR)
    mean, most = np.sqrt(np.maximum(squares / masses, 0.0)), np.linalg.norm(moves, axis=1)
    lengths = np.maximum(C * np.sqrt(mean * most), _ABSOLUTE_FLOOR)
    sure = np.exp(-C * np.linalg.norm(heads, axis=1))
    return np.asarray(np.maximum(np.log1p(lengths) / lengths, sure))


def noise_edge(noise_sd: float, width: int, repair: float) -> float:
    """Return lam = c sd_H sqrt(2W): where the spectrum of the noise on a curvature (W, W) ends, times c."""
    return float(repair * noise_sd * np.sqrt(2.0 * width))


def _step(
    hessian: NDArray[np.float64], gradient: NDArray[np.float64], edge: float, radius: float
) -> NDArray[np.float64]:
    values, vectors = np.linalg.eigh((hessian + hessian.T) / 2.0)
    sizes = np.abs(values)
    floor = max(edge, _RELATIVE_FLOOR * float(sizes.max(initial=0.0)), _ABSOLUTE_FLOOR)
    step: NDArray[np.float64] = -vectors @ ((vectors.T @ gradient) / np.maximum(sizes, floor))
    length = float(np.linalg.norm(step))
    return step * (radius / length) if length > radius else step
