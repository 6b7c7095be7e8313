import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from silo_agent.data.records import record_weights
from silo_agent.learning.heads.domain_weights import domain_counts, domain_weights


def test_weights_are_feddars_u():
    np.testing.assert_allclose(domain_weights(np.array([100.0, 50.0, 150.0]), 10.0), [1.0, 2.0, 2 / 3])


def test_weights_are_clipped_and_noised_counts_below_one_count_as_one():
    weights = domain_weights(np.array([1000.0, -40.0, 0.5]), 3.0)
    np.testing.assert_allclose(weights, [1 / 3, 3, 3], atol=0.02)
    assert weights.min() >= 1 / 3
    np.testing.assert_array_equal(domain_weights(np.array([-5.0, -3.0]), 3.0), [1.0, 1.0])


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=9), st.floats(1, 100))
def test_weights_stay_in_their_public_range(counts, clip):
    weights = domain_weights(np.array(counts), clip)
    assert (weights >= 1 / clip).all()
    assert (weights <= clip).all()


def test_a_patient_counts_one_in_all_and_at_most_one_in_l2():
    counts = domain_counts(np.array([0, 0, 1, 2, 2]), record_weights(np.array([0, 0, 0, 1, 2])), 4)
    np.testing.assert_allclose(counts, [2 / 3, 1 / 3, 2, 0])
    assert domain_counts(np.zeros(0, np.int64), record_weights(np.zeros(0, np.int64)), 4).tolist() == [0, 0, 0, 0]


@given(st.lists(st.integers(0, 4), min_size=1, max_size=20))
def test_sensitivity_of_the_counts_is_one(domains):
    counts = domain_counts(np.array(domains), record_weights(np.zeros(len(domains), np.int64)), 5)
    assert np.linalg.norm(counts) <= 1 + 1e-12
    assert counts.sum() == pytest.approx(1)
