"""What all opened sums of the domain rounds say together: a public state of fixed size, the same at every silo.

The hierarchical solver (docs/design/heads.md, "All releases together") needs weighted sums over the releases, never the
releases themselves. Guarantees that the state follows from opened integers, adopted heads and public constants by
elementwise float64 arithmetic alone, so all silos hold the same bits.

M domains, W = R K weights of a head (R rows of K), T = W(W+1)/2 values of a triangle.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, repr=False, eq=False)
class Gathered:
    """Sums over releases, each weighted with the precision of its noise.

    `weight` is the sum of the precisions; `hessian` (B, W, W), `gradient` (B, W) and `heads` (M, W), the heads at which
    each release was made, are sums of precision times value. B is M for the domains' own blocks, 1 for the pooled one.
    """

    weight: float
    hessian: Floats
    gradient: Floats
    heads: Floats

    @classmethod
    def nothing(cls, blocks: int, domains: int, width: int) -> Self:
        """No release yet."""
        return cls(0.0, np.zeros((blocks, width, width)), np.zeros((blocks, width)), np.zeros((domains, width)))

    def plus(self, precision: float, hessian: Floats, gradient: Floats, heads: Floats) -> Self:
        """Add one release with the precision of one value of its packed form."""
        return replace(
            self,
            weight=self.weight + precision,
            hessian=self.hessian + precision * hessian,
            gradient=self.gradient + precision * gradient,
            heads=self.heads + precision * heads,
        )

    def seen_by(self, basis: Floats) -> Self:
        """The same in the coordinates of the orthonormal rows of `basis` (W', W)."""
        return replace(
            self,
            hessian=basis @ self.hessian @ basis.T,
            gradient=self.gradient @ basis.T,
            heads=self.heads @ basis.T,
        )

    def parts(self) -> Iterator[Floats]:
        """Flat arrays, of which `read` makes the same again."""
        yield np.array([self.weight])
        yield _triangles(self.hessian)
        yield self.gradient.ravel()
        yield self.heads.ravel()


@dataclass(frozen=True, repr=False, eq=False)
class Evidence:
    """The state after a round.

    `frame` A (K, K), symmetric: domain rounds release the terms of A z. `share` in [0, 1): how much of the next domain
    round's release, by square, is the pooled block. `own` and `pooled`: what the domain rounds have released, in the
    frame, without clipping's unit. Before there is a frame, `pooled` holds what the pooled rounds have released.
    """

    frame: Floats
    share: float
    own: Gathered
    pooled: Gathered

    @classmethod
    def start(cls, domains: int, rows: int, features: int, share: float) -> Self:
        """Before the first round: no release, and the frame of the features themselves. `features` is K."""
        width = rows * features
        own, pooled = (Gathered.nothing(blocks, domains, width) for blocks in (domains, 1))
        return cls(np.eye(features), share, own, pooled)

    def plus(self, hessian: Floats, gradient: Floats, heads: Floats, noise_sd: float) -> Self:
        """Add the opened blocks of `mixed`, (M + 1, W, W) and (M + 1, W), released at `heads` (M, W).

        `noise_sd` is the noise on each value of the packed blocks, in their unit.
        """
        own, pooled = _scales(self.share)
        precision = 1.0 / noise_sd**2
        added = self.own.plus(own**2 * precision, hessian[:-1] / own, gradient[:-1] / own, heads)
        if not pooled:
            return replace(self, own=added)
        together = self.pooled.plus(pooled**2 * precision, hessian[-1:] / pooled, gradient[-1:] / pooled, heads)
        return replace(self, own=added, pooled=together)

    def before(self, hessian: Floats, gradient: Floats, heads: Floats, noise_sd: float) -> Self:
        """Add the opened block of a pooled round, (1, W, W) and (1, W), from which the frame will follow."""
        return replace(self, pooled=self.pooled.plus(1.0 / noise_sd**2, hessian, gradient, heads))

    def emptied(self) -> Self:
        """The same without releases: those of the pooled rounds are in other coordinates than what follows."""
        empty = (Gathered.nothing(len(part.gradient), *part.heads.shape) for part in (self.own, self.pooled))
        return replace(self, own=next(empty), pooled=next(empty))

    def turned(self, triangle: Floats, share: float) -> Self:
        """The same with the solver's frame, as its triangle (K(K+1)/2,), and its share for the next round."""
        return replace(self, frame=_symmetric(triangle, 1, len(self.frame))[0], share=share)

    def seen_by(self, basis: Floats) -> Self:
        """The same in other coordinates of the heads: those of the orthonormal rows of `basis` (W', W)."""
        return replace(self, own=self.own.seen_by(basis), pooled=self.pooled.seen_by(basis))

    def to_array(self) -> Floats:
        """Flat float64 (policies.plan.shapes.evidence_values,)."""
        parts = [_triangles(self.frame[None]), np.array([self.share]), *self.own.parts(), *self.pooled.parts()]
        return np.concatenate(parts)

    @classmethod
    def from_array(cls, flat: Floats, domains: int, rows: int, features: int) -> Self:
        """Inverse of `to_array`. Raises ValueError for another length, and for values that no release gives."""
        if flat.shape != (sum(_sizes(domains, rows, features)),) or not np.isfinite(flat).all():
            msg = "the evidence of the heads has another size than its study says, or a value that is not finite"
            raise ValueError(msg)
        parts = iter(np.split(flat, np.cumsum(_sizes(domains, rows, features))[:-1]))
        width = rows * features
        frame, share = _symmetric(next(parts), 1, features)[0], float(next(parts)[0])
        own, pooled = (
            Gathered(
                float(next(parts)[0]),
                _symmetric(next(parts), blocks, width),
                next(parts).reshape(blocks, width),
                next(parts).reshape(domains, width),
            )
            for blocks in (domains, 1)
        )
        if not 0.0 <= share < 1.0 or own.weight < 0.0 or pooled.weight < 0.0:
            msg = "the evidence of the heads has a share or a weight that no round gives"
            raise ValueError(msg)
        return cls(frame, share, own, pooled)


def mixed(hessian: Floats, gradient: Floats, share: float) -> tuple[Floats, Floats]:
    """The domains' blocks (M, W, W) and (M, W), and their sum as one more, (M + 1, W, W) and (M + 1, W).

    They are scaled so that a patient moves them by at most 1 together, as before: a patient's blocks have norms that
    add up to at most 1, so the blocks as one vector have a norm of at most 1, and so has their sum; the two enter with
    squares 1 - share and share.
    """
    own, pooled = _scales(share)
    together = [(own * part, pooled * part.sum(axis=0, keepdims=True)) for part in (hessian, gradient)]
    return np.concatenate(together[0]), np.concatenate(together[1])


def _scales(share: float) -> tuple[float, float]:
    return math.sqrt(1.0 - share), math.sqrt(share)


def _sizes(domains: int, rows: int, features: int) -> list[int]:
    width = rows * features
    triangle = width * (width + 1) // 2
    gathered = [size for blocks in (domains, 1) for size in (1, blocks * triangle, blocks * width, domains * width)]
    return [features * (features + 1) // 2, 1, *gathered]


def _triangles(matrices: Floats) -> Floats:
    """Upper triangles of (B, n, n), flat."""
    rows, columns = np.triu_indices(matrices.shape[-1])
    return matrices[:, rows, columns].ravel()


def _symmetric(flat: Floats, count: int, size: int) -> Floats:
    """Inverse of `_triangles`."""
    rows, columns = np.triu_indices(size)
    matrices = np.zeros((count, size, size))
    matrices[:, rows, columns] = flat.reshape(count, len(rows))
    matrices[:, columns, rows] = matrices[:, rows, columns]
    return matrices
