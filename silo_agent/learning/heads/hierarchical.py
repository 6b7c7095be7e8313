"""Heads of all domains at once, from everything that the domain rounds have released: a Gaussian posterior.

Source: docs/design/heads.md, "All releases together". Model, with x_m the head of domain m in the frame's coordinates:

    x_m = c + u_m,   c ~ N(0, a T),   u_m ~ N(0, b T)          what domains share, and what is their own
    y_m = H_m x_m + s_m,   s_m ~ N(0, H_m)                       the patients are a sample
    r_m = y_m + n_m,   r_0 = sum of y_m + n_0                    opened sums, with noise of known size

a, b and the shape T are not chosen: the result is the mean of the posteriors over a grid of them, weighted by how well
they explain the sums. So it moves continuously with the sums, and two machines agree. b = 0, one head for all, is in
the grid with half of the prior weight: where domains do not differ, the heads fall back to the pooled one.

Pure float64 numpy on public values. M domains, W = R K weights of a head.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from silo_agent.learning.heads.evidence import Evidence

Floats = NDArray[np.float64]

_SHARED = np.geomspace(0.02, 3000.0, 10)
"""Grid of a."""
_OWN = np.concatenate([[0.0], np.geomspace(0.01, 300.0, 10)])
"""Grid of b."""
_ONE_HEAD = 0.5
"""Prior weight of b = 0."""
_WIDE_BIAS = 4.0
"""How much wider the prior is for the bias, whose size depends on how rare the outcome is."""
_LEAST = 1e-3
"""No domain's curvature is taken as less than this part of the mean eigenvalue of its shape."""
_RIDGE = 0.5
"""Directions with less than this part of the mean curvature are whitened less: they belong to rare codes, whose records
would otherwise be long in the frame and lose most of their terms to the clip."""
_STEPS = 30
"""More than the mean of the eigenvalues that noise hides needs to settle."""
CURVATURE = 0.7
"""What part of the family's Hessian factor a domain round has. The frame has made the curvature known to be nearly
round, so a release tells more by its gradient, which the clip then shortens less."""
MOST_SHARE = 0.95
"""Largest share of a release for the pooled block."""


@dataclass(frozen=True)
class Scale:
    """How a value of the packed form relates to curvature and gradient (`family.Family`)."""

    hessian_factor: float
    gradient_divisor: float


@dataclass(frozen=True, eq=False, repr=False)
class Solved:
    """Heads (M, W) in the features' coordinates, and the share of the next release for the pooled block."""

    heads: Floats
    share: float


def frame_of(hessian: Floats, edge: float, rows: int) -> Floats:
    """A (K, K), symmetric: about H^(-1/2), with tr(A H A) = tr(H), for the pooled curvature H (W, W) of `rows` rows.

    In this frame all directions have about the same curvature, so that isotropic noise harms each alike. Eigenvalues
    below `edge`, the edge of the noise's spectrum, are raised to it.
    """
    size = len(hessian) // rows
    own = sum(hessian[r * size : (r + 1) * size, r * size : (r + 1) * size] for r in range(rows)) / rows
    values, vectors = np.linalg.eigh(_symmetric(np.asarray(own)))
    values = np.maximum(values, max(edge, _LEAST * float(np.abs(values).mean()), np.finfo(float).tiny))
    inverse = (values + _RIDGE * values.mean()) ** -0.5
    inverse *= np.sqrt(values.sum() / (inverse**2 * values).sum())
    return _symmetric((vectors * inverse) @ vectors.T)


def solve(evidence: Evidence, scale: Scale, rows: int, least_share: float, *, bias: bool = True) -> Solved:
    """The posterior mean of all heads. The evidence holds at least one release. `bias`: each row ends with one.

    More than one row are those of a softmax, which depends on their differences alone: the posterior is that of R - 1
    contrasts of the rows.
    """
    basis = np.asarray(np.kron(_contrasts(rows), np.eye(len(evidence.frame))), np.float64)
    evidence, rows = evidence.seen_by(basis), max(rows - 1, 1)
    own, pooled = evidence.own, evidence.pooled
    count, width = own.heads.shape
    across = np.kron(np.eye(rows), evidence.frame)
    back = np.linalg.inv(across)
    curvature = _curvature(evidence, scale, rows)
    responses = np.stack([h @ (back @ w) for h, w in zip(curvature, own.heads / own.weight, strict=True)])
    responses -= own.gradient / own.weight
    noise = scale.gradient_divisor**2 / own.weight
    correlated = 0.0
    if pooled.weight:
        points = pooled.heads / pooled.weight
        whole = sum(h @ (back @ w) for h, w in zip(curvature, points, strict=True)) - pooled.gradient[0] / pooled.weight
        gain = noise / (scale.gradient_divisor**2 / pooled.weight + count * noise)
        # Knowing the sum of the y_m better is the same as noise on the r_m with a negative correlation.
        responses, correlated = responses + gain * (whole - responses.sum(axis=0)), noise * gain
    size = width // rows
    spread = np.kron(np.eye(rows), np.diag(np.append(np.ones(size - 1), _WIDE_BIAS if bias else 1.0)))
    heads, one_head = _mean(curvature, responses, noise, correlated, _shapes(_symmetric(back @ spread @ back)))
    return Solved(heads @ across @ basis, least_share + max(MOST_SHARE - least_share, 0.0) * one_head)


def _contrasts(rows: int) -> Floats:
    """Orthonormal rows (R - 1, R) that are orthogonal to (1, ..., 1); for R = 1 the row itself."""
    if rows == 1:
        return np.ones((1, 1))
    full = np.linalg.qr(np.column_stack([np.ones(rows), np.eye(rows)[:, 1:]]))[0]
    return np.asarray(full[:, 1:].T)


def _curvature(evidence: Evidence, scale: Scale, rows: int) -> Floats:
    """H_m (M, W, W), positive: the shape that all domains share, and what differs from it beyond the noise."""
    own, pooled = evidence.own, evidence.pooled
    count, width = own.heads.shape
    opened = own.hessian / own.weight
    variance = 1.0 / (scale.hessian_factor**2 * own.weight)
    values = _values(width)
    total, known = opened.sum(axis=0), 1.0 / (count * variance)
    if pooled.weight:
        together = scale.hessian_factor**2 * pooled.weight
        total = (known * total + together * pooled.hessian[0] / pooled.weight) / (known + together)
        known += together
    shape = _raised(_denoised(total, 1.0 / known, rows), 0.0)
    # Noise may leave no positive eigenvalue. The shape is then round, and as large as the noise of one value.
    size = max(float(np.trace(shape)) / width, _LEAST / math.sqrt(known))
    shape = _raised(shape, _LEAST * size)
    blocks = []
    for part in opened:
        size = max(float(np.trace(part) / np.trace(shape)), _LEAST)
        other = part - size * shape
        kept = max(0.0, 1.0 - values * variance / max(float((other**2).sum()), np.finfo(float).tiny))
        blocks.append(_raised(size * shape + kept * other, _LEAST * size * float(np.trace(shape)) / width))
    return np.stack(blocks)


def _denoised(hessian: Floats, variance: float, rows: int) -> Floats:
    """H (W, W) with less noise, from an opened one with noise of `variance` on each value of svec(H).

    With more than one row it is a Kronecker product of a matrix across the rows and one along the features, and what of
    the difference lies beyond the noise's own eigenvalues. A rare class has little curvature, a frequent one
    much: as a round matrix the frequent ones' steps would be too long, and heads diverge. Each factor is a sum over the
    other's diagonal, so that its noise is small.
    """
    size = len(hessian) // rows
    if rows == 1:
        return _rounder(hessian, _values(size) * variance)
    blocks = hessian.reshape(rows, size, rows, size)
    factors = [
        _raised(_rounder(np.einsum(axes, blocks), summed * _values(left) * variance), 0.0)
        for axes, summed, left in (("rksk->rs", size, rows), ("rkrl->kl", rows, size))
    ]
    least = np.finfo(float).tiny
    product = np.kron(*factors) * float(np.trace(hessian)) / max(math.prod(map(np.trace, factors)), least)
    eigenvalues, vectors = np.linalg.eigh(_symmetric(hessian - product))
    rest = _beyond(eigenvalues, math.sqrt(2.0 * len(hessian) * variance))
    return _symmetric(product + (vectors * rest) @ vectors.T)


def _values(size: int) -> float:
    """Values of a triangle."""
    return size * (size + 1) / 2


def _rounder(hessian: Floats, noise: float) -> Floats:
    """H (W, W) with the eigenvalues that its noise could have made drawn to their mean, and the others a little.

    `noise` is the expected square of its noise, whose eigenvalues reach to an edge e. An eigenvalue at the distance
    d > e from the others' mean m becomes m + sqrt(d^2 - e^2), the best for a single one (Gavish and Donoho 2017, IEEE
    Trans. Inf. Theory 63); within e it becomes m. So a direction in which all patients lie, as the bias, keeps its
    curvature where the rest is noise. m is what leaves the trace as it is. H stays if m is not positive.
    """
    size = len(hessian)
    edge = 2.0 * math.sqrt(noise / (size + 1))
    values, vectors = np.linalg.eigh(_symmetric(hessian))
    mean = float(values.mean())
    for _ in range(_STEPS):
        mean += float(np.mean(values - mean - _beyond(values - mean, edge)))
    if mean <= 0.0:
        return hessian
    return _symmetric((vectors * (mean + _beyond(values - mean, edge))) @ vectors.T)


def _beyond(distances: Floats, edge: float) -> Floats:
    return np.asarray(np.sign(distances) * np.sqrt(np.maximum(distances**2 - edge**2, 0.0)))


@dataclass(frozen=True, eq=False, repr=False)
class _Given:
    """Everything that depends on b alone: see `_given`."""

    log_weight: float
    pull: Floats
    precision: Floats
    gains: Floats
    answers: Floats


def _shapes(spread: Floats) -> tuple[Floats, ...]:
    """T (W, W): round in the features' coordinates, and half of the way to round in the frame's, of one trace."""
    values, vectors = np.linalg.eigh(spread)
    root = _symmetric((vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T)
    return spread, root * (np.trace(spread) / np.trace(root))


def _mean(
    curvature: Floats, responses: Floats, noise: float, correlated: float, spreads: tuple[Floats, ...]
) -> tuple[Floats, float]:
    """Posterior mean (M, W), and the posterior weight of b = 0."""
    weights, means = [], []
    for spread in spreads:
        inverse, logdet = np.linalg.inv(spread), float(np.linalg.slogdet(spread)[1])
        for own in _OWN:
            given = _given(curvature, responses, noise, correlated, own * spread)
            prior = _ONE_HEAD if own == 0 else (1.0 - _ONE_HEAD) / (len(_OWN) - 1)
            for shared in _SHARED:
                root = np.linalg.cholesky(_symmetric(inverse / shared + given.precision))
                centre = np.linalg.solve(root.T, np.linalg.solve(root, given.pull))
                weights.append(
                    np.log(prior)
                    + given.log_weight
                    + 0.5 * given.pull @ centre
                    - np.log(np.diag(root)).sum()
                    - 0.5 * (len(centre) * np.log(shared) + logdet)
                )
                means.append(centre + given.answers - given.gains @ centre)
    likely = np.exp(np.array(weights) - max(weights))
    likely /= likely.sum()
    one_head = float(likely.reshape(len(spreads), len(_OWN), len(_SHARED))[:, 0].sum())
    return np.tensordot(likely, np.stack(means), 1), one_head


def _given(curvature: Floats, responses: Floats, noise: float, correlated: float, own: Floats) -> _Given:
    """What follows for one b, with `own` = b T, by eliminating every u_m.

    The responses have covariance V = blocks D_m less `correlated` in every pair of blocks, D_m = H_m b T H_m + H_m +
    noise. V is inverted with Woodbury's identity, so nothing larger than (W, W) is.
    """
    width = responses.shape[1]
    unit = np.eye(width)
    blocks = [_symmetric(h @ own @ h) + h + noise * unit for h in curvature]
    roots = [np.linalg.cholesky(block) for block in blocks]
    inverses = [_symmetric(np.linalg.solve(root.T, np.linalg.solve(root, unit))) for root in roots]
    logdet = 2.0 * sum(float(np.log(np.diag(root)).sum()) for root in roots)
    solved = np.stack([i @ r for i, r in zip(inverses, responses, strict=True)])
    paths = np.stack([i @ h for i, h in zip(inverses, curvature, strict=True)])
    if correlated:
        inner = np.linalg.cholesky(_symmetric(unit / correlated - sum(inverses)))
        logdet += 2.0 * float(np.log(np.diag(inner)).sum()) + width * np.log(correlated)
        bridge = np.linalg.solve(inner.T, np.linalg.solve(inner, np.column_stack([solved.sum(0), paths.sum(0)])))
        spread = np.stack([i @ bridge for i in inverses])
        solved, paths = solved + spread[:, :, 0], paths + spread[:, :, 1:]
    pull = np.einsum("mji,mj->i", curvature, solved)
    precision = _symmetric(np.einsum("mji,mjk->ik", curvature, paths))
    log_weight = -0.5 * (float((responses * solved).sum()) + logdet)
    towards = own @ curvature
    answers = np.einsum("mij,mj->mi", towards, solved)
    return _Given(log_weight, pull, precision, towards @ paths, answers)


def _raised(matrix: Floats, least: float) -> Floats:
    """The symmetric matrix with its eigenvalues raised to `least`."""
    values, vectors = np.linalg.eigh(_symmetric(matrix))
    return _symmetric((vectors * np.maximum(values, least)) @ vectors.T)


def _symmetric(matrix: Floats) -> Floats:
    return np.asarray((matrix + matrix.T) / 2.0)
