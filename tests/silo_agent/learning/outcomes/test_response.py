import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax

from silo_agent.learning.outcomes.registry import family_of
from silo_agent.learning.outcomes.response import Response

STEPS = np.array([-0.9, -0.4, 0.0, 0.3, 0.9])


@given(st.floats(-1, 1), st.floats(0.05, 1))
def test_step_undoes_shift_and_the_curvature_is_the_slope_of_the_sum(growth, together):
    response = Response(np.array([growth]), np.array([together]))
    steps = STEPS[:, None]
    moved = response.shift(steps)
    np.testing.assert_allclose(response.step(moved), steps, atol=1e-9)
    slope = (response.step(moved + 1e-6) - response.step(moved - 1e-6)) / 2e-6
    np.testing.assert_allclose(slope * together, response.factor(moved), rtol=1e-5)


def test_a_step_that_would_take_the_curvature_below_nothing_gives_a_shift_nevertheless():
    assert Response(np.array([0.9]), np.ones(1)).shift(np.array([-50.0]))[0] == pytest.approx(np.log(1 / 16) / 0.9)


@pytest.mark.parametrize("logits", [[0.0, 0.0, 0.0], [2.0, 0.5, -1.5]])
def test_classes_that_all_records_have_alike_come_to_any_rates_at_once(logits):
    said, wanted, n = softmax(logits), np.array([0.3, 0.5, 0.2]), 700.0
    sums = n * np.concatenate([said - wanted, said * (1 - said), said])
    response = family_of(3).response(sums)
    steps = (wanted - said) / (said * (1 - said))
    np.testing.assert_allclose(softmax(logits + response.shift(steps)), wanted, rtol=1e-9)


@given(st.lists(st.floats(-1e9, 1e9), min_size=9, max_size=9))
def test_sums_that_are_noise_give_a_response_too(sums):
    response = family_of(3).response(np.array(sums))
    shift = response.shift(np.array([-3.0, 0.0, 40.0]))
    assert np.isfinite([*response.growth, *response.together, *shift, *response.step(shift)]).all()
