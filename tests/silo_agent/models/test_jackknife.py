import math

import numpy as np
import pytest

from silo_agent.learning.figures.evaluation import quality
from silo_agent.learning.outcomes.registry import family_of
from silo_agent.models.jackknife import Spread, _wilson, spread

TWO = family_of(2)
NAMES = ("auc", "accuracy", "balanced_accuracy")


def drawn(rng, patients, each):
    """Scores and labels of `patients` who have `each` records; a patient's records share most of their risk."""
    risk = np.repeat(rng.normal(size=patients), each)
    ill = 1 / (1 + np.exp(-(1.5 * risk + 0.3 * rng.normal(size=len(risk)))))
    scores = 1 / (1 + np.exp(-(risk + 0.7 * rng.normal(size=len(risk)))))
    labels = (rng.random(len(risk)) < ill).astype(np.int64)
    return np.stack([1 - scores, scores], 1), labels, np.repeat(np.arange(patients), each)


def test_the_intervals_hold_the_truth_about_as_often_as_they_say():
    rng = np.random.default_rng(5)
    truth = quality(*drawn(rng, 50_000, 2)[:2], 10, TWO)
    found = [spread(*drawn(rng, 60, 2), 10, TWO) for _ in range(50)]
    for name in NAMES:
        held = [getattr(one, name)[0] <= getattr(truth, name) <= getattr(one, name)[1] for one in found]
        assert sum(held) >= 42


def test_records_of_one_patient_count_as_one():
    one = drawn(np.random.default_rng(1), 100, 1)
    copied = tuple(np.concatenate([part] * 9) for part in one)
    for name in NAMES:
        low, high = getattr(spread(*one, 10, TWO), name)
        assert getattr(spread(*copied, 10, TWO), name) == pytest.approx((low, high))


def test_an_interval_at_the_end_has_a_width_and_stays_inside():
    labels = np.arange(40) % 2
    sure = np.stack([1.0 - labels, labels * 1.0], 1)
    low, high = spread(sure, labels, np.arange(40), 10, TWO).auc
    assert 0.8 < low < 0.95
    assert high == 1.0


def test_expected_over_observed_has_an_interval_around_the_truth_whatever_the_unit_of_the_patient():
    rng = np.random.default_rng(7)
    truth = quality(*drawn(rng, 50_000, 2)[:2], 10, TWO).expected_observed
    found = [spread(*drawn(rng, 80, 2), 10, TWO).expected_observed for _ in range(60)]
    assert 52 <= sum(low <= truth <= high for low, high in found) <= 60
    one = drawn(np.random.default_rng(1), 100, 1)
    copied = tuple(np.concatenate([part] * 9) for part in one)
    low, high = spread(*one, 10, TWO).expected_observed
    assert spread(*copied, 10, TWO).expected_observed == pytest.approx((low, high))
    value = quality(*one[:2], 10, TWO).expected_observed
    assert low * high == pytest.approx(value**2), "half as much is as far away as twice as much"
    never = spread(one[0], np.zeros(100, np.int64), one[2], 10, TWO)
    assert never.expected_observed is None


def test_few_patients_and_absent_classes_get_no_interval():
    probabilities, labels, patients = drawn(np.random.default_rng(1), 9, 5)
    assert spread(probabilities, labels, patients, 10, TWO) == Spread(None, None, None)
    many = drawn(np.random.default_rng(1), 30, 1)
    absent = spread(many[0], np.zeros(30, np.int64), many[2], 10, TWO)
    assert (absent.auc, absent.balanced_accuracy) == (None, None)
    assert absent.accuracy is not None
    rare = (np.arange(30) == 7).astype(np.int64)
    assert spread(many[0], rare, many[2], 10, TWO).auc is None


def test_more_classes_have_no_auc():
    rng = np.random.default_rng(1)
    found = spread(rng.dirichlet([1, 1, 1], 60), rng.integers(0, 3, 60), np.arange(60), 10, family_of(3))
    assert found.auc is None
    assert found.balanced_accuracy is not None


def test_wilsons_interval_is_the_textbooks():
    """For a share of 0.3 of 50 independent patients, with Student's quantile at 9 degrees of freedom."""
    n, p, t = 50.0, 0.3, 2.2621571627409915
    middle = (p + t**2 / (2 * n)) / (1 + t**2 / n)
    half = t * math.sqrt(p * (1 - p) / n + t**2 / (4 * n**2)) / (1 + t**2 / n)
    assert _wilson(p, p * (1 - p) / n, 1000, 9) == pytest.approx((middle - half, middle + half))
