"""FedAvg and ten personal models of every client, trained at once: what the paper's code does, in batched products.

The model is linear, 60-20-10 without an activation. `doubled` says whether the cross-entropy gets probabilities, as in
the published code, or logits. The terms are FedWard's: `mk_mmd`, `cosine`, and MMD-D's estimate with a deep kernel
for each client, mapped by `torch.func.vmap`. A test shows that a step is the step of each model alone.

Model 0 of a client is its copy of the shared model. The others are personal: `1 + constraint`, then those with Ditto.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from torch import nn
from torch.func import functional_call, stack_module_state, vmap

from bench.papers.personal_models.published import CONSTRAINTS, Settings
from bench.papers.personal_models.synthetic import CLASSES, CLIENTS, FEATURES, HIDDEN, Data
from silo_agent.learning.terms.losses import cosine, deep_kernel, mk_mmd

ROUNDS: Final = 15
EPOCHS: Final = 5
BATCH: Final = 10
EVERY: Final = 20
"""Steps between two choices of kernel weights, and between two times that a deep kernel is trained."""
STORED: Final = 3
"""Batches that these choices read. The published code reads 51: three hundred times the work."""
KERNEL_STEPS: Final = 5
_MOMENTUM: Final = 0.9
_DECAY: Final = 1e-3
_KINDS: Final = len(CONSTRAINTS)
_ALL: Final = 1 + 2 * _KINDS
_COSINE, _FRESH, _KEPT, _DEEP = (slice(1 + at, None, _KINDS) for at in range(1, _KINDS))
_MK_MMD: Final = [at for models in (_FRESH, _KEPT) for at in range(_ALL)[models]]
_HELD: Final = slice(1 + _KINDS, None)
"""The models with Ditto."""


@dataclass(frozen=True)
class TrainingWay:
    """How the models are trained and how long."""

    doubled: bool
    rounds: int = ROUNDS
    epochs: int = EPOCHS


class _Deep:
    """A deep kernel for each of D clients and two methods, (D, 2), with the optimiser that all share."""

    def __init__(self, clients: int) -> None:
        kernels: list[nn.Module] = [deep_kernel.DeepKernel(HIDDEN) for _ in range(2 * clients)]
        self._state, _ = stack_module_state(kernels)
        self._optimizer = torch.optim.AdamW(self._state.values(), lr=deep_kernel.RATE)
        kernel = _Statistics()
        self._statistics = vmap(lambda state, x, y: functional_call(kernel, state, (x, y)))

    def _mapped(self, of: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        state = {f"kernel.{name}": values for name, values in self._state.items()}
        return vmap(of)(self._statistics(state, x.flatten(0, 1), y.flatten(0, 1)))

    def distances(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """The estimate (2 D,) between features (D, 2, n, 20); its gradient reaches x."""
        return self._mapped(deep_kernel.discrepancy, x, y)

    def improve(self, x: torch.Tensor, y: torch.Tensor, drawn: torch.Generator) -> None:
        """Steps towards more power; the second set stands in another order at each."""
        for _ in range(KERNEL_STEPS):
            order = torch.randperm(x.shape[-2], generator=drawn)
            self._optimizer.zero_grad()
            torch.autograd.backward(-self._mapped(deep_kernel.power, x, y[..., order, :]).sum())
            self._optimizer.step()
        self._optimizer.zero_grad()


class _Statistics(nn.Module):
    """A deep kernel whose call gives the statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.kernel = deep_kernel.DeepKernel(HIDDEN)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """H (n, n) of features (n, 20)."""
        return self.kernel.statistics(x, y)


class Stack:
    """Eleven models of D clients. Weights: (D, 11, 20, 60), (D, 11, 20, 1), (D, 11, 10, 20) and (D, 11, 10, 1)."""

    def __init__(self, settings: Settings, way: TrainingWay, seeds: list[int]) -> None:
        self.settings, self.way = settings, way
        clients = CLIENTS * len(seeds)
        self.weights = [torch.cat(parts) for parts in zip(*(_start(seed) for seed in seeds), strict=True)]
        for values in self.weights:
            values.requires_grad_()
        self.anchor = [values.detach()[:, :1].clone() for values in self.weights]
        self._optimizer = torch.optim.SGD(
            self.weights, lr=settings.rate, momentum=_MOMENTUM, weight_decay=_DECAY, fused=True
        )
        self._ditto = torch.tensor([method.ditto for method in settings.methods[_KINDS:]])[:, None, None]
        self._mu = torch.tensor([0.0, *(method.mu for method in settings.methods)])
        self.deep = _Deep(clients)
        self.kept = np.full((clients, 2, len(mk_mmd.GAMMAS)), 1.0 / len(mk_mmd.GAMMAS))

    def features(self, x: torch.Tensor) -> torch.Tensor:
        """(D, 11, n, 20) of inputs (D, n, 60)."""
        return _hidden(self.weights, x).mT

    def reference(self, x: torch.Tensor) -> torch.Tensor:
        """Features (D, 1, n, 20) of the constant shared model."""
        return _hidden(self.anchor, x).mT

    def losses(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Loss (D, 11) of every model but for Ditto's distance, on inputs (D, n, 60) and labels (D, n)."""
        hidden = _hidden(self.weights, x)
        features, reference = hidden.mT, self.reference(x)
        logits = self.weights[2] @ hidden + self.weights[3]
        logits = logits.softmax(dim=-2) if self.way.doubled else logits
        own = logits.gather(-2, y[:, None, None, :].expand(-1, _ALL, -1, -1)).squeeze(-2)
        loss = (logits.logsumexp(dim=-2) - own).mean(dim=-1)
        held = torch.zeros_like(loss)
        held[:, _COSINE] = cosine.turned(features[:, _COSINE], reference)
        both = reference.expand(-1, 2, -1, -1)
        compared = mk_mmd.compare(features[:, _MK_MMD].view(-1, 2, 2, *features.shape[2:]), both[:, None])
        fresh = mk_mmd.kernel_weights(compared.statistics()[:, :, 0])
        held[:, _MK_MMD] = compared.mmd(np.stack([fresh, self.kept], axis=1)).flatten(1)
        held[:, _DEEP] = self.deep.distances(features[:, _DEEP], both).view(-1, 2)
        return loss + self._mu * held

    def step(self, x: torch.Tensor, y: torch.Tensor) -> None:
        """One step of every model. The gradient of Ditto's distance is added to that of the losses."""
        self._optimizer.zero_grad()
        torch.autograd.backward(self.losses(x, y).sum())
        with torch.no_grad():
            for values, shared in zip(self.weights, self.anchor, strict=True):
                if values.grad is not None:
                    values.grad[:, _HELD] += self._ditto * (values[:, _HELD] - shared)
        self._optimizer.step()

    def adapt(self, x: torch.Tensor, drawn: torch.Generator) -> None:
        """Choose the kept kernel weights anew and train the deep kernels, on stored records (D, n, 60)."""
        with torch.no_grad():
            features, reference = self.features(x), self.reference(x).expand(-1, 2, -1, -1)
            self.kept = mk_mmd.kernel_weights(mk_mmd.compare(features[:, _KEPT], reference).statistics())
        self.deep.improve(features[:, _DEEP], reference, drawn)

    def average(self) -> None:
        """The clients of each seed get the mean of their shared models, which is the new constant too."""
        with torch.no_grad():
            for at, values in enumerate(self.weights):
                mean = _by_seed(values[:, :1]).mean(dim=1).repeat_interleave(CLIENTS, dim=0)
                values[:, :1] = mean
                self.anchor[at] = mean

    def accuracies(self, x: torch.Tensor, y: torch.Tensor) -> np.ndarray:
        """Per cent (seeds, 11), in the mean over the seed's clients, each on its own test records."""
        with torch.no_grad():
            logits = self.weights[2] @ _hidden(self.weights, x) + self.weights[3]
            right = (logits.argmax(dim=-2) == y[:, None, :]).double().mean(dim=-1)
        return np.asarray(100.0 * _by_seed(right).mean(dim=1).numpy(), np.float64)


def train(
    settings: Settings, way: TrainingWay, data: Data, seeds: list[int], told: Callable[[str], None]
) -> np.ndarray:
    """Accuracies (seeds, 11): the shared model's, then those of `settings.methods`."""
    stack = Stack(settings, way, seeds)
    drawn = torch.Generator().manual_seed(1)
    clients, records = data.y.shape
    rows = torch.arange(clients)[:, None]

    def some(count: int) -> torch.Tensor:
        return torch.rand(clients, records, generator=drawn).argsort(dim=1)[:, :count]

    for number in range(way.rounds):
        stack.average()
        taken = 0
        for _ in range(way.epochs):
            for chosen in torch.split(some(records), BATCH, dim=1):
                stack.step(data.x[rows, chosen], data.y[rows, chosen])
                if taken % EVERY == 1:
                    stack.adapt(data.x[rows, some(STORED * BATCH)], drawn)
                taken += 1
        told(f"round {number + 1} of {way.rounds}")
    stack.average()
    return stack.accuracies(data.x_test, data.y_test)


def _hidden(weights: list[torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    """(D, K, 20, n): all models of a client read its records (D, n, 60) in one product."""
    first = weights[0]
    return (first.flatten(1, 2) @ x.mT).view(*first.shape[:3], -1) + weights[1]


def _by_seed(values: torch.Tensor) -> torch.Tensor:
    """(seeds, 8, ...) of what all clients have, (D, ...)."""
    return values.reshape(-1, CLIENTS, *values.shape[1:])


def _start(seed: int) -> list[torch.Tensor]:
    """The same first weights for all models of a seed."""
    drawn = torch.Generator().manual_seed(seed)
    weights = []
    for inputs, outputs in ((FEATURES, HIDDEN), (HIDDEN, CLASSES)):
        for width in (inputs, 1):
            values = (2.0 * torch.rand(outputs, width, generator=drawn) - 1.0) * inputs**-0.5
            weights.append(values.repeat(CLIENTS, _ALL, 1, 1))
    return weights
