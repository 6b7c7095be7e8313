"""Exact metrics, by domain and together."""

import math

import numpy as np
import pytest

from deploy.local.simulate.outcome import Exact, RunMetrics, epsilons, mean, measure
from deploy.local.simulate.silos import of_arrays
from deploy.local.simulate.variants import without_noise
from policies.plan.families import TARGET_STEPS
from support.studies import tiny_study


def test_metrics_of_known_scores():
    risks = np.array([0.1, 0.4, 0.35, 0.8, 0.2])
    records = of_arrays(np.zeros((5, 2)), [0, 0, 1, 1, 0], [0, 0, 0, 0, 1])
    said = np.stack([1 - risks, risks], axis=1)
    (first, second), together = measure(tiny_study(), [records], [said])
    assert first.auc == pytest.approx(0.75)
    assert first.accuracy == pytest.approx(0.75)
    assert first.calibration == pytest.approx(1.65 / 2)
    assert (first.records, first.least) == (4, 2)
    assert (second.auc, second.calibration, second.accuracy) == (None, None, 1.0)
    assert together.calibration == pytest.approx(1.85 / 2)


def test_a_patient_with_many_records_counts_once_in_the_calibration():
    risks = np.array([0.5, 0.9, 0.9, 0.9])
    records = of_arrays(np.zeros((4, 2)), [1, 1, 1, 1], [0, 0, 0, 0], patients=[0, 1, 1, 1])
    (first, _), _ = measure(tiny_study(), [records], [np.stack([1 - risks, risks], axis=1)])
    assert first.calibration == pytest.approx(0.7)


def test_parts_are_measured_as_one():
    rng = np.random.default_rng(1)
    risks, labels, domains = rng.random(50), rng.integers(0, 2, 50), rng.integers(0, 2, 50)
    said = np.stack([1 - risks, risks], axis=1)
    cut = [of_arrays(np.zeros((25, 2)), labels[part], domains[part]) for part in (slice(25), slice(25, 50))]
    whole = of_arrays(np.zeros((50, 2)), labels, domains)
    assert measure(tiny_study(), cut, [said[:25], said[25:]]) == measure(tiny_study(), [whole], [said])


def test_mean_and_worst_pass_over_domains_that_cannot_tell():
    exact = [Exact(auc, 0.9, 1.0, 10, least) for auc, least in ((0.8, 5), (0.6, 2), (None, 0))]
    run = RunMetrics(tiny_study(), 1, tuple(exact), exact[0])
    assert run.mean == pytest.approx(0.7)
    assert run.worst() == 0.6
    assert run.worst(least=3) == 0.8
    assert math.isnan(run.worst(least=9))
    assert math.isnan(mean([None]))


def test_more_than_two_classes_are_judged_by_their_accuracy():
    classes = {"column": "ill", "positive": [], "negative": [], "classes": [["a"], ["b"], ["c"]]}
    study = tiny_study(data={"label": classes})
    records = of_arrays(np.zeros((4, 2)), [0, 1, 2, 2], [0, 0, 1, 1])
    said = np.eye(3)[[0, 1, 2, 0]] * 0.7 + 0.1
    by_domain, together = measure(study, [records], [said])
    run = RunMetrics(study, 1, by_domain, together)
    assert (run.mean, run.worst()) == (0.75, 0.5)
    assert together.calibration == pytest.approx(0.8 / 0.75)


def test_a_number_is_judged_by_what_is_explained_of_it():
    label = {"column": "ill", "positive": [], "negative": [], "minimum": 0, "maximum": 10}
    study = tiny_study(data={"label": label}, evaluation={"bins": 10})
    places = np.array([0, 1, 2, 3]) * TARGET_STEPS // 4
    records = of_arrays(np.zeros((4, 2)), places, [0, 0, 1, 1])
    (first, second), together = measure(study, [records], [np.array([[-1.0], [-0.5], [0.0], [0.0]])])
    run = RunMetrics(study, 1, (first, second), together)
    assert run.value(first) == 1.0
    assert run.worst() == run.value(second) == pytest.approx(-1.0)
    assert second.mae == pytest.approx(1.25)
    assert (together.records, together.least, together.auc, together.calibration) == (4, 4, None, None)


def test_epsilon_is_told_by_cohort():
    study = tiny_study()
    assert set(epsilons(study)) == {"training", "evaluation"}
    assert 0 < epsilons(study)["evaluation"] < 2
    assert set(epsilons(without_noise(study)).values()) == {math.inf}


def test_a_study_is_priced_once():
    study = tiny_study()
    assert epsilons(study) is epsilons(tiny_study())
