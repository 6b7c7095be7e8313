from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from crypto.errors import SealError
from crypto.rings.grid import from_grid, to_grid, to_grid_stochastic
from crypto.stream import KeyStream

STEP, BOUND = 2.0**-10, 4.0
REALS = arrays(np.float64, st.integers(0, 50), elements=st.floats(allow_nan=False))


def stream(label=b"rounding"):
    return KeyStream(bytes(32), label)


@given(REALS)
def test_nearest_is_within_half_a_step_of_the_clamped_value(x):
    back = from_grid(to_grid(x, STEP, BOUND), STEP)
    assert np.all(np.abs(back - np.clip(x, -BOUND, BOUND)) <= STEP / 2)


@given(REALS)
def test_stochastic_is_within_one_step_and_repeats(x):
    rounded = to_grid_stochastic(x, STEP, BOUND, stream())
    assert np.all(np.abs(from_grid(rounded, STEP) - np.clip(x, -BOUND, BOUND)) < STEP)
    np.testing.assert_array_equal(rounded, to_grid_stochastic(x, STEP, BOUND, stream()))


@given(arrays(np.int64, 10, elements=st.integers(-4096, 4096)))
def test_grid_points_stay_where_they_are(integers):
    x = from_grid(integers, STEP)
    np.testing.assert_array_equal(to_grid(x, STEP, BOUND), integers)
    np.testing.assert_array_equal(to_grid_stochastic(x, STEP, BOUND, stream()), integers)


@given(arrays(np.float64, st.integers(0, 200_000), elements=st.floats(-5, 5), fill=st.just(0.3)))
def test_in_place_the_integers_are_the_same_and_take_the_values_memory(x):
    apart, held = to_grid_stochastic(x, STEP, BOUND, stream()), x.copy()
    integers = to_grid_stochastic(held, STEP, BOUND, stream(), in_place=True)
    np.testing.assert_array_equal(integers, apart)
    assert integers.dtype == np.int64
    assert np.shares_memory(integers, held) or not len(x)


def test_stochastic_rounding_is_unbiased():
    n = 200_000
    rounded = to_grid_stochastic(np.full(n, 0.3), 1.0, 8.0, stream())
    assert set(rounded.tolist()) == {0, 1}
    assert abs(rounded.mean() - 0.3) < 5 * np.sqrt(0.21 / n)
    negative = to_grid_stochastic(np.full(n, -1.75), 1.0, 8.0, stream(b"other"))
    assert abs(negative.mean() + 1.75) < 5 * np.sqrt(0.1875 / n)


def test_shapes_are_kept():
    x = np.arange(6.0).reshape(2, 3)
    assert to_grid(x, 0.5, 8.0).tolist() == [[0, 2, 4], [6, 8, 10]]
    assert to_grid_stochastic(x, 0.5, 8.0, stream()).shape == (2, 3)


def test_a_long_vector_is_rounded_as_in_one_piece():
    x = np.random.default_rng(0).normal(0, 3, 150_000).astype(np.float32)
    scaled = np.clip(x.astype(np.float64), -BOUND, BOUND) / STEP
    np.testing.assert_array_equal(to_grid(x, STEP, BOUND), np.rint(scaled))
    up = (stream().words64(x.size) >> np.uint64(11)) * 2.0**-53 < scaled - np.floor(scaled)
    np.testing.assert_array_equal(to_grid_stochastic(x, STEP, BOUND, stream()), np.floor(scaled) + up)
    x[-1] = np.nan
    for refused in (lambda: to_grid(x, STEP, BOUND), lambda: to_grid_stochastic(x, STEP, BOUND, stream())):
        with pytest.raises(SealError, match="not a number"):
            refused()


def test_what_comes_in_is_left_alone():
    x = np.array([-9.0, 0.3, 9.0])
    to_grid(x, 1.0, 4.0)
    assert x.tolist() == [-9.0, 0.3, 9.0]


def test_infinities_are_clamped_and_nan_is_refused():
    assert to_grid(np.array([np.inf, -np.inf]), STEP, BOUND).tolist() == [4096, -4096]
    with pytest.raises(SealError, match="not a number"):
        to_grid(np.array([np.nan]), STEP, BOUND)


@pytest.mark.parametrize(
    ("step", "bound"), [(0, 1), (-1, 1), (1, 0), (np.nan, 1), (1, np.nan), (1, np.inf), (np.inf, 1), (1e-20, 1.0)]
)
def test_an_impossible_grid_is_refused(step, bound):
    with pytest.raises(SealError, match="step and bound"):
        to_grid(np.zeros(1), step, bound)
