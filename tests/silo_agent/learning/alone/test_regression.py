import dataclasses

import numpy as np
import pytest

from policies.documents.study import NUMBER
from silo_agent.learning.alone.regression import Regression, regress
from silo_agent.learning.outcomes.links import losses, residuals


@pytest.mark.parametrize("classes", [2, 3, NUMBER])
def test_it_is_the_minimum_of_the_weighted_loss_and_the_penalty(designed, classes):
    """Of the product's own losses: so no option of scikit-learn means something else than is said here."""
    design, strength = designed(classes), 10.0
    found = regress(design, strength)
    z = (design.x - found.middle) / found.spread
    error = design.counted[:, None] * residuals(found.logits(design.x), design.labels, design.family)
    np.testing.assert_allclose(error.T @ z + strength * found.weights, 0.0, atol=0.05)
    np.testing.assert_allclose(error.sum(axis=0), 0.0, atol=0.05)
    np.testing.assert_allclose(z[:, :2].std(axis=0), 1.0, rtol=1e-6)
    assert found.spread[2] == 1.0, "a column that never changes is not divided by 0"
    still = dataclasses.replace(found, weights=found.weights * 0.0)
    assert losses(found.logits(design.x), design.labels, design.family).mean() < (
        0.9 * losses(still.logits(design.x), design.labels, design.family).mean()
    )


def test_a_stronger_penalty_makes_smaller_weights(designed):
    design = designed(2)
    lengths = [np.abs(regress(design, strength).weights).sum() for strength in (1.0, 100.0)]
    assert lengths[1] < 0.8 * lengths[0]


def test_it_comes_back_from_its_tensors_and_nothing_else_does(designed):
    found = regress(designed(3), 1.0)
    same = Regression.parse(found.tensors(), 3, 3)
    x = designed(3, seed=1).x
    np.testing.assert_array_equal(same.logits(x), found.logits(x))
    tensors = found.tensors()
    for spoilt in (
        {},
        {name: own for name, own in tensors.items() if name != "middle"},
        tensors | {"weights": tensors["weights"][:, :2]},
        tensors | {"spread": np.array([1.0, 0.0, 1.0])},
        tensors | {"middle": np.array([1.0, np.nan, 1.0])},
    ):
        with pytest.raises(ValueError, match="it has"):
            Regression.parse(spoilt, 3, 3)
    with pytest.raises(ValueError, match="it has"):
        Regression.parse(tensors, 1, 3)
