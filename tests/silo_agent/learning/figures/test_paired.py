import numpy as np
import pytest
from scipy.stats import t

from policies.documents.study import NUMBER
from silo_agent.learning.figures.evaluation import auc
from silo_agent.learning.figures.paired import paired
from silo_agent.learning.outcomes.registry import family_of

BINARY = family_of(2)


def two(p):
    return np.stack([1 - p, p], axis=1)


def cohort(n, seed, *, records=1):
    r = np.random.default_rng(seed)
    latent = r.normal(size=n)
    labels = (r.random(n) < 1 / (1 + np.exp(-2 * latent))).astype(np.int64)
    patients = np.repeat(np.arange(n), records)
    first, second = (1 / (1 + np.exp(-latent - r.normal(scale=s, size=n))) for s in (1.0, 0.5))
    return two(np.repeat(first, records)), two(np.repeat(second, records)), np.repeat(labels, records), patients


def test_the_values_are_the_differences_of_the_figures():
    first, second, labels, patients = cohort(200, 0)
    found = paired(first, second, labels, patients, BINARY)
    rows = np.arange(200)
    assert found.loss.value == pytest.approx(np.mean(np.log(first[rows, labels]) - np.log(second[rows, labels])))
    assert found.auc.value == pytest.approx(auc(second[:, 1], labels) - auc(first[:, 1], labels))
    assert found.patients == 200


@pytest.mark.parametrize("count", [10, 100])
def test_a_loss_has_the_interval_of_a_paired_mean(count):
    first, second, labels, patients = cohort(count, 1)
    found = paired(first, second, labels, patients, BINARY).loss
    gap = np.log(first[patients, labels]) - np.log(second[patients, labels])
    half = t.ppf(0.975, count - 1) * gap.std(ddof=1) / np.sqrt(count)
    assert (found.high - found.value, found.value - found.low) == pytest.approx((half, half))


@pytest.mark.slow
def test_intervals_hold_the_truth_about_as_often_as_they_say():
    first, second, labels, patients = cohort(50_000, 99)
    loss = np.mean(np.log(first[patients, labels]) - np.log(second[patients, labels]))
    area = auc(second[:, 1], labels) - auc(first[:, 1], labels)
    found = [paired(*cohort(100, seed), BINARY) for seed in range(60)]
    assert sum(one.loss.low <= loss <= one.loss.high for one in found) >= 52
    assert sum(one.auc.low <= area <= one.auc.high for one in found) >= 52


def test_records_of_a_patient_count_once():
    once, often = (paired(*cohort(80, 2, records=records), BINARY) for records in (1, 5))
    assert (often.loss.value, often.loss.high) == pytest.approx((once.loss.value, once.loss.high))
    assert (often.auc.low, often.auc.high) == pytest.approx((once.auc.low, once.auc.high))


def test_what_cannot_be_said_is_none():
    first, second, labels, patients = cohort(9, 3)
    few = paired(first, second, labels, patients, BINARY)
    assert (few.loss.low, few.auc and few.auc.low) == (None, None)
    assert paired(first, second, np.zeros(9, np.int64), patients, BINARY).auc is None
    nobody = paired(first[:0], second[:0], labels[:0], patients[:0], BINARY)
    assert (nobody.patients, nobody.loss, nobody.auc) == (0, None, None)


def test_a_number_is_compared_by_its_errors():
    places = np.full(20, 2**19)  # the middle, 0
    far, near = np.full((20, 1), 0.5), np.full((20, 1), 0.1)
    found = paired(far, near, places, np.arange(20), family_of(NUMBER))
    assert (found.loss.value, found.auc) == (pytest.approx((0.01 - 0.25) / 2), None)
