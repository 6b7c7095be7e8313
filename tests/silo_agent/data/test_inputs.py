"""Inputs are made of compact cells as they are asked for."""

import numpy as np
import pytest

from policies.documents.study import CategoryFeature, NumericFeature
from silo_agent.data.inputs import ABSENT, Inputs, part

FEATURES = (
    CategoryFeature(kind="category", column="sex", values=("f", "m")),
    NumericFeature(kind="number", column="age", minimum=0, maximum=100),
    NumericFeature(kind="number", column="lactate", minimum=0, maximum=10, fill=5.0),
)
WHOLE = np.array([[1, 0, 0.5, 0.25, 0], [0, 1, -1, -0.5, 1], [0, 1, 1, 0.75, 0]], np.float32)


@pytest.fixture
def inputs():
    cells = np.array([[0, 0.5, 0.25], [1, -1, ABSENT], [1, 1, 0.75]], np.float32)
    return Inputs(cells, FEATURES, (np.nan, np.nan, -0.5))


def test_rows_are_what_the_model_takes(inputs):
    assert (len(inputs), inputs.shape, repr(inputs)) == (3, (3, 5), "Inputs(<private>)")
    for rows in (slice(None), np.array([2, 0]), np.array([True, False, True])):
        assert np.array_equal(inputs[rows], WHOLE[rows])
        assert np.array_equal(part(inputs, rows)[:], WHOLE[rows])
        assert np.array_equal(part(WHOLE, rows), WHOLE[rows])
    assert np.array_equal(inputs[1, 2:], WHOLE[1, 2:])
    assert np.array_equal(np.asarray(inputs), WHOLE)
    assert np.asarray(inputs, np.float64).dtype == np.float64


def test_nobody_writes_into_them(inputs):
    with pytest.raises(ValueError, match="read-only"):
        inputs.cells[0, 0] = 1
