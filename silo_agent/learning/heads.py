"""Second-order sums of the heads (FedDAR Eq. 8 at the common head), and their packed form of l2 sensitivity 1.

Guarantees the bound of privacy.md, "Heads": however many records a patient has, in whatever domains, adding or
removing this patient moves the packed vector by at most 1 in l2. Feature norms are enforced here and not merely
expected. Noise and sealing come later.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray

C = math.sqrt(2.0)
"""Bound on the norm of z = (phi, 1): ||phi|| <= 1 and the bias."""
HESSIAN_SHARE = ((1.0 + math.sqrt(5.0)) / 2.0) ** 2.5 / 4.0
"""r = phi^2.5 / 4 = 0.8325, phi the golden ratio: the largest weight of the Hessian that costs no sensitivity. With p
the probability of the wrong class, (4 r p (1-p))^2 + p^2 <= 1 needs r^2 <= (1+p) / (16 p^2 (1-p)), which is
least at p = 1/phi."""
_HESSIAN_SCALE = 4.0 * HESSIAN_SHARE / C**2


def second_order_sums(
    features: torch.Tensor,
    labels: NDArray[np.float32],
    domains: NDArray[np.int64],
    patients: NDArray[np.int64],
    heads: NDArray[np.float64],
    *,
    pooled: bool,
    clip: float = 1.0,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Hessian and gradient of the logistic loss, summed over patients, at the common heads.

    `features` (n, k) on any device; the others as in `Records`; `heads` (M, K), K = k + 1, bias last. Returns H
    (D, K, K) and g (D, K) in float64, D = M, or D = 1 where `pooled` (then the heads must all be equal). A patient's
    records count with the weight 1 / (number of this patient's records). A domain without records gives zeros.
    With `clip` = tau, a record's term v of `pack` enters as v min(1, tau / ||v||) / tau, still at most 1 in norm: both
    sums are in units of tau, which Newton's step does not notice.
    """
    if pooled and not np.array_equal(heads, np.broadcast_to(heads[0], heads.shape)):
        msg = "pooled sums need one common head; these heads differ"
        raise ValueError(msg)
    device = features.device
    z = _bounded(features)
    width = z.shape[1]
    blocks = 1 if pooled else len(heads)
    block = torch.zeros(len(z), dtype=torch.int64, device=device) if pooled else _tensor(domains, device)
    weight = 1.0 / np.bincount(patients)[patients] if len(patients) else np.zeros(0)
    w = _tensor(heads, device)[block]
    p = torch.sigmoid((z * w).sum(dim=1))
    curvature = p * (1.0 - p)
    squares = (z**2).sum(dim=1)
    error = p - _tensor(labels.astype(np.float64), device)
    norm = torch.sqrt((_HESSIAN_SCALE * curvature * squares) ** 2 + error**2 * squares / C**2)
    u = _tensor(weight, device) / norm.clamp(min=clip)
    residual = (u * error)[:, None] * z
    gradient = torch.zeros(blocks, width, dtype=torch.float64, device=device).index_add_(0, block, residual)
    hessian = torch.zeros(blocks, width, width, dtype=torch.float64, device=device)
    scaled = (u * curvature)[:, None] * z
    for m in torch.unique(block).tolist():
        mine = block == m
        hessian[m] = z[mine].T @ scaled[mine]
    return hessian.cpu().numpy(), gradient.cpu().numpy()


def packed_size(blocks: int, width: int) -> int:
    """Values of `pack` for `blocks` heads of `width` = K = k + 1 weights."""
    return blocks * (width * (width + 1) // 2 + width)


def pack(hessian: NDArray[np.float64], gradient: NDArray[np.float64]) -> NDArray[np.float64]:
    """(4 r svec(H) / C^2, g / C), all domains' triangles first, then all gradients. Linear; float64 (packed_size,)."""
    rows, columns = np.triu_indices(hessian.shape[-1])
    off = np.where(rows == columns, 1.0, math.sqrt(2.0))
    triangles = hessian[:, rows, columns] * off * _HESSIAN_SCALE
    return np.concatenate([triangles.ravel(), gradient.ravel() / C])


def unpack(vector: NDArray[np.float64], blocks: int, width: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Inverse of `pack`: symmetric H (blocks, K, K) and g (blocks, K). Raises ValueError for another length."""
    if vector.shape != (packed_size(blocks, width),):
        msg = f"a statistic of {packed_size(blocks, width)} values was expected, {vector.shape} came"
        raise ValueError(msg)
    rows, columns = np.triu_indices(width)
    off = np.where(rows == columns, 1.0, math.sqrt(2.0))
    triangles = vector[: blocks * len(rows)].reshape(blocks, len(rows)) / (off * _HESSIAN_SCALE)
    hessian = np.zeros((blocks, width, width))
    hessian[:, rows, columns] = triangles
    hessian[:, columns, rows] = triangles
    return hessian, vector[blocks * len(rows) :].reshape(blocks, width) * C


def hessian_noise_sd(statistic_sd: float) -> float:
    """Noise of svec(H), for noise of `statistic_sd` on every coordinate of the packed vector: sd_H of privacy.md."""
    return float(statistic_sd / _HESSIAN_SCALE)


def _bounded(features: torch.Tensor) -> torch.Tensor:
    """(phi, 1) in float64 with ||phi|| <= 1. Float32 encoders exceed 1 by rounding; a broken one must not exceed it."""
    phi = torch.nan_to_num(features.detach().to(torch.float64), nan=0.0, posinf=1.0, neginf=-1.0)
    phi = phi / phi.norm(dim=1, keepdim=True).clamp(min=1.0)
    return torch.cat([phi, torch.ones(len(phi), 1, dtype=torch.float64, device=phi.device)], dim=1)


def _tensor(array: NDArray[np.generic], device: torch.device) -> torch.Tensor:
    return torch.tensor(array, device=device)
