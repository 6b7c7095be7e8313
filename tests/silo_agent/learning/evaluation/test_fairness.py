import numpy as np
import pytest

from silo_agent.learning.evaluation.evaluation import quality
from silo_agent.learning.evaluation.fairness import FIGURES, fairness
from silo_agent.learning.families.registry import family_of

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
