import numpy as np
import pytest
from scipy.special import expit, logit, stdtrit

from silo_agent.learning.figures import calibration_line as module
from silo_agent.learning.figures.calibration_line import CalibrationLine, calibration_line


def drawn(rng, patients, *, shift=0.0, factor=1.0):
    """True risks as a model says them that adds a shift to the logits after a factor."""
    logits = rng.normal(-0.5, 1.2, patients)
    labels = (rng.random(patients) < expit(logits)).astype(np.int64)
    return expit(factor * logits + shift), labels, np.arange(patients)


@pytest.mark.parametrize(("shift", "factor"), [(0.0, 1.0), (-1.0, 1.0), (0.7, 1.0), (0.0, 2.0), (0.0, 0.5)])
def test_the_line_takes_back_what_a_model_does_wrong(shift, factor):
    line = calibration_line(*drawn(np.random.default_rng(1), 20_000, shift=shift, factor=factor))
    assert line.slope.value == pytest.approx(1.0 / factor, rel=0.06)
    if factor == 1.0:
        assert line.intercept.value == pytest.approx(-shift, abs=0.06)
    assert line.intercept.low < line.intercept.value < line.intercept.high
    assert sum(line.patients) == 20_000


def test_the_intercept_makes_as_many_ill_as_there_are():
    risks, labels, patients = drawn(np.random.default_rng(2), 400, shift=-0.8, factor=1.4)
    line = calibration_line(risks, labels, patients)
    assert expit(logit(risks) + line.intercept.value).sum() == pytest.approx(labels.sum())


def test_intervals_hold_the_truth_about_as_often_as_they_say():
    rng = np.random.default_rng(3)
    lines = [calibration_line(*drawn(rng, 200)) for _ in range(100)]
    for ends, truth in (([line.intercept for line in lines], 0.0), ([line.slope for line in lines], 1.0)):
        assert 89 <= sum(one.low <= truth <= one.high for one in ends) <= 100


def test_all_records_of_a_patient_count_as_one():
    risks, labels, patients = drawn(np.random.default_rng(4), 150)
    alone = calibration_line(risks, labels, patients)
    copied = calibration_line(*(np.concatenate([part] * 5) for part in (risks, labels, patients)))
    for one, other in ((alone.intercept, copied.intercept), (alone.slope, copied.slope)):
        assert (other.low, other.high) == pytest.approx((one.low, one.high))
    assert copied.patients == alone.patients


def test_the_interval_is_a_jackknifes_over_groups_of_patients():
    risks, labels, patients = drawn(np.random.default_rng(6), 30)
    line = calibration_line(risks, labels, patients)
    logits = logit(risks)
    without = [module._intercept(np.delete(logits, one), np.delete(labels, one)) for one in range(30)]
    half = stdtrit(29, 0.975) * np.sqrt(29 / 30 * ((without - np.mean(without)) ** 2).sum())
    assert line.intercept.high - line.intercept.value == pytest.approx(half)
    assert line.intercept.value - line.intercept.low == pytest.approx(half)


def test_too_few_patients_are_counted_and_get_no_line():
    risks, labels, patients = drawn(np.random.default_rng(5), 60)
    labels = (np.arange(60) < 9).astype(np.int64)
    assert calibration_line(risks, labels, patients) == CalibrationLine(None, None, (9, 51))
    labels = (np.arange(60) < 10).astype(np.int64)
    assert calibration_line(risks, labels, patients).intercept is not None
    assert calibration_line(risks, labels, np.zeros(60, np.int64)).patients == (1, 1)


def test_certain_or_equal_risks_give_no_slope_and_fail_nothing():
    labels = np.arange(60) % 2
    apart = calibration_line(labels.astype(float), labels, np.arange(60))
    assert apart.slope is None
    alike = calibration_line(np.full(60, 0.3), labels, np.arange(60))
    assert alike.slope is None
    assert alike.intercept.value == pytest.approx(-logit(0.3))
