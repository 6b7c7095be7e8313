"""The shared encoder phi: R^d -> R^k, from the silo's own list of architectures.

Guarantees ||phi(x)|| <= 1 for every input and every weight, by its last layer tanh(.) / sqrt(k): the heads' sensitivity
rests on it, and clamping norms instead was measured to destroy information. The start is a pure function of the public
seed, bit-identical on every platform. Training is elsewhere.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from policies.study import Model

MIN_DEVIATION = 1e-3
"""Added to every deviation: noise may push a raw deviation far down, and a KL term must stay finite."""
_CHUNK = 65_536


class Encoder(nn.Module):
    """Linear/Tanh stack: phi = tanh(a(x)) / sqrt(k). Stochastic (FedSR): a ~ N(mean(x), deviation(x)^2).

    The map from a to phi is one-to-one, so the KL divergence of FedSR's q(z|x) from r(z|y) is the one of the Gaussians
    of a. Without noise phi is taken at the mean. `inputs` = d; a new encoder is all zeros (`build_encoder` starts one).
    """

    def __init__(self, model: Model, inputs: int, *, stochastic: bool) -> None:
        super().__init__()
        self.representation = model.representation
        self.stochastic = stochastic
        widths = (inputs, *model.hidden, model.representation * (2 if stochastic else 1))
        layers: list[nn.Module] = []
        for width, following in pairwise(widths):
            # Without storage first: torch's own random start would be drawn for nothing.
            layers += [nn.Linear(width, following, device="meta"), nn.Tanh()]
        self.layers = nn.Sequential(*layers[:-1]).to_empty(device="cpu")
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.zero_()

    def moments(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Mean (n, k) of a, and its deviation (n, k) > 0 where the encoder is stochastic."""
        out: torch.Tensor = self.layers(x)
        if not self.stochastic:
            return out, None
        deviation = functional.softplus(out[:, self.representation :]) + MIN_DEVIATION
        return out[:, : self.representation], deviation

    def squash(self, a: torch.Tensor) -> torch.Tensor:
        """From a to phi."""
        return torch.tanh(a) / math.sqrt(self.representation)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return phi (n, k) at the mean of a."""
        return self.squash(self.moments(x)[0])


def build_encoder(model: Model, inputs: int, *, stochastic: bool) -> Encoder:
    """An encoder at the common start: orthogonal weights from `model.seed`, the last times `model.gain`, biases 0."""
    encoder = Encoder(model, inputs, stochastic=stochastic)
    linears = [layer for layer in encoder.layers if isinstance(layer, nn.Linear)]
    generator = np.random.PCG64(model.seed)
    with torch.no_grad():
        for layer in linears:
            last = layer is linears[-1]
            # Deviations start at zero weight: orthogonal rows for means and deviations together would leave means that
            # are not, and lose what the inputs tell.
            rows = model.representation if last else layer.out_features
            start = _orthogonal(generator, rows, layer.in_features) * (model.gain if last else 1.0)
            layer.weight[:rows].copy_(torch.from_numpy(start.astype(np.float32)))
    return encoder


def features(encoder: Encoder, inputs: NDArray[np.float32], device: torch.device | str = "cpu") -> torch.Tensor:
    """Return phi of all rows, float32 (n, k) on `device`, without gradients. The encoder is moved there."""
    encoder = encoder.to(device)
    with torch.no_grad():
        parts = [
            encoder(torch.tensor(inputs[start : start + _CHUNK], device=device))
            for start in range(0, max(len(inputs), 1), _CHUNK)
        ]
    return torch.cat(parts)


def flatten(module: nn.Module) -> NDArray[np.float32]:
    """All parameters as one vector, in the order of `named_parameters` (layer by layer, weight before bias)."""
    parts = [parameter.detach().cpu().numpy().ravel() for _, parameter in module.named_parameters()]
    return np.concatenate(parts).astype(np.float32)


def unflatten(module: nn.Module, vector: NDArray[np.float32]) -> None:
    """Inverse of `flatten`, in place. Raises ValueError for another length."""
    parameters = list(module.parameters())
    if vector.shape != (sum(parameter.numel() for parameter in parameters),):
        msg = f"{sum(parameter.numel() for parameter in parameters)} weights were expected, {vector.shape} came"
        raise ValueError(msg)
    start = 0
    with torch.no_grad():
        for parameter in parameters:
            part = vector[start : start + parameter.numel()].reshape(parameter.shape)
            parameter.copy_(torch.tensor(part, dtype=torch.float32))
            start += parameter.numel()


def _orthogonal(generator: np.random.PCG64, rows: int, columns: int) -> NDArray[np.float64]:
    """A matrix with orthonormal rows (or columns, whichever are fewer).

    Modified Gram-Schmidt in elementwise float64 operations in a fixed order: LAPACK's QR differs between machines in
    the last bits, and every silo must start from the same digest.
    """
    count, length = min(rows, columns), max(rows, columns)
    raw = generator.random_raw(count * length).reshape(count, length)
    basis = (raw >> np.uint64(11)).astype(np.float64) * 2.0**-52 - 1.0
    for i in range(count):
        basis[i] /= np.sqrt(_row_sums(basis[i : i + 1] ** 2))
        rest = basis[i + 1 :]
        rest -= _row_sums(rest * basis[i])[:, None] * basis[i]
    return basis if rows <= columns else basis.T.copy()


def _row_sums(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sum each row by halving: the same additions in the same order everywhere."""
    while values.shape[1] > 1:
        half = values.shape[1] // 2
        paired = values[:, :half] + values[:, half : 2 * half]
        values = np.concatenate([paired, values[:, 2 * half :]], axis=1)
    return values[:, 0]
