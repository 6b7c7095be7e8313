"""Federated averaging of linear heads under DP-SGD at every silo: FedAvg with one or several heads, and FedDAR-WA.

The method of `deploy.demo.baselines.fedavg` for heads that read the inputs themselves. A record's clipped gradient is
then a number times its input, so a step is two matrix products instead of one gradient for each record. Each of a
patient's records counts as a part of it, which bounds a patient as one drawn record does, with less variance. FedDAR-WA
averages each domain's head with the silos' patients of that domain as weights; it hears the exact numbers, for nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from deploy.demo.baselines import FedAvgPlan, calibrate
from deploy.local.simulate.silos import Cohorts
from policies.documents.study import Study
from silo_agent.data.records import Records
from silo_agent.learning.encoder.random_features import raw_scale

Floats = NDArray[np.float64]
Parts = list[tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32], NDArray[np.int64]]]


@dataclass(frozen=True)
class FedAvgRecipe:
    """`heads`: one for all domains, or one for each. `weighted`: FedDAR-WA's average. `epsilon` None: no noise."""

    plan: FedAvgPlan
    epsilon: float | None
    several: bool = True
    weighted: bool = False

    def risks(self, study: Study, cohorts: Cohorts, *, seed: int) -> list[Floats]:
        """Train, and predict each part of the test records. The same seed draws the same noise."""
        scale = raw_scale(study.data, study.model.input_scale)
        if self.epsilon is None:
            plan, noise = replace(self.plan, clip=math.inf), 0.0
        else:
            plan, noise = self.plan, calibrate(self.plan, self.epsilon, study.privacy.delta)
        rng = np.random.default_rng([seed, 20])
        silos = [
            Trainer(silo.training, len(study.data.domains), self.several, scale) for silo in cohorts.silos.values()
        ]
        heads = np.zeros((len(silos[0].counts), silos[0].width))
        counts = np.array([silo.counts for silo in silos])
        even = np.full(counts.shape, 1.0 / len(silos))
        shares = counts / np.maximum(counts.sum(axis=0), 1.0) if self.weighted else even
        for _ in range(plan.rounds):
            changes = np.stack([silo.change(heads, plan, noise, rng) for silo in silos])
            heads = heads + np.einsum("sm,smk->mk", shares, changes)
        risks = []
        for test in cohorts.measured:
            own = heads[test.domains if self.several else np.zeros(len(test), np.int64)]
            risks.append(expit(np.einsum("nk,nk->n", _inputs(test, scale), own)))
        return risks


class Trainer:
    """One silo: its training records, by head, and DP-SGD on them."""

    def __init__(self, records: Records, domains: int, several: bool, scale: float) -> None:  # noqa: FBT001
        inputs = _inputs(records, scale)
        norms = np.linalg.norm(inputs, axis=1)
        which = records.domains if several else np.zeros(len(records), np.int64)
        self.width = inputs.shape[1]
        self.patients = records.patient_count
        self.parts: Parts = []
        """Of each head: inputs (n, K), outcomes less 1/2 (n,), norms and weights (n, 2), patients (n,)."""
        for m in range(domains if several else 1):
            own = which == m
            both = np.column_stack([norms[own], records.weights[own]]).astype(np.float32)
            labels = records.labels[own].astype(np.float32)
            self.parts.append((inputs[own].astype(np.float32), labels, both, records.patients[own]))
        self.counts = np.array([float(both[:, 1].sum()) for _, _, both, _ in self.parts])

    def change(self, heads: Floats, plan: FedAvgPlan, noise: float, rng: np.random.Generator) -> Floats:
        """How far the heads (M, K) move in one round of local steps."""
        local = heads.copy()
        clip = np.float32(plan.clip)
        for _ in range(plan.steps):
            chosen = rng.random(self.patients) < plan.sampling_rate if plan.sampling_rate < 1 else None
            gradient = np.stack([self._gradient(m, local[m], clip, chosen) for m in range(len(local))])
            if noise:
                gradient += noise * plan.clip * rng.normal(size=gradient.shape)
            local -= plan.learning_rate / plan.batch_size * gradient
        return local - heads

    def _gradient(self, m: int, head: Floats, clip: np.float32, chosen: NDArray[np.bool_] | None) -> Floats:
        inputs, labels, both, patients = self.parts[m]
        error = expit(inputs @ head.astype(np.float32)) - labels
        norm = np.abs(error) * both[:, 0]
        scaled = error * both[:, 1] * np.minimum(1.0, clip / np.maximum(norm, np.float32(1e-12)))
        if chosen is not None:
            scaled = scaled * chosen[patients]
        return np.asarray(scaled @ inputs, np.float64)


def _inputs(records: Records, scale: float) -> Floats:
    """(phi, 1) as the study's heads read them, (n, K)."""
    return np.column_stack([np.asarray(records.inputs, np.float64) / scale, np.ones(len(records))])
