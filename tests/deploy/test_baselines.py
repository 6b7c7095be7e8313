from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from deploy.demo import baselines
from policies.accounting.accountant import epsilon
from policies.documents.study import load_study
from policies.plan.cost import Cost
from silo_agent.data.records import Records

STUDY = load_study(Path(__file__).parents[2] / "deploy" / "demo" / "exam" / "study.yaml")
M, D = len(STUDY.data.domains), STUDY.data.inputs
SMALL = replace(baselines.PLAN, rounds=2, steps=2)


def records(seed, n, domain=None):
    """Labels follow the first input."""
    rng = np.random.default_rng(seed)
    inputs = rng.uniform(-1, 1, size=(n, D)).astype(np.float32)
    labels = (rng.random(n) < 1 / (1 + np.exp(-4 * inputs[:, 0]))).astype(np.int64)
    domains = rng.integers(0, M, n) if domain is None else np.full(n, domain)
    patients = np.sort(np.r_[np.arange(n - n // 4), rng.integers(0, n - n // 4, n // 4)])
    return Records(inputs, labels, domains, patients, tuple(f"p{i}" for i in range(n - n // 4)))


SITES = [records(i, 200) for i in range(3)]
TESTS = [records(10 + m, 300, m) for m in range(M)]


@pytest.mark.parametrize("seed", range(3))
def test_area_is_the_chance_that_a_positive_scores_higher(seed):
    rng = np.random.default_rng(seed)
    scores, labels = rng.integers(0, 6, 60).astype(float), rng.integers(0, 2, 60)
    pairs = scores[labels > 0][:, None] - scores[labels == 0][None]
    assert baselines.area(scores, labels) == pytest.approx(((pairs > 0) + 0.5 * (pairs == 0)).mean())
    assert np.isnan(baselines.area(scores, np.ones(60, np.int64)))


def test_a_hospital_alone_learns_what_its_data_say():
    auc = baselines.alone(SITES, TESTS)
    assert auc.shape == (3, M)
    assert (auc > 0.75).all()


@pytest.mark.parametrize("target", [1.0, 3.9])
def test_fedavg_spends_the_epsilon_it_is_given(target):
    noise = baselines.calibrate(SMALL, target, STUDY.privacy.delta)
    spent = epsilon([Cost("training", SMALL.sampling_rate, noise, 4)], STUDY.privacy.delta)
    assert 0.99 * target < spent <= target


def test_fedavg_learns_and_repeats_with_its_seed():
    # Hardly any noise: what is tested is that the training goes the right way.
    plan = replace(baselines.PLAN, rounds=4, steps=10, batch_size=150)
    one = baselines.fedavg(SITES, TESTS, STUDY, 32.0, seed=1, plan=plan)
    two = baselines.fedavg(SITES, TESTS, STUDY, 32.0, seed=1, plan=plan)
    assert one == two
    assert len(one.auc) == M
    assert np.mean(one.auc) > 0.65
    assert one.epsilon <= 32.0


def test_one_head_for_all_domains_has_one_output():
    found = baselines.fedavg(SITES, TESTS, STUDY, 3.9, seed=1, plan=SMALL, multi_head=False)
    assert len(found.auc) == M
    with torch.no_grad():
        assert baselines._Network(STUDY.model, STUDY.data, 1)(torch.zeros(2, D)).shape == (2, 1)


def test_fedavgs_noise_is_there():
    first = baselines.fedavg(SITES, TESTS, STUDY, 3.9, seed=1, plan=SMALL)
    second = baselines.fedavg(SITES, TESTS, STUDY, 3.9, seed=2, plan=SMALL)
    assert first.auc != second.auc
    assert first.noise == second.noise
