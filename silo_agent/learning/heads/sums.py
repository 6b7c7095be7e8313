"""Second-order sums of the heads (FedDAR Eq. 8 at the common head), and their packed form of l2 sensitivity 1.

Guarantees the bound of docs/design/heads.md, "Joint sensitivity 1": however many records a patient has, in whatever
domains, adding or removing this patient moves the packed vector by at most 1 in l2. Feature norms are enforced here and
not merely expected, and so is that every term is finite, whatever finite heads somebody sends. Noise and sealing come
later.

A head has one row of K = k + 1 weights for two classes (the logit of the second), and one row per class for more (a
softmax); W = rows x K. One record's terms are H = S (x) z z' and g = e (x) z with ||z||^2 <= C^2. Two classes:
S = p (1 - p), e = p - y. More: S = diag(p) - p p', e = p - y with y one-hot, and for any number of classes

    ||S||_F^2 <= lambda_max(S) tr(S) <= (1 - sum p^2) / 2,   as each row of |S| sums to 2 p_c (1 - p_c) <= 1/2,
    ||e||^2 / 2 = (1 - 2 p_y + sum p^2) / 2,                 so that together they are at most 1 - p_y <= 1:

(svec(H) / C^2, g / (sqrt(2) C)) has norm at most 1, that is r = 1/2. At p = (0, 1/2, 1/2), y = 0 it is 1 whatever the
weights of H below this one, and above 1 for any larger r.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray

from policies.documents.study import BINARY

C = math.sqrt(2.0)
"""Bound on the norm of z = (phi, 1): ||phi|| <= 1 and the bias."""
HESSIAN_SHARE = ((1.0 + math.sqrt(5.0)) / 2.0) ** 2.5 / 4.0
"""r = phi^2.5 / 4 = 0.8325, phi the golden ratio: the largest weight of the Hessian that costs no sensitivity. With p
the probability of the wrong class, (4 r p (1-p))^2 + p^2 <= 1 needs r^2 <= (1+p) / (16 p^2 (1-p)), which is
least at p = 1/phi."""
SOFTMAX_SHARE = 0.5
"""r for more than two classes; the proof is above."""
_CHUNK = 1 << 22
"""Most values of one intermediate matrix of a softmax head (32 MiB of float64)."""


def second_order_sums(
    features: torch.Tensor,
    labels: NDArray[np.int64],
    domains: NDArray[np.int64],
    patients: NDArray[np.int64],
    heads: NDArray[np.float64],
    *,
    pooled: bool,
    clip: float = 1.0,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Hessian and gradient of the cross-entropy, summed over patients, at the common heads.

    `features` (n, k) on any device; the others as in `Records`; `heads` (M, W), of a row's K weights the bias is last.
    Returns H (D, W, W) and g (D, W) in float64, D = M, or D = 1 where `pooled` (then the heads must all be equal). A
    patient's records count with the weight 1 / (number of this patient's records). A domain without records gives
    zeros. With `clip` = tau, a record's term v of `pack` enters as v min(1, tau / ||v||) / tau, still at most 1 in
    norm: both sums are in units of tau, which Newton's step does not notice. A record whose logits overflow under
    these heads has no term: it enters as zero.
    """
    if pooled and not np.array_equal(heads, np.broadcast_to(heads[0], heads.shape)):
        msg = "pooled sums need one common head; these heads differ"
        raise ValueError(msg)
    device = features.device
    z = _bounded(features)
    if heads.shape[1] % z.shape[1]:
        msg = f"heads of {heads.shape[1]} weights do not fit {z.shape[1] - 1} features and a bias"
        raise ValueError(msg)
    block = torch.zeros(len(z), dtype=torch.int64, device=device) if pooled else _tensor(domains, device)
    weight = _tensor(1.0 / np.bincount(patients)[patients] if len(patients) else np.zeros(0), device)
    common = _tensor(heads[:1] if pooled else heads, device)
    sums = _binary_sums if heads.shape[1] == z.shape[1] else _softmax_sums
    hessian, gradient = sums(z, _tensor(labels, device), block, weight, common, clip=clip)
    return hessian.cpu().numpy(), gradient.cpu().numpy()


def packed_size(blocks: int, width: int) -> int:
    """Values of `pack` for `blocks` heads of `width` = W weights."""
    return blocks * (width * (width + 1) // 2 + width)


def pack(hessian: NDArray[np.float64], gradient: NDArray[np.float64], *, classes: int) -> NDArray[np.float64]:
    """(4 r svec(H) / C^2, g / C) for two classes, (2 r svec(H) / C^2, g / (sqrt(2) C)) for more.

    All domains' triangles come first, then all gradients. Linear; float64 (packed_size,).
    """
    for_hessian, for_gradient = _scales(classes)
    rows, columns = np.triu_indices(hessian.shape[-1])
    off = np.where(rows == columns, 1.0, math.sqrt(2.0))
    triangles = hessian[:, rows, columns] * off * for_hessian
    return np.concatenate([triangles.ravel(), gradient.ravel() / for_gradient])


def unpack(
    vector: NDArray[np.float64], blocks: int, width: int, *, classes: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Inverse of `pack`: symmetric H (blocks, W, W) and g (blocks, W). Raises ValueError for another length."""
    if vector.shape != (packed_size(blocks, width),):
        msg = f"a statistic of {packed_size(blocks, width)} values was expected, {vector.shape} came"
        raise ValueError(msg)
    for_hessian, for_gradient = _scales(classes)
    rows, columns = np.triu_indices(width)
    off = np.where(rows == columns, 1.0, math.sqrt(2.0))
    triangles = vector[: blocks * len(rows)].reshape(blocks, len(rows)) / (off * for_hessian)
    hessian = np.zeros((blocks, width, width))
    hessian[:, rows, columns] = triangles
    hessian[:, columns, rows] = triangles
    return hessian, vector[blocks * len(rows) :].reshape(blocks, width) * for_gradient


def centred(
    hessian: NDArray[np.float64], gradient: NDArray[np.float64], *, classes: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """P H P and P g, P taking the mean over the classes' rows away; of two classes everything stays.

    Adding one row to every class's changes no softmax, so the true sums have no part there: whatever lies there is
    noise. Post-processing of opened sums.
    """
    if classes == BINARY:
        return hessian, gradient
    blocks, width = gradient.shape
    g = gradient.reshape(blocks, classes, -1)
    h = hessian.reshape(blocks, classes, width // classes, classes, width // classes)
    h = h - h.mean(axis=1, keepdims=True)
    h = h - h.mean(axis=3, keepdims=True)
    return h.reshape(hessian.shape), (g - g.mean(axis=1, keepdims=True)).reshape(gradient.shape)


def hessian_noise_sd(statistic_sd: float, *, classes: int) -> float:
    """sd_H of docs/design/heads.md, "Repair": the noise of svec(H), for `statistic_sd` on each value of `pack`."""
    return float(statistic_sd / _scales(classes)[0])


def _scales(classes: int) -> tuple[float, float]:
    """Factor of svec(H), divisor of g."""
    if classes == BINARY:
        return 4.0 * HESSIAN_SHARE / C**2, C
    return 2.0 * SOFTMAX_SHARE / C**2, math.sqrt(2.0) * C


def _binary_sums(
    z: torch.Tensor,
    labels: torch.Tensor,
    block: torch.Tensor,
    weight: torch.Tensor,
    heads: torch.Tensor,
    *,
    clip: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Sums by block of `block` (n,) for two classes; `heads` (D, K)."""
    for_hessian, for_gradient = _scales(BINARY)
    p, weight = _sound(torch.sigmoid((z * heads[block]).sum(dim=1)), weight)
    curvature = p * (1.0 - p)
    squares = (z**2).sum(dim=1)
    error = p - labels.to(torch.float64)
    norm = torch.sqrt((for_hessian * curvature * squares) ** 2 + error**2 * squares / for_gradient**2)
    u = weight / norm.clamp(min=clip)
    residual = (u * error)[:, None] * z
    gradient = torch.zeros_like(heads).index_add_(0, block, residual)
    hessian = torch.zeros(*heads.shape, heads.shape[1], dtype=torch.float64, device=z.device)
    scaled = (u * curvature)[:, None] * z
    for m in torch.unique(block).tolist():
        mine = block == m
        hessian[m] = z[mine].T @ scaled[mine]
    return hessian, gradient


def _softmax_sums(
    z: torch.Tensor,
    labels: torch.Tensor,
    block: torch.Tensor,
    weight: torch.Tensor,
    heads: torch.Tensor,
    *,
    clip: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The same for more classes, W = rows x K: blockdiag(Z' diag(p_c) Z) - A'A, A = [p_c z], in bounded memory."""
    gradient = torch.zeros_like(heads)
    hessian = torch.zeros(*heads.shape, heads.shape[1], dtype=torch.float64, device=z.device)
    for m in torch.unique(block).tolist():
        mine = torch.nonzero(block == m)[:, 0]
        for rows in torch.split(mine, max(_CHUNK // heads.shape[1], 1)):
            h, g = _softmax_terms(z[rows], labels[rows], weight[rows], heads[m].view(-1, z.shape[1]), clip)
            hessian[m] += h
            gradient[m] += g
    return hessian, gradient


def _softmax_terms(
    z: torch.Tensor, labels: torch.Tensor, weight: torch.Tensor, head: torch.Tensor, clip: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """H (W, W) and g (W,) of records of one block; `head` (rows, K)."""
    count, width = head.shape
    for_hessian, for_gradient = _scales(count)
    p, weight = _sound(torch.softmax(z @ head.T, dim=1), weight)
    error = p.clone()
    error[torch.arange(len(z), device=z.device), labels] -= 1.0
    squares = (z**2).sum(dim=1)
    # ||diag(p) - p p'||_F^2 as sums of squares, which stay exact where p is nearly one-hot.
    total = (p**2).sum(dim=1)
    curvature = torch.sqrt(((p * (1.0 - p)) ** 2).sum(dim=1) + (p**2 * (total[:, None] - p**2)).sum(dim=1))
    norm = torch.sqrt((for_hessian * curvature * squares) ** 2 + (error**2).sum(dim=1) * squares / for_gradient**2)
    u = weight / norm.clamp(min=clip)
    gradient = ((u[:, None] * error).T @ z).ravel()
    products = (torch.sqrt(u)[:, None] * p)[:, :, None] * z[:, None, :]
    products = products.reshape(len(z), count * width)
    hessian = -(products.T @ products)
    for c in range(count):
        own = slice(c * width, (c + 1) * width)
        hessian[own, own] += z.T @ ((u * p[:, c])[:, None] * z)
    return hessian, gradient


def _sound(p: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Probabilities (n,) or (n, C), and weights (n,) that are 0 where a record has none since its logits overflowed.

    What follows is products of these with ||z||^2 <= C^2, so every term is finite; in a sum, one that is not would take
    everybody's terms with it.
    """
    finite = torch.isfinite(p).view(len(p), p.shape[1:].numel()).all(dim=1)
    return torch.nan_to_num(p), torch.where(finite, weight, 0.0)


def _bounded(features: torch.Tensor) -> torch.Tensor:
    """(phi, 1) in float64 with ||phi|| <= 1. Float32 encoders exceed 1 by rounding; a broken one must not exceed it."""
    phi = torch.nan_to_num(features.detach().to(torch.float64), nan=0.0, posinf=1.0, neginf=-1.0)
    phi = phi / phi.norm(dim=1, keepdim=True).clamp(min=1.0)
    return torch.cat([phi, torch.ones(len(phi), 1, dtype=torch.float64, device=phi.device)], dim=1)


def _tensor(array: NDArray[np.generic], device: torch.device) -> torch.Tensor:
    return torch.tensor(array, device=device)
