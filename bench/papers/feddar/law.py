"""The data of FedDAR 5.1: linear responses of a shared representation, one head for each domain, mixed domains.

What the paper leaves open follows FedRep's notebook, from which it says it took the experiment: d = 20, B* the Q of a
Gaussian matrix's QR, W* likewise with rows of norm 1. The prior p over domains is uniform.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]
Integers = NDArray[np.int64]

CLIENTS, DOMAINS, INPUTS, WIDTH = 100, 5, 20, 2
NOISE, CONCENTRATION = 1e-3, 0.4
TEST_SAMPLES = 100


@dataclass(frozen=True)
class Samples:
    """Samples of all clients, the first axis: inputs (n, L, d), responses (n, L), domains (n, L)."""

    inputs: Floats
    responses: Floats
    domains: Integers


@dataclass(frozen=True)
class Experiment:
    """Training samples, noise-free test samples of the clients' own mixtures, and the true representation (d, k)."""

    training: Samples
    test: Samples
    encoder: Floats


def draw(seed: int, samples: int, clients: int = CLIENTS) -> Experiment:
    """One draw with so many training samples a client."""
    rng = np.random.default_rng((seed, samples))
    encoder = np.linalg.qr(rng.normal(size=(INPUTS, WIDTH)))[0]
    heads = np.linalg.qr(rng.normal(size=(DOMAINS, WIDTH)))[0]
    truth = heads / np.linalg.norm(heads, axis=1, keepdims=True) @ encoder.T
    mixtures = rng.dirichlet(np.full(DOMAINS, CONCENTRATION / DOMAINS), clients)

    def drawn(each: int, noise: float) -> Samples:
        domains = np.stack([rng.choice(DOMAINS, each, p=mixture) for mixture in mixtures])
        inputs = rng.normal(size=(clients, each, INPUTS))
        exact = np.einsum("nld,nld->nl", inputs, truth[domains])
        return Samples(inputs, exact + noise * rng.normal(size=exact.shape), domains)

    return Experiment(drawn(samples, NOISE), drawn(TEST_SAMPLES, 0.0), encoder)


def error(test: Samples, coefficients: Floats) -> float:
    """Mean squared error over all clients; `coefficients` are common (d,), by domain (M, d) or by client (n, 1, d)."""
    own = coefficients[test.domains] if coefficients.ndim == 2 else coefficients
    return float(np.mean((np.sum(test.inputs * own, axis=2) - test.responses) ** 2))


def distance(encoder: Floats, truth: Floats) -> float:
    """Sine of the largest angle between the ranges of two (d, k) matrices."""
    basis = np.linalg.qr(encoder)[0]
    return float(np.linalg.norm(truth - basis @ (basis.T @ truth), 2))
