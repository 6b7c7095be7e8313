"""What the study is compared with: hospitals on their own without privacy, and FedAvg with DP-SGD at the same epsilon.

Guarantees a fair comparison: the same records, cohorts (`silo_agent.data.split`) and public test patients, the same
DP-SGD machinery and accountant. FedAvg's own network and settings were tuned on made-up cohorts as the study's were
(seeds 0 to 7). Both run in this process, in the clear: they are yardsticks for made-up
patients, and no way to train on real ones.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from opacus.grad_sample import GradSampleModule
from opacus.optimizers import DPOptimizer
from torch import nn

from deploy.local.logistic import design, logistic
from policies.accounting.accountant import epsilon as spent
from policies.documents.study import DataSchema, Model, Study
from policies.plan.cost import Cost
from silo_agent.data.records import Records
from silo_agent.learning.encoder.encoder import build_encoder, flatten, unflatten
from silo_agent.learning.figures.evaluation import auc

# Inputs need no gradients, and Opacus' hooks do not need theirs; torch remarks on it once per process.
warnings.filterwarnings("ignore", message="Full backward hook is firing", category=UserWarning)

Array = NDArray[np.float64]


@dataclass(frozen=True)
class FedAvgPlan:
    """FedAvg's own settings: local steps of DP-SGD on all parameters, then the plain average over the hospitals."""

    rounds: int = 10
    steps: int = 30
    sampling_rate: float = 1.0
    batch_size: int = 1000
    learning_rate: float = 6.0
    clip: float = 0.3


PLAN: Final = FedAvgPlan()
"""The best of 390 settings on the seeds 0 to 7; a head per domain was better than one head for all."""
NETWORK: Final = Model(encoder="mlp", hidden=(25,), representation=25, gain=2.0, seed=20240611)
"""The network of `PLAN`. Without it, on the inputs themselves, FedAvg was worse on these patients."""


@dataclass(frozen=True)
class FedAvgResult:
    """AUC per domain, and what it cost."""

    auc: tuple[float, ...]
    epsilon: float
    noise: float


def area(scores: Array, labels: NDArray[np.int64]) -> float:
    """Exact AUC; nan if a class is absent."""
    found = auc(scores, labels)
    return float("nan") if found is None else found


def alone(training: Sequence[Records], tests: Sequence[Records]) -> Array:
    """AUC (S, M) of every hospital's own logistic regression on every domain's test patients.

    No privacy. `tests` holds one set of records per domain.
    """
    models = [logistic(records) for records in training]
    return np.array([[area(design(t) @ weights, t.labels) for t in tests] for weights in models])


class _Network(nn.Module):
    """The study's encoder and one linear head per domain, or one head for all, trained together."""

    def __init__(self, model: Model, data: DataSchema, heads: int) -> None:
        super().__init__()
        self.encoder = build_encoder(model, data, stochastic=False)
        self.heads = nn.Linear(self.encoder.width, heads, bias=model.bias)
        with torch.no_grad():
            self.heads.weight.zero_()
            if model.bias:
                self.heads.bias.zero_()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.heads(self.encoder(x))
        return logits


def fedavg(
    training: Sequence[Records],
    tests: Sequence[Records],
    study: Study,
    target: float,
    *,
    seed: int,
    plan: FedAvgPlan = PLAN,
    multi_head: bool = True,
    network: Model | None = None,
) -> FedAvgResult:
    """FedAvg with DP-SGD (local noise, one random record of each sampled patient) at `target` epsilon.

    `network`: the study's model if left out.
    The noise is calibrated by the same accountant as the study's, at the study's delta.
    """
    noise = calibrate(plan, target, study.privacy.delta)
    generator = torch.Generator().manual_seed(seed)
    heads = len(study.data.domains) if multi_head else 1
    trained = _Network(network or study.model, study.data, heads)
    trainer = _Trainer(trained, plan, noise, generator)
    for _ in range(plan.rounds):
        before = flatten(trained)
        updates = [trainer.change(before, records) for records in training]
        unflatten(trained, (before + np.mean(updates, axis=0)).astype(np.float32))
    with torch.no_grad():
        scores = [trained(torch.tensor(t.inputs[:]))[:, m if multi_head else 0] for m, t in enumerate(tests)]
    areas = tuple(area(s.double().numpy(), t.labels) for s, t in zip(scores, tests, strict=True))
    return FedAvgResult(areas, spent([_cost(plan, noise)], study.privacy.delta), noise)


def calibrate(plan: FedAvgPlan, target: float, delta: float) -> float:
    """Smallest noise multiplier (to 0.1 %) at which the plan costs at most `target` epsilon."""
    low, high = 0.3, 0.6
    while spent([_cost(plan, high)], delta) > target:
        low, high = high, 2 * high
    while high / low > 1.001:  # noqa: PLR2004  # the precision named above
        middle = float(np.sqrt(low * high))
        low, high = (low, middle) if spent([_cost(plan, middle)], delta) <= target else (middle, high)
    return high


def _cost(plan: FedAvgPlan, noise: float) -> Cost:
    return Cost("training", plan.sampling_rate, noise, plan.rounds * plan.steps)


@dataclass(frozen=True)
class _Trainer:
    """DP-SGD on all parameters of one network."""

    network: _Network
    plan: FedAvgPlan
    noise: float
    generator: torch.Generator

    def change(self, start: NDArray[np.float32], records: Records) -> NDArray[np.float32]:
        """One hospital's change of all parameters after `plan.steps` steps from `start`."""
        unflatten(self.network, start)
        hooked = GradSampleModule(self.network, loss_reduction="sum")
        optimizer = DPOptimizer(
            torch.optim.SGD(self.network.parameters(), lr=self.plan.learning_rate),
            noise_multiplier=self.noise,
            max_grad_norm=self.plan.clip,
            expected_batch_size=self.plan.batch_size,
            generator=self.generator,
        )
        count = records.patient_count
        order = np.argsort(records.patients, kind="stable")
        visits = np.bincount(records.patients, minlength=count)
        first = np.cumsum(visits) - visits
        for _ in range(self.plan.steps):
            optimizer.zero_grad(set_to_none=True)
            chosen = np.flatnonzero(self._uniform(count) < self.plan.sampling_rate)
            rows = order[first[chosen] + (self._uniform(len(chosen)) * visits[chosen]).astype(np.int64)]
            _loss(self.network, records, rows).backward()  # type: ignore[no-untyped-call]  # torch
            optimizer.step()
        hooked.remove_hooks()
        return flatten(self.network) - start

    def _uniform(self, count: int) -> Array:
        drawn: Array = torch.rand(count, generator=self.generator, dtype=torch.float64).numpy()
        return drawn


def _loss(network: _Network, records: Records, rows: NDArray[np.int64]) -> torch.Tensor:
    phi = network.encoder(torch.tensor(records.inputs[rows]))
    logits = network.heads(phi)
    domains = torch.tensor(records.domains[rows])[:, None]
    own = logits.gather(1, domains) if logits.shape[1] > 1 else logits
    labels = torch.tensor(records.labels[rows], dtype=torch.float32)[:, None]
    return nn.functional.binary_cross_entropy_with_logits(own, labels, reduction="sum")
