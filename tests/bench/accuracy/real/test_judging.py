"""Levels and differences of runs."""

import numpy as np
import pytest

from bench.accuracy.real.judging import Judged, Runs
from deploy.local.simulate.outcome import Exact, RunMetrics
from deploy.local.simulate.silos import Cohorts, Silo, of_arrays
from support.studies import tiny_study


def runs(areas, groups, counted=(True, True)):
    areas = np.array(areas, float)
    return Runs(areas, np.array(groups), np.array(counted), np.ones(len(areas)))


def test_the_worst_domain_is_the_least_mean_among_those_that_count():
    own = runs([[0.9, 0.5], [0.7, np.nan], [0.8, 0.7]], [0, 1, 2])
    assert own.level == pytest.approx([0.7, 0.6])
    assert runs(own.areas, [0, 1, 2], (True, False)).level == pytest.approx([0.7, 0.8])


def test_of_a_mean_the_jackknife_is_the_standard_error_of_the_splits_means():
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=(2, 20, 2))
    own, other = (runs(areas, np.arange(20) % 10) for areas in (first, second))
    change, error = own.less(other)
    by_split = (first - second).mean(axis=1).reshape(2, 10).mean(axis=0)
    assert change[0] == pytest.approx(by_split.mean())
    assert error[0] == pytest.approx(by_split.std(ddof=1) / np.sqrt(10))


def test_one_split_says_no_error():
    assert np.isnan(runs([[0.9, 0.5]], [0]).less(runs([[0.8, 0.5]], [0]))[1]).all()


def test_the_ratio_counts_every_patient_once():
    records = of_arrays(np.zeros((4, 2)), [1, 1, 1, 0], [0, 0, 0, 1], [7, 7, 7, 8])
    nobody = of_arrays(np.zeros((0, 2)), [], [])
    exact = (Exact(None, None, None, 3, 0), Exact(0.5, None, None, 1, 1))
    measured = RunMetrics(tiny_study(), 1, exact, exact[0])
    found = Judged.of(measured, Cohorts({"north": Silo(nobody, records)}), [np.array([0.3, 0.6, 0.9, 0.2])])
    assert found.ratio == pytest.approx(0.8)
    np.testing.assert_equal(found.areas, [np.nan, 0.5])
    assert np.isnan(Judged.of(measured).ratio)
