"""No hospital moves a published figure further than is said beside it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.documents.sections.evaluation import OF_CLASSES, OF_NUMBERS
from policies.documents.study import Expected
from silo_agent.learning.figures.evaluation import auc
from silo_agent.learning.figures.expected_observed import LARGEST_RATIO
from silo_agent.learning.figures.influence import _BOUNDS, largest_hospital, moved


def figures(scores, labels):
    """Every bounded figure of these patients, by its definition."""
    said = scores > 0.5
    right = said == labels
    found = {"auc": auc(scores, labels), "accuracy": right.mean(), "patients": float(len(labels))}
    found["balanced_accuracy"] = (right[labels == 0].mean() + right[labels == 1].mean()) / 2
    found["false_negatives"] = 1 - right[labels == 1].mean()
    found["expected_observed"] = min(scores.sum() / labels.sum(), LARGEST_RATIO)
    edges = np.minimum((scores * 5).astype(int), 4)
    found["calibration"] = np.abs(np.bincount(edges, labels - scores, 5)).sum() / len(labels)
    return found


@given(honest=st.integers(4, 60), hostile=st.integers(1, 40), seed=st.integers(0, 2**32 - 1))
def test_whatever_a_hospital_says_of_its_patients_moves_no_figure_further(honest, hostile, seed):
    rng = np.random.default_rng(seed)
    scores, labels = rng.uniform(0, 1, honest + hostile), rng.integers(0, 2, honest + hostile)
    labels[:4] = (0, 0, 1, 1)
    true = figures(scores, labels)
    scores[honest:], labels[honest:] = rng.choice([0.0, 1.0, rng.random()], hostile), rng.integers(0, 2)
    told = figures(scores, labels)
    sizes = [float((labels == outcome).sum()) for outcome in (0, 1)]
    for metric, value in told.items():
        bound = moved(metric, value, sizes, float(hostile))
        assert abs(value - true[metric]) <= bound + 1e-9, metric


def test_a_small_hospital_moves_little_and_one_that_is_all_of_a_class_everything():
    assert moved("accuracy", 0.8, (60.0, 40.0), 10.0) == pytest.approx(0.1)
    assert moved("auc", 0.8, (60.0, 40.0), 10.0) == pytest.approx(1 - (50 / 60) * (30 / 40))
    assert moved("false_negatives", 0.3, (60.0, 40.0), 10.0) == pytest.approx(0.25)
    assert moved("auc", 0.8, (60.0, 4.0), 10.0) == 1.0
    assert moved("expected_observed", 1.0, (60.0, 4.0), 10.0) > LARGEST_RATIO - 1.5
    assert moved("patients", 100.0, (60.0, 40.0), 10.0) == 10.0
    assert moved("accuracy", 0.8, (), 10.0) is None
    assert moved("r2", 0.8, (60.0, 40.0), 10.0) is None


def test_the_largest_announced_hospital_has_its_share_of_the_held_out_patients():
    assert largest_hospital(Expected(patients=(600, 300, 100)), 3, 200.0) == pytest.approx(120.0)
    assert largest_hospital(Expected(patients=(500,)), 4, 200.0) == pytest.approx(50.0)
    assert largest_hospital(None, 4, 200.0) is None
    assert largest_hospital(Expected(patients=(500,)), 4, -3.0) == 0.0


def test_every_metric_of_classes_has_a_bound_and_none_of_numbers_alone():
    assert set(_BOUNDS) == OF_CLASSES
    assert all(moved(name, 0.5, (10.0, 10.0), 3.0) is None for name in OF_NUMBERS - OF_CLASSES)
