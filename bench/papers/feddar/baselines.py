"""What FedDAR is compared with: each client alone, FedAvg, separate FedAvg, FedRep, and the best of their kind.

FedAvg and FedRep learn the same representation as FedDAR, with one head for all, or one for each client.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bench.papers.feddar.law import DOMAINS, INPUTS, WIDTH, Experiment, Floats, Samples, error
from bench.papers.feddar.recipes import times

LOCAL_STEPS = 5
"""Steps of a client in a round of FedAvg."""


def alone(experiment: Experiment, penalty: float) -> float:
    """Error of a ridge regression of each client's own samples."""
    x = experiment.training.inputs
    gram = x.swapaxes(1, 2) @ x + penalty * np.eye(INPUTS)
    own = np.linalg.solve(gram, x.swapaxes(1, 2) @ experiment.training.responses[..., None])
    return error(experiment.test, own[..., 0][:, None])


def one_model(experiment: Experiment) -> float:
    """Error of the least-squares fit of all samples: no FedAvg can be much better."""
    return error(experiment.test, _pooled(experiment.training, np.ones_like(experiment.training.domains, np.bool_)))


def one_model_each_domain(experiment: Experiment) -> float:
    """Error of a least-squares fit for each domain: no separate FedAvg can be much better."""
    fits = [_pooled(experiment.training, experiment.training.domains == m) for m in range(DOMAINS)]
    return error(experiment.test, np.stack(fits))


def fedavg(experiment: Experiment, rate: float, seed: int, rounds: int) -> float:
    """Error of FedAvg."""
    everybody = np.ones_like(experiment.training.domains, np.bool_)
    return error(experiment.test, _averaged(experiment.training, everybody, rate, seed, rounds))


def separate_fedavg(experiment: Experiment, rate: float, seed: int, rounds: int) -> float:
    """Error of one FedAvg for each domain, on the samples of that domain."""
    samples = experiment.training
    models = [_averaged(samples, samples.domains == m, rate, seed + m, rounds) for m in range(DOMAINS)]
    return error(experiment.test, np.stack(models))


def fedrep(experiment: Experiment, rate: float, seed: int, rounds: int) -> float:
    """Error of FedRep: each client's head solved, one common step of the representation, then QR."""
    x, y = experiment.training.inputs, experiment.training.responses
    encoder = np.linalg.qr(np.random.default_rng(seed).normal(size=(INPUTS, WIDTH)))[0]
    for _ in range(rounds):
        z = x @ encoder
        heads = _own_heads(z, y)
        gradients = x.swapaxes(1, 2) @ (times(z, heads) - y)[..., None] * heads[:, None] / y.shape[1]
        encoder = np.linalg.qr(encoder - rate * gradients.mean(axis=0))[0]
    return error(experiment.test, (_own_heads(x @ encoder, y) @ encoder.T)[:, None])


def _own_heads(z: Floats, y: Floats) -> Floats:
    """Least-squares heads (n, k) of every client."""
    moments = times(z.swapaxes(1, 2), y)
    return times(np.linalg.pinv(z.swapaxes(1, 2) @ z, rcond=1e-10, hermitian=True), moments)


def _averaged(samples: Samples, used: NDArray[np.bool_], rate: float, seed: int, rounds: int) -> Floats:
    """Coefficients (d,) of FedAvg on the samples that `used` (n, L) marks. Not finite if it diverges."""
    rng, counts = np.random.default_rng(seed), used.sum(axis=1)
    here = counts > 0
    x, y, own = samples.inputs[here], samples.responses[here], used[here] / counts[here, None]
    share = counts[here] / counts.sum()
    encoder, head = rng.normal(size=(INPUTS, WIDTH)) / np.sqrt(INPUTS), rng.normal(size=WIDTH)
    for _ in range(rounds):
        encoders, heads = np.broadcast_to(encoder, (len(x), *encoder.shape)), np.broadcast_to(head, (len(x), WIDTH))
        for _ in range(LOCAL_STEPS):
            z = x @ encoders
            slope = times(x.swapaxes(1, 2), own * (times(z, heads) - y))
            step = times(encoders.swapaxes(1, 2), slope)
            encoders, heads = encoders - rate * slope[..., None] * heads[:, None], heads - rate * step
        encoder, head = np.tensordot(share, encoders, 1), share @ heads
    return np.asarray(encoder @ head)


def _pooled(samples: Samples, used: NDArray[np.bool_]) -> Floats:
    return np.asarray(np.linalg.lstsq(samples.inputs[used], samples.responses[used], rcond=None)[0])
