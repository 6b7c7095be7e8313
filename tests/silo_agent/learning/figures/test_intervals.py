import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from silo_agent.learning.figures import intervals

RIGHT = np.array([0.0, 0.0, 1.0, 1.0])


def test_without_noise_it_is_wilsons_interval():
    estimate, low, high = intervals.share(np.array([5.0, 7.0, 20.0, 8.0]), RIGHT, 0.0)
    n, p, z = 40.0, 0.7, norm.ppf(0.975)
    middle, half = p + z**2 / (2 * n), z * np.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
    assert estimate == 0.7
    assert (low, high) == pytest.approx(((middle - half) / (1 + z**2 / n), (middle + half) / (1 + z**2 / n)))


@pytest.mark.parametrize("truth", [0.02, 0.5, 0.97, 1.0])
@pytest.mark.parametrize(("n", "sd"), [(60, 0.0), (400, 6.0), (100_000, 50.0)])
def test_a_share_is_covered_whatever_its_size(truth, n, sd):
    r = np.random.default_rng(0)
    covered, values = 0, []
    for _ in range(400):
        right = r.binomial(n, truth)
        cells = np.array([n - right, 0, 0, right]) + r.normal(0, 1, 4) * sd
        value, low, high = intervals.clipped(intervals.share(cells, RIGHT, sd))
        covered += low <= truth <= high
        values.append(value)
        assert 0 <= low <= value <= high <= 1
    assert 0.91 <= covered / 400 <= 1.0
    assert abs(np.mean(values) - truth) < 0.015


def test_too_few_patients_give_no_share():
    assert intervals.share(np.full(4, 0.2), RIGHT, 0.0) is None
    assert intervals.share(np.full(4, 3.9), RIGHT, 4.0) is None
    assert intervals.share(np.full(4, 4.1), RIGHT, 4.0) is not None
    assert intervals.mean([(0.5, 0.4, 0.6), None]) is None


@given(
    st.lists(st.floats(-50, 500), min_size=4, max_size=4),
    st.floats(0, 60),
    st.lists(st.floats(-50, 500), min_size=4, max_size=4),
)
def test_whatever_was_opened_an_interval_is_ordered_and_finite(first, sd, second):
    shares = [intervals.share(np.array(cells), RIGHT, sd) for cells in (first, second)]
    for found in (*shares, intervals.mean(shares)):
        if found is not None:
            assert np.isfinite(found).all()
            value, low, high = intervals.clipped(found)
            assert 0 <= low <= value <= high <= 1
    value, low, high = intervals.number(np.array(first), sd)
    assert 0 <= low <= value <= high


@pytest.mark.parametrize("truths", [(0.9, 0.5, 0.7), (0.999, 0.99, 1.0)])
@pytest.mark.parametrize(("n", "sd"), [((50, 80, 400), 0.0), ((300, 200, 900), 6.0)])
def test_the_mean_of_shares_is_covered_also_at_the_edge(truths, n, sd):
    r = np.random.default_rng(1)
    covered, values = 0, []
    for _ in range(400):
        shares = []
        for size, truth in zip(n, truths, strict=True):
            right = r.binomial(size, truth)
            cells = np.array([size - right, 0, 0, right]) + r.normal(0, 1, 4) * sd
            shares.append(intervals.share(cells, RIGHT, sd))
        value, low, high = intervals.clipped(intervals.mean(shares))
        covered += low <= np.mean(truths) <= high
        values.append(value)
    assert covered / 400 >= 0.91
    assert abs(np.mean(values) - np.mean(truths)) < 0.01


def test_a_number_of_patients_is_uncertain_by_the_noise_alone():
    assert intervals.number(np.array([3.0, 4.0]), 0.0) == (7.0, 7.0, 7.0)
    r = np.random.default_rng(2)
    found = [intervals.number(np.full(10, 30.0) + r.normal(0, 5, 10), 5.0) for _ in range(600)]
    assert 0.92 < np.mean([low <= 300 <= high for _, low, high in found]) < 0.98
    assert intervals.number(np.array([-30.0]), 1.0) == (0.0, 0.0, 0.0)


def test_a_difference_has_the_limits_of_mover():
    value, low, high = intervals.difference((0.9, 0.8, 0.95), (0.5, 0.4, 0.7))
    assert value == pytest.approx(0.4)
    assert low == pytest.approx(0.4 - np.hypot(0.1, 0.2))
    assert high == pytest.approx(0.4 + np.hypot(0.05, 0.1))
