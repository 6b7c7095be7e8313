"""Means of paired differences, and how far chance may move them."""

import numpy as np
import pytest
from scipy.stats import sem, ttest_1samp

from bench.intervals import Gain, Interval, standard_error

DIFFERENCES = np.array([1.0, 2.0, 4.0, 0.5, 3.0])


def test_the_interval_is_students():
    low, high = ttest_1samp(DIFFERENCES, 0.0).confidence_interval(0.95)
    found = Interval.of(DIFFERENCES)
    assert (found.mean, found.least, found.most) == pytest.approx((2.1, low, high))
    assert found.signed(2) == f"+2.10 ({low:+.2f} to {high:+.2f})"
    assert Interval.of(list(DIFFERENCES)) == found


def test_one_value_has_no_interval():
    found = Interval.of([1.0])
    assert (found.least, found.mean, found.most) == (1.0, 1.0, 1.0)
    assert found.signed(1) == "+1.0"


def test_a_widened_interval_lies_around_the_same_mean():
    found = Interval.of(DIFFERENCES)
    wider = found.widened(2.0)
    assert wider.mean == found.mean
    assert wider.most - wider.mean == pytest.approx(2.0 * (found.most - found.mean))


def test_a_gain_has_standard_errors_of_its_two_figures():
    both = np.stack([DIFFERENCES, -DIFFERENCES], axis=1)
    assert standard_error(both) == pytest.approx(sem(both, axis=0))
    assert str(Gain.of(both)) == f"+2.1000 +- {sem(DIFFERENCES):.4f} / -2.1000 +- {sem(DIFFERENCES):.4f}"


def test_one_difference_has_no_standard_error():
    assert str(Gain.of(np.array([[0.5, -0.25]]))) == "+0.5000 +- nan / -0.2500 +- nan"
