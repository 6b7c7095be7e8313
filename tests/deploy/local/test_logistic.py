import numpy as np
import pytest

from deploy.local.logistic import design, logistic
from deploy.local.simulate.silos import of_arrays


@pytest.fixture
def records():
    """2,000 records whose labels follow the first of 20 inputs."""
    rng = np.random.default_rng(3)
    inputs = rng.uniform(-1, 1, size=(2000, 20))
    labels = rng.random(2000) < 1 / (1 + np.exp(-4 * inputs[:, 0]))
    return of_arrays(inputs, labels, np.zeros(2000), rng.integers(0, 1500, 2000))


def test_the_regression_finds_the_direction_of_the_labels(records):
    weights = logistic(records)
    assert weights.shape == (21,)
    assert 3 < weights[0] < 5
    assert np.abs(weights[1:]).max() < 0.6


def test_the_design_ends_with_the_bias(records):
    assert design(records).shape == (2000, 21)
    assert (design(records)[:, -1] == 1).all()
