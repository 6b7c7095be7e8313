import math

import numpy as np
import pytest

from silo_agent.learning.figures.evaluation import Estimate, quality, results_from_histograms, score_histograms
from silo_agent.learning.outcomes.registry import family_of
from silo_agent.models.groups import FIGURES, fairness, released

FAMILY = family_of(2)


def report(risk, labels, places, names=("f", "m"), patients=None):
    whose = np.arange(len(labels)) if patients is None else patients
    said = np.stack([1 - risk, risk], axis=1)
    return fairness(said, labels, places, whose, attribute="sex", names=names, bins=10, family=FAMILY, attacker=0.5)


def test_a_group_that_is_missed_has_a_gap_that_chance_does_not_explain():
    rng = np.random.default_rng(0)
    places, risk = rng.integers(0, 2, 400), rng.uniform(0.05, 0.95, 400)
    labels = (rng.random(400) < risk).astype(np.int64)
    told = np.where(places == 1, risk * 0.4, risk)
    found = report(told, labels, places)
    women, men = found.groups
    assert men.false_negatives == 1.0
    assert women.false_negatives == np.mean(risk[(places == 0) & (labels == 1)] < 0.5)
    whole = quality(np.stack([1 - told, told], axis=1)[places == 0], labels[places == 0], 10, FAMILY)
    assert (women.auc, women.calibration, women.expected_observed) == (
        whole.auc,
        whole.calibration,
        whole.expected_observed,
    )
    assert set(found.gaps) == set(FIGURES)
    for figure in ("false_negatives", "expected_observed", "calibration"):
        gap = found.gaps[figure]
        assert gap.gap == pytest.approx(abs(getattr(women, figure) - getattr(men, figure)))
        assert gap.gap > 1.5 * gap.by_chance


def test_equal_groups_have_the_gaps_of_chance():
    rng = np.random.default_rng(1)
    places, risk = rng.integers(0, 2, 300), rng.uniform(0.05, 0.95, 300)
    labels = (rng.random(300) < risk).astype(np.int64)
    found = report(risk, labels, places)
    assert all(gap.gap < 1.5 * gap.by_chance for gap in found.gaps.values())


def test_an_empty_group_has_no_figures_and_makes_no_gap():
    labels = np.array([0, 1, 1, 0])
    found = report(np.array([0.1, 0.9, 0.8, 0.2]), labels, np.zeros(4, np.int64))
    assert found.groups[1].records == 0
    assert found.groups[1].false_negatives is None
    assert all(gap.gap is None and gap.by_chance is None for gap in found.gaps.values())


def test_the_gap_of_noised_sums_covers_that_of_many_patients():
    """Men's risks are told as two fifths of what they are. The gap of 200,000 patients without noise is the truth."""

    def gap(seed, patients, noise_sd):
        rng = np.random.default_rng(seed)
        places, risk = rng.integers(0, 2, patients), rng.uniform(0.05, 0.95, patients)
        labels = (rng.random(patients) < risk).astype(np.int64)
        told = np.where(places == 1, risk * 0.8, risk)
        said, weights = np.stack([1 - told, told], axis=1), np.ones(patients)
        sums = score_histograms(said, labels, places, weights, FAMILY, count=2, bins=10)
        noised = sums + rng.normal(0, noise_sd, sums.size)
        results = results_from_histograms(noised, noise_sd, FAMILY, count=2, bins=10, rng=rng)
        return released("sex", ("f", "m"), [vars(result) for result in results]).gaps["false_negatives"]

    truth = gap(0, 200_000, 0.0).value
    assert truth > 0.1
    found = [gap(seed, 1500, 2.0) for seed in range(1, 81)]
    assert np.mean([one.low <= truth <= one.high for one in found]) >= 0.9
    assert abs(np.mean([one.value for one in found]) - truth) < 0.01


def test_of_several_groups_the_gap_is_between_the_outermost_and_no_share_is_above_one():
    results = [
        {"auc": Estimate(value, value - 0.3, value + 0.3), "expected_observed": Estimate(2 * value, 0.1, 3.0)}
        for value in (0.7, 0.9, 0.6)
    ]
    gaps = released("sex", ("f", "m", "x"), results).gaps
    assert gaps["auc"].value == pytest.approx(0.3)
    assert (gaps["auc"].low, gaps["auc"].high) == (0.0, pytest.approx(0.3 + math.hypot(0.3, 0.3)))
    assert gaps["expected_observed"].value == pytest.approx(0.6)
    assert gaps["expected_observed"].high > 1.0


def test_a_group_of_too_few_makes_no_gap_of_the_sums():
    results = [{"auc": Estimate(0.8, 0.7, 0.9), "false_negatives": None}, {"auc": Estimate(None, 0.0, 1.0)}]
    found = released("sex", ("f", "m"), results)
    assert found.figures["auc"] == (results[0]["auc"], results[1]["auc"])
    assert set(found.gaps.values()) == {None}
