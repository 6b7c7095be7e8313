"""Orthogonal first weights: for every shape, from both starts, with bits that no platform changes."""

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from silo_agent.learning.encoder.first_weights import hadamard, orthogonal

STARTS = ("gram-schmidt", "hadamard")


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (7, 1), (33, 20), (20, 33)])
def test_whichever_are_fewer_of_rows_and_columns_are_orthonormal(start, shape):
    rows, columns = shape
    made = orthogonal(np.random.PCG64(3), rows, [columns], start)
    assert made.shape == shape
    gram = made @ made.T if rows <= columns else made.T @ made
    np.testing.assert_allclose(gram, np.eye(len(gram)), atol=1e-12)


@pytest.mark.parametrize("start", STARTS)
def test_matrices_stand_side_by_side_and_weigh_together_what_one_does(start):
    made = orthogonal(np.random.PCG64(3), 4, [0, 6, 9], start)
    first, second = made[:, :6], made[:, 6:]
    for one in (first, second):
        np.testing.assert_allclose(one @ one.T, np.eye(4) / 2, atol=1e-12)
    assert np.array_equal(made[:, :6], orthogonal(np.random.PCG64(3), 4, [6], start) / np.sqrt(2))


@given(st.integers(1, 90), st.integers(0, 90), st.integers(0, 2**32 - 1))
def test_hadamard_rows_are_orthonormal_without_any_rounding(count, more, seed):
    made = hadamard(np.random.PCG64(seed), count, count + more)
    whole = made * 2.0**9  # three times the root of 64, the largest block below 256
    assert np.array_equal(whole, np.rint(whole))
    assert np.array_equal(made @ made.T, np.eye(count))


@pytest.mark.parametrize("length", [17, 40, 63, 64, 100, 255])
def test_hadamard_mixes_nearly_all_inputs_into_each_weight_and_neglects_none(length):
    made = hadamard(np.random.PCG64(5), length // 2, length)
    assert (made != 0).mean() > 0.85
    assert np.abs(made).max() * np.sqrt(length) < 6
    energy = (made**2).sum(axis=0)
    assert 0.15 < energy.min() < 0.5 < energy.max() < 0.9


def test_rows_that_are_mixed_in_parts_are_those_of_the_whole(monkeypatch):
    whole = hadamard(np.random.PCG64(1), 30, 40)
    monkeypatch.setattr("silo_agent.learning.encoder.first_weights._VALUES", 7 * 40)
    assert np.array_equal(hadamard(np.random.PCG64(1), 30, 40), whole)


def test_another_seed_gives_other_weights_of_these_bits():
    made = hadamard(np.random.PCG64(7), 20, 100)
    assert not np.array_equal(made, hadamard(np.random.PCG64(8), 20, 100))
    digest = hashlib.sha256(made.astype("<f8").tobytes()).hexdigest()
    assert digest.startswith("f22b3591f5d2d93f"), "every silo of every platform must start from these bits"
