"""Federated averaging of linear heads in closed form."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from bench.accuracy.real.fedavg import FedAvgRecipe, Trainer
from deploy.demo import baselines
from deploy.demo.baselines import FedAvgPlan
from deploy.local.simulate.silos import rows_of
from silo_agent.learning.encoder.encoder import raw_scale
from support.made_up import MadeUp
from support.studies import tiny_study

PLAN = FedAvgPlan(rounds=1, steps=4, sampling_rate=1.0, batch_size=100, learning_rate=5.0, clip=0.2)


@pytest.fixture(scope="module")
def study():
    own = tiny_study()
    model = {"encoder": "raw", "hidden": [], "representation": own.data.inputs}
    return tiny_study(model=model, encoder={"rounds": 0})


@pytest.mark.parametrize("several", [True, False])
def test_without_noise_a_round_is_that_of_gradients_by_record(study, several):
    cohorts = MadeUp(patients=150, test=10).draw(study, 1)
    records = next(iter(cohorts.silos.values())).training
    domains = len(study.data.domains)
    network = baselines._Network(study.model, study.data, domains if several else 1)
    trainer = baselines._Trainer(network, PLAN, 0.0, torch.Generator().manual_seed(0))
    slow = trainer.change(baselines.flatten(network), records)
    own = Trainer(records, domains, several, raw_scale(study.data, "even"))
    fast = own.change(np.zeros((len(own.counts), own.width)), PLAN, 0.0, np.random.default_rng(0))
    np.testing.assert_allclose(np.concatenate([fast[:, :-1].ravel(), fast[:, -1]]), slow, atol=1e-5)
    assert np.abs(fast).max() > 0.01


def test_a_patient_moves_a_step_by_no_more_than_the_clip(study):
    cohorts = MadeUp(patients=60, test=10).draw(study, 1)
    records = next(iter(cohorts.silos.values())).training
    fewer = records.of_patients(np.arange(records.patient_count) != 3)
    plan = replace(PLAN, steps=1, learning_rate=1.0, batch_size=1)
    heads = np.full((len(study.data.domains), study.data.inputs + 1), 3.0)
    moved = [
        Trainer(own, len(heads), several=True, scale=0.01).change(heads, plan, 0.0, np.random.default_rng(0))
        for own in (records, fewer)
    ]
    assert 0.5 * plan.clip < np.linalg.norm(moved[0] - moved[1]) <= plan.clip * (1 + 1e-5)


def test_the_weighted_average_leaves_out_a_silo_without_patients_of_the_domain(study):
    cohorts = MadeUp(patients=2000, test=4000, effect=3.0, difference=2.0).draw(study, 2)
    plan = FedAvgPlan(rounds=5, steps=5, sampling_rate=1.0, batch_size=1000, learning_rate=20.0, clip=0.3)
    first, *_ = cohorts.silos
    silos = dict(cohorts.silos)
    only = silos[first].training
    silos[first] = replace(silos[first], training=rows_of(only, only.domains == 0))
    parted = replace(cohorts, silos=silos)
    plain, weighted = (
        FedAvgRecipe(plan, None, several=True, weighted=weighted).risks(study, parted, seed=1)[0]
        for weighted in (False, True)
    )
    other = parted.measured[0].domains == 1
    labels = parted.measured[0].labels[other]

    def loss(risks):
        return -np.mean(labels * np.log(risks) + (1 - labels) * np.log(1 - risks))

    assert loss(weighted[other]) < loss(plain[other])
