"""FedDAR for linear heads on a linear representation: Algorithm 1 with its two aggregations, and Algorithm 2.

Only for data declared public: many local steps on one client's own samples have no bound for a patient.

All arrays that belong to clients have them on the first axis, and nothing but a `Total` crosses it. So a round is what
the silos of a study could do: each sends vectors that add up, and everybody computes the next model from the sums.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from bench.papers.feddar.law import DOMAINS, Floats, Samples

_NOTHING = 1e-12
"""Below this a curvature is rounding error."""


class Total(Protocol):
    """Adds up what the clients send."""

    def __call__(self, tensor: str, /, *values: Floats) -> list[Floats]:
        """The sums over the clients, the first axis, of the parts of one tensor of the round."""
        ...


def plain_total(_tensor: str, *values: Floats) -> list[Floats]:
    """Sums that everybody could read."""
    return [value.sum(axis=0) for value in values]


@dataclass(frozen=True)
class LinearModel:
    """Representation (d, k) and one head a domain (M, k)."""

    encoder: Floats
    heads: Floats

    @property
    def coefficients(self) -> Floats:
        """What a response is predicted with, (M, d)."""
        return self.heads @ self.encoder.T


@dataclass(frozen=True)
class LocalSteps:
    """Local steps of a round. A head's rate is over its largest curvature; with 0 head steps it is solved."""

    head_steps: int
    head_rate: float
    encoder_steps: int
    encoder_rate: float


@dataclass(frozen=True)
class Clients:
    """The samples, who is in which domain, (n, M, L) of 0 and 1, and every sample's weight u_m (n, L) of Eq. 6."""

    samples: Samples
    member: Floats
    weights: Floats

    @classmethod
    def of(cls, samples: Samples, total: Total) -> Clients:
        """Count the domains over all clients, and weight them equally."""
        member = (samples.domains[:, None, :] == np.arange(DOMAINS)[:, None]).astype(np.float64)
        (counts,) = total("counts", member.sum(axis=2))
        weights = counts.sum() / (DOMAINS * np.maximum(counts, 1.0))
        return cls(samples, member, weights[samples.domains])

    @property
    def counts(self) -> Floats:
        """L_im (n, M)."""
        return np.asarray(self.member.sum(axis=2))

    def moments(self, encoder: Floats) -> tuple[Floats, Floats]:
        """Z'Z (n, M, k, k) and Z'y (n, M, k) of every client and domain, not divided by the number of samples."""
        z = (self.samples.inputs @ encoder)[:, None]
        own = (self.member[..., None] * z).swapaxes(2, 3)
        return np.asarray(own @ z), times(own, self.samples.responses[:, None])

    def gradient(self, encoders: Floats, heads: Floats) -> Floats:
        """Gradient (n, d, k) of every client's weighted mean loss at its encoder, `encoders` (d, k) or (n, d, k)."""
        own = heads[self.samples.domains]
        residual = np.sum(self.samples.inputs @ encoders * own, axis=2) - self.samples.responses
        scaled = (self.weights * residual / residual.shape[1])[..., None] * own
        return np.asarray(self.samples.inputs.swapaxes(1, 2) @ scaled)


Recipe = Callable[[Clients, LinearModel, Total, LocalSteps], LinearModel]
"""One round."""


def second_order(clients: Clients, model: LinearModel, total: Total, steps: LocalSteps) -> LinearModel:
    """FedDAR-SA (Algorithm 1, Eq. 8): heads of many local steps, weighted by their Hessians."""
    hessians, moments = clients.moments(model.encoder)
    local = local_heads(hessians, moments, model.heads, steps)
    heads = solve(model.heads, *total("heads", hessians, times(hessians, local)))
    return LinearModel(averaged_encoder(clients, model.encoder, heads, total, steps), heads)


def weighted_average(clients: Clients, model: LinearModel, total: Total, steps: LocalSteps) -> LinearModel:
    """FedDAR-WA (Algorithm 1): the same local heads, weighted by numbers of samples."""
    hessians, moments = clients.moments(model.encoder)
    local = local_heads(hessians, moments, model.heads, steps)
    counts, weighted = total("heads", clients.counts, clients.counts[..., None] * local)
    heads = np.where(counts[:, None] > 0, weighted / np.maximum(counts, 1.0)[:, None], model.heads)
    return LinearModel(averaged_encoder(clients, model.encoder, heads, total, steps), heads)


def closed_form(clients: Clients, model: LinearModel, total: Total, steps: LocalSteps) -> LinearModel:
    """Algorithm 2 (linear): heads solved from summed moments, one common step of the representation, then QR.

    The same samples serve every round, as in the paper's experiment. The paper's theorem draws new ones.
    """
    heads = solve(model.heads, *total("heads", *clients.moments(model.encoder)))
    (gradient,) = total("encoder", clients.gradient(model.encoder, heads))
    mean = gradient / len(clients.samples.inputs)
    encoder, triangle = np.linalg.qr(model.encoder - steps.encoder_rate * mean)
    return LinearModel(encoder, heads @ triangle.T)


def solve(heads: Floats, curvature: Floats, moment: Floats) -> Floats:
    """Heads (M, k) with `curvature` (M, k, k) times head = `moment` (M, k).

    A direction without curvature keeps what the head had there, and a domain that nobody has keeps its head.
    """
    inverse = np.linalg.pinv(curvature, rcond=_NOTHING, hermitian=True)
    return heads + times(inverse, moment - times(curvature, heads))


def local_heads(hessians: Floats, moments: Floats, heads: Floats, steps: LocalSteps) -> Floats:
    """Heads (n, M, k) of every client and domain after its local steps from the common heads (M, k)."""
    if not steps.head_steps:
        return times(np.linalg.pinv(hessians, rcond=1e-10, hermitian=True), moments)
    rate = steps.head_rate / np.maximum(np.linalg.eigvalsh(hessians)[..., -1:], _NOTHING)
    local: Floats = np.broadcast_to(heads, moments.shape)
    for _ in range(steps.head_steps):
        local = local - rate * (times(hessians, local) - moments)
    return local


def averaged_encoder(clients: Clients, encoder: Floats, heads: Floats, total: Total, steps: LocalSteps) -> Floats:
    """The mean (d, k) of the clients' representations after their local steps; all have equally many samples."""
    count = len(clients.samples.inputs)
    local: Floats = np.broadcast_to(encoder, (count, *encoder.shape))
    for _ in range(steps.encoder_steps):
        local = local - steps.encoder_rate * clients.gradient(local, heads)
    (summed,) = total("encoder", local)
    return summed / count


def times(matrices: Floats, vectors: Floats) -> Floats:
    """Matrices (..., a, b) times vectors (..., b)."""
    return np.asarray((matrices @ vectors[..., None])[..., 0])
