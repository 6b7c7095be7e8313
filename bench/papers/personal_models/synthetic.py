"""The Synthetic data of the adaptive-MMD paper (its appendix A): eight clients, each with a linear law of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch

CLIENTS: Final = 8
FEATURES: Final = 60
HIDDEN: Final = 20
CLASSES: Final = 10
_RECORDS: Final = 5000
_TRAINING: Final = 3200
_VALIDATION: Final = 800
_TEMPERATURE: Final = 2.0


@dataclass(frozen=True, repr=False, eq=False)
class Data:
    """Of D clients: inputs (D, 3200, 60) and labels (D, 3200) to train on, (D, 1000, 60) and (D, 1000) to test."""

    x: torch.Tensor
    y: torch.Tensor
    x_test: torch.Tensor
    y_test: torch.Tensor


def draw(heterogeneity: float, seeds: list[int]) -> Data:
    """Eight clients of every seed, seed after seed. 800 records of a client are put aside, as the paper does."""
    clients = [client for seed in seeds for client in _clients(heterogeneity, torch.Generator().manual_seed(seed))]
    x, y = (torch.stack(part) for part in zip(*clients, strict=True))
    after = _TRAINING + _VALIDATION
    return Data(x[:, :_TRAINING], y[:, :_TRAINING], x[:, after:], y[:, after:])


def _clients(heterogeneity: float, drawn: torch.Generator) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Inputs (5000, 60) and labels (5000,) of each client: alpha = beta = `heterogeneity`, as standard deviations."""
    deviations = torch.arange(1, FEATURES + 1) ** -0.6

    def normal(*size: int) -> torch.Tensor:
        return torch.randn(*size, generator=drawn)

    clients = []
    for _ in range(CLIENTS):
        x = heterogeneity * normal(1) + normal(FEATURES) + deviations * normal(_RECORDS, FEATURES)
        first, second = (heterogeneity * normal(1) for _ in range(2))
        hidden = (x @ (first + normal(FEATURES, HIDDEN)) + first + normal(HIDDEN)) / _TEMPERATURE
        clients.append((x, (hidden @ (second + normal(HIDDEN, CLASSES)) + second + normal(CLASSES)).argmax(dim=1)))
    return clients
