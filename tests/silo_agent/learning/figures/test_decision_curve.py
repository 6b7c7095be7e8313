"""Net benefit by its definition, in each patient once, with an interval around the gain."""

import numpy as np
import pytest

from silo_agent.learning.figures.decision_curve import decision_curve


def drawn(count, rng, *, informative=True):
    logits = rng.normal(-2.0, 1.5, count)
    labels = (rng.random(count) < 1 / (1 + np.exp(-logits))).astype(np.int64)
    risks = 1 / (1 + np.exp(-(logits if informative else rng.permutation(logits))))
    return risks, labels, np.arange(count)


@pytest.mark.parametrize("threshold", [0.02, 0.12, 0.5])
def test_net_benefit_is_what_vickers_and_elkin_count(threshold):
    risks, labels, patients = drawn(4000, np.random.default_rng(1))
    curve = decision_curve(risks, labels, patients, threshold)
    assert [one.threshold for one in curve] == sorted(one.threshold for one in curve)
    assert curve[3].threshold == threshold
    for one in curve:
        acted, cost = risks >= one.threshold, one.threshold / (1 - one.threshold)
        right, vain = (acted & (labels == 1)).mean(), (acted & (labels == 0)).mean()
        assert one.model == pytest.approx(right - cost * vain)
        assert one.everybody == pytest.approx(labels.mean() - cost * (1 - labels.mean()))
        assert one.gain == pytest.approx(one.model - max(one.everybody, 0.0))
        assert one.low < one.gain < one.high


def test_a_model_that_knows_something_is_better_and_one_that_does_not_is_worse():
    rng = np.random.default_rng(2)
    knows = decision_curve(*drawn(4000, rng), 0.2)[3]
    guesses = decision_curve(*drawn(4000, rng, informative=False), 0.2)[3]
    assert (knows.verdict, guesses.verdict) == ("better", "worse")
    few = decision_curve(*drawn(120, rng), 0.2)
    assert not few or few[3].high - few[3].low > knows.high - knows.low


def test_the_interval_of_the_gain_holds_the_truth():
    rng, held = np.random.default_rng(5), []
    truth = decision_curve(*drawn(400_000, rng), 0.15)[3].gain
    for _ in range(150):
        one = decision_curve(*drawn(800, rng), 0.15)[3]
        held.append(one.low <= truth <= one.high)
    assert 0.9 <= np.mean(held) <= 0.99


def test_each_patient_counts_once():
    risks, labels, patients = drawn(400, np.random.default_rng(3))
    whole = decision_curve(risks, labels, patients, 0.2)
    twice = decision_curve(np.repeat(risks, 3), np.repeat(labels, 3), np.repeat(patients, 3), 0.2)
    assert [one.gain for one in twice] == pytest.approx([one.gain for one in whole])
    assert [one.low for one in twice] == pytest.approx([one.low for one in whole])
    often = np.where(patients == 7, 200, 1)
    once = decision_curve(np.repeat(risks, often), np.repeat(labels, often), np.repeat(patients, often), 0.2)
    assert [one.gain for one in once] == pytest.approx([one.gain for one in whole])


def test_few_patients_of_a_kind_make_no_curve():
    labels = np.array([1] * 9 + [0] * 200)
    assert decision_curve(np.full(209, 0.5), labels, np.arange(209), 0.5) == ()
    assert decision_curve(np.full(209, 0.5), 1 - labels, np.arange(209), 0.5) == ()
