import numpy as np
import pytest

from silo_agent.learning.figures.evaluation import auc
from silo_agent.models import attacker
from silo_agent.models.attacker import attacker_auc, scores

rng = np.random.default_rng(3)
X = rng.normal(size=(240, 4)).astype(np.float32)


@pytest.mark.slow
def test_it_finds_what_stands_in_a_curve_and_nothing_in_noise():
    ring = (np.abs(X[:, 0]) > 0.7).astype(np.int64)
    assert attacker_auc(X, ring) > 0.85
    assert attacker_auc(X, ring) == attacker_auc(X, ring)
    assert abs(attacker_auc(X, rng.integers(0, 2, 240)) - 0.5) < 0.12
    assert attacker_auc(X, np.digitize(X[:, 1], [-0.5, 0.5])) > 0.85, "three groups"


@pytest.mark.slow
def test_the_records_of_a_patient_are_never_on_both_sides():
    patients = np.arange(240) // 2
    twins = np.repeat(X[::2], 2, axis=0)
    of_patients = np.random.default_rng(4).integers(0, 2, 120)[patients]
    assert abs(attacker_auc(twins, of_patients, patients) - 0.5) < 0.15
    assert attacker_auc(twins, of_patients) > 0.6, "a twin in training tells the group"


def test_too_few_patients_or_one_group_say_nothing():
    assert attacker_auc(X, np.zeros(240, np.int64)) is None
    assert attacker_auc(X[:49], np.arange(49) % 2) is None
    assert attacker_auc(X[:0], np.zeros(0, np.int64)) is None
    assert attacker_auc(X, np.arange(240) % 2, np.arange(240) // 5) is None


def test_it_tells_of_patients_whom_it_did_not_learn_from():
    group = (X[:, 0] > 0).astype(np.int64)
    said = scores(X[:180].astype(np.float64), group[:180], X[180:].astype(np.float64), 2, np.random.default_rng(0))
    np.testing.assert_allclose(said.sum(axis=1), 1.0)
    assert auc(said[:, 1], group[180:]) > 0.9


@pytest.mark.parametrize("groups", [2, 3])
def test_it_is_the_mean_over_the_parts_and_groups_and_asks_of_each_record_once(monkeypatch, groups):
    """Here with an attacker that learns nothing, and says of each group how near a value of the record is to it."""
    people = np.arange(120) // 2
    own = np.random.default_rng(7).integers(0, groups, 120)
    told = own + np.random.default_rng(8).normal(0, 0.5, 120)
    order, asked, areas = np.sort(told), [], []

    def says(x, learned, given, count, _drawn):
        told_of = order.mean() + order.std() * given[:, 0]
        rows = np.argsort(told)[np.searchsorted(order, told_of - 1e-9)]
        asked.append(rows)
        assert len(x) == len(learned) == 120 - len(rows)
        said = -np.abs(told_of[:, None] - np.arange(count))
        areas.extend(auc(said[:, group], (own[rows] == group).astype(np.int64)) for group in range(count))
        return said

    monkeypatch.setattr(attacker, "scores", says)
    found = attacker_auc(told[:, None].astype(np.float64), own, people)
    assert len(areas) == 5 * groups
    assert found == pytest.approx(np.mean(areas))
    assert 0.6 < found < 0.95
    assert sorted(np.concatenate(asked)) == list(range(120))
    assert sum(len(set(people[rows])) for rows in asked) == 60, "all records of a patient are in one part"
