"""Second-order sums of the heads (FedDAR Eq. 8 at the common head), and their packed form of l2 sensitivity 1.

Guarantees the bound of docs/design/heads.md, "Joint sensitivity 1": adding or removing one patient moves the packed
vector by at most 1 in l2, for any number of records in any domains. The bound rests on one comparison: the norm of each
record's own term is computed, of the very values that are summed, and so that rounding can only lengthen it ("Rounding"
there). It also ensures that every term is finite, for any finite heads that somebody sends. The family (`families`)
defines a record's terms, and proves that their packed form has norm at most 1. Noise and sealing come later.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from silo_agent.learning.outcomes.expected import ExpectedOutcomes
from silo_agent.learning.outcomes.family import Family

_UNIT = 2.0**-53
"""Largest relative error of one rounding of float64."""
_ROUNDINGS = 128
"""More roundings than one value of a term, or its norm, passes outside sums over records and the values of a head."""
_CHUNK = 1 << 22
"""Most values of one intermediate matrix of a head with several rows (32 MiB of float64)."""


@dataclass(frozen=True)
class _Clip:
    """How long a term may be, and whether its length is taken whatever the outcome is."""

    length: float
    blind: bool


def second_order_sums(
    features: torch.Tensor,
    labels: NDArray[np.int64],
    domains: NDArray[np.int64],
    weights: NDArray[np.float64],
    heads: NDArray[np.float64],
    *,
    family: Family,
    pooled: bool,
    clip: float = 1.0,
    blind: bool = False,
    slack: float = 0.0,
    frame: NDArray[np.float64] | None = None,
    norm_bound: float = 1.0,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Hessian and gradient of the family's loss, summed over patients, at the common heads.

    `features` (n, k) on any device, of norm at most `norm_bound`; the other arrays as in `Records`; `heads` (M, W), W =
    R K; with K = k + 1 the bias is the last of a row's K weights, with K = k there is none. Returns H (D, W, W) and g
    (D, W) in float64. D = 1 if `pooled`, and the heads must all be equal then; otherwise D = M. A record counts with
    its weight, `weights` (n,) as in `Records.weights`. A domain without records gives zeros.

    With `clip` = tau, a record's term v of `pack` enters as v min(1, tau / ||v||) / tau, whose norm is still at most 1.
    If it is `blind`, ||v|| is taken under the outcome that would make v longest, so no weight depends on an outcome
    (docs/design/heads.md, "Clip"). Both sums are then in units of tau, which leaves Newton's step unchanged; so does
    `slack` (`rounding_slack`): every term is divided by 1 + slack, to make room for the rounding of sums. A term alone
    is no longer than its weight as it is. With a `frame` A, a symmetric (K, K), the terms are those of A z, clipped
    there, and the sums are A H A and A g; the logits stay w z. A record whose logits overflow under these heads enters
    as zero. Raises ValueError if the heads do not fit.
    """
    if pooled and not np.array_equal(heads, np.broadcast_to(heads[0], heads.shape)):
        msg = "pooled sums need one common head; these heads differ"
        raise ValueError(msg)
    device = features.device
    width = features.shape[1]
    if heads.shape[1] not in {family.form.logits * width, family.form.logits * (width + 1)}:
        msg = f"heads of {heads.shape[1]} weights do not fit {width} features and a bias"
        raise ValueError(msg)
    z = _bounded(features, norm_bound, bias=heads.shape[1] > family.form.logits * width)
    block = torch.zeros(len(z), dtype=torch.int64, device=device) if pooled else _tensor(domains, device)
    weight = _tensor(weights, device) / (1.0 + slack)
    common = _tensor(heads[:1] if pooled else heads, device)
    across = None if frame is None else _tensor(frame, device)
    sums = _one_row_sums if family.form.logits == 1 else _many_row_sums
    hessian, gradient = sums(
        family, z, _tensor(labels, device), block, weight=weight, heads=common, clip=_Clip(clip, blind), frame=across
    )
    return hessian.cpu().numpy(), gradient.cpu().numpy()


def predicted(
    features: torch.Tensor,
    labels: NDArray[np.int64],
    domains: NDArray[np.int64],
    weights: NDArray[np.float64],
    heads: NDArray[np.float64],
    *,
    family: Family,
    norm_bound: float,
) -> tuple[ExpectedOutcomes, torch.Tensor, torch.Tensor]:
    """Expected outcomes and residuals (n, R) under heads (M, R K) with biases, and weights (n,).

    The weights are 0 for records whose logits overflow. Else they are so much shorter that rounding does not make a
    term longer whose exact norm is at most 1. Raises ValueError if the heads do not fit.
    """
    z, device = _bounded(features, norm_bound, bias=True), features.device
    if heads.shape[1] != family.form.logits * z.shape[1]:
        msg = f"heads of {heads.shape[1]} weights do not fit {z.shape[1] - 1} features and a bias"
        raise ValueError(msg)
    rows = _tensor(heads.reshape(len(heads), -1, z.shape[1]), device)
    own = _tensor(domains, device)
    logits = torch.cat([_by_row(z * rows[own, logit]) for logit in range(rows.shape[1])], dim=1)
    expected, weight = _sound(family.expected(logits), _tensor(weights, device) / _longer(heads.shape[1]))
    return expected, family.residual(expected, _tensor(labels, device)), weight


def rounding_slack(patients: int, rows: int, width: int) -> float:
    """Twice what rounding moves the sum of so many patients' terms by in l2, at most, for terms of norm 1.

    `rows` records are added up at once, heads have `width` values. Terms divided by 1 plus this keep the sensitivity of
    their float64 sum at 1, in whatever order it is made. It is the same for every clip, frame and length of what is
    read, because no value of a term is a difference of larger ones (docs/design/heads.md, "Rounding").
    """
    return 2.0 * patients * (rows + 4.0 * width + _ROUNDINGS) * _UNIT


def packed_size(blocks: int, width: int) -> int:
    """Values of `pack` for `blocks` heads of `width` = W weights."""
    return blocks * (width * (width + 1) // 2 + width)


def pack(hessian: NDArray[np.float64], gradient: NDArray[np.float64], family: Family) -> NDArray[np.float64]:
    """(`hessian_factor` svec(H), g / `gradient_divisor`) of the family, with norm at most 1 for one patient.

    The triangles of all domains come first, then all gradients. The map is linear. Returns float64 (packed_size,).
    """
    rows, columns = np.triu_indices(hessian.shape[-1])
    off = np.where(rows == columns, 1.0, math.sqrt(2.0))
    triangles = hessian[:, rows, columns] * off * family.hessian_factor
    return np.concatenate([triangles.ravel(), gradient.ravel() / family.gradient_divisor])


def unpack(
    vector: NDArray[np.float64], blocks: int, width: int, family: Family
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Inverse of `pack`: symmetric H (blocks, W, W) and g (blocks, W). Raises ValueError for another length."""
    if vector.shape != (packed_size(blocks, width),):
        msg = f"a statistic of {packed_size(blocks, width)} values was expected, {vector.shape} came"
        raise ValueError(msg)
    rows, columns = np.triu_indices(width)
    off = np.where(rows == columns, 1.0, math.sqrt(2.0))
    triangles = vector[: blocks * len(rows)].reshape(blocks, len(rows)) / (off * family.hessian_factor)
    hessian = np.zeros((blocks, width, width))
    hessian[:, rows, columns] = triangles
    hessian[:, columns, rows] = triangles
    return hessian, vector[blocks * len(rows) :].reshape(blocks, width) * family.gradient_divisor


def hessian_noise_sd(statistic_sd: float, family: Family) -> float:
    """sd_H of docs/design/heads.md, "Repair": the noise of svec(H), for `statistic_sd` on each value of `pack`."""
    return float(statistic_sd / family.hessian_factor)


def _one_row_sums(
    family: Family,
    z: torch.Tensor,
    labels: torch.Tensor,
    block: torch.Tensor,
    *,
    weight: torch.Tensor,
    heads: torch.Tensor,
    clip: _Clip,
    frame: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Sums by block, `block` (n,), of a family with one logit; `heads` (D, K). All records are taken at once."""
    expected, weight = _sound(family.expected(_by_row(z * heads[block])), weight)
    error = family.residual(expected, labels)
    z = _framed(z, frame)
    u = _clipped(family, expected, error, z, weight, clip=clip)
    residual = (u[:, None] * error) * z
    gradient = torch.zeros_like(heads).index_add_(0, block, residual)
    hessian = torch.zeros(*heads.shape, heads.shape[1], dtype=torch.float64, device=z.device)
    for m in torch.unique(block).tolist():
        mine = block == m
        hessian[m] = family.curvature_sum(expected.of(mine), z[mine], u[mine])
    return hessian, gradient


def _many_row_sums(
    family: Family,
    z: torch.Tensor,
    labels: torch.Tensor,
    block: torch.Tensor,
    *,
    weight: torch.Tensor,
    heads: torch.Tensor,
    clip: _Clip,
    frame: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The same sums for a family with more logits, `heads` (D, R K), in bounded memory."""
    gradient = torch.zeros_like(heads)
    hessian = torch.zeros(*heads.shape, heads.shape[1], dtype=torch.float64, device=z.device)
    for m in torch.unique(block).tolist():
        head = heads[m].view(-1, z.shape[1])
        mine = torch.nonzero(block == m)[:, 0]
        for rows in torch.split(mine, max(_CHUNK // heads.shape[1], 1)):
            own = z[rows]
            expected, sound = _sound(family.expected(_logits(own, head)), weight[rows])
            error = family.residual(expected, labels[rows])
            own = _framed(own, frame)
            u = _clipped(family, expected, error, own, sound, clip=clip)
            hessian[m] += family.curvature_sum(expected, own, u)
            gradient[m] += ((u[:, None] * error).T @ own).ravel()
    return hessian, gradient


def _clipped(
    family: Family,
    expected: ExpectedOutcomes,
    error: torch.Tensor,
    z: torch.Tensor,
    weight: torch.Tensor,
    *,
    clip: _Clip,
) -> torch.Tensor:
    """Weights (n,) with which no record's packed term is longer than its weight, in units of the clip.

    The norm is made of squares alone, so its relative error is that of its roundings, and it is lengthened by more. The
    bound never rests on which outcome is the worst one: a record's own residual counts, too.
    """
    squares, errors = _by_row(z**2)[:, 0], (error**2).sum(dim=1)
    if clip.blind:
        worst = family.residual(expected, family.farthest(expected))
        errors = torch.maximum(errors, (worst**2).sum(dim=1))
    curvature = family.hessian_factor * family.curvature_norm(expected)
    norm = torch.sqrt((curvature * squares) ** 2 + errors * squares / family.gradient_divisor**2)
    return weight / (norm.clamp(min=clip.length) * _longer(error.shape[1] * z.shape[1]))


def _longer(width: int) -> float:
    """What a computed norm is multiplied by, for heads of `width` values: 1, and more than rounding takes from it.

    It has room for the roundings of the term itself, too, from its weight to its packed form.
    """
    return 1.0 + (width + _ROUNDINGS) * _UNIT


def _sound(expected: ExpectedOutcomes, weight: torch.Tensor) -> tuple[ExpectedOutcomes, torch.Tensor]:
    """What is expected, made finite, and weights (n,), which are 0 for records whose logits overflow.

    The terms are products of these with ||z||^2, which is bounded, so every term is finite. In a sum, one term that is
    not finite would destroy the terms of all.
    """
    finite, sound = expected.sound()
    return finite, torch.where(sound, weight, 0.0)


def _bounded(features: torch.Tensor, bound: float, *, bias: bool) -> torch.Tensor:
    """(phi, 1), or phi if there is no `bias`, in float64, scaled to ||phi|| <= bound.

    float32 encoders exceed it by rounding, broken ones by more.
    """
    phi = torch.nan_to_num(features.detach().to(torch.float64), nan=0.0, posinf=1.0, neginf=-1.0)
    phi = phi / (torch.sqrt(_by_row(phi**2)) / bound).clamp(min=1.0)
    return torch.cat([phi, torch.ones(len(phi), int(bias), dtype=torch.float64, device=phi.device)], dim=1)


def _framed(z: torch.Tensor, frame: torch.Tensor | None) -> torch.Tensor:
    """A z for every row of z (n, K)."""
    return z if frame is None else _logits(z, frame)


def _logits(z: torch.Tensor, head: torch.Tensor) -> torch.Tensor:
    """Logits (n, R) of z (n, K) under one head (R, K). A head may be so long that other orders of addition tell."""
    return torch.cat([_by_row(z * row) for row in head], dim=1)


def _by_row(values: torch.Tensor) -> torch.Tensor:
    """Sums (n, 1) of the rows, by halving: the same additions for a row, whatever other rows there are."""
    while values.shape[1] > 1:
        half = values.shape[1] // 2
        paired = values[:, :half] + values[:, half : 2 * half]
        values = torch.cat([paired, values[:, 2 * half :]], dim=1)
    return values


def _tensor(array: NDArray[np.generic], device: torch.device) -> torch.Tensor:
    return torch.tensor(array, device=device)
