import math

import numpy as np
import torch

from silo_agent.learning.families.categorical import SHARE, Categorical
from silo_agent.learning.families.family import C


def test_the_bound_is_reached_where_two_wrong_classes_share_the_probability_and_broken_by_a_larger_share():
    family = Categorical(3)
    expected = family.expected(torch.tensor([[-800.0, 0.0, 0.0]], dtype=torch.float64))
    gradient = family.residual(expected, torch.tensor([0])).norm().item() * C / family.gradient_divisor
    hessian = family.hessian_factor * C**2 * family.curvature_norm(expected).item()
    assert math.isclose(math.hypot(hessian, gradient), 1.0)
    assert math.hypot(1.001 * hessian, gradient) > 1.0
    assert family.hessian_factor == 2 * SHARE / C**2


def test_predictions_answer_to_intercepts_by_the_slope_that_their_curvature_has():
    """It is 1 where all records have the same prediction, and less here, where one of two is sure."""
    mean = np.array([[0.98, 0.01, 0.01], [0.4, 0.3, 0.3]])
    predicted, curvature = mean.sum(axis=0), (mean * (1.0 - mean)).sum(axis=0)
    others = 1.0 - predicted / predicted.sum()
    response = Categorical(3).response(np.concatenate([np.zeros(3), curvature, predicted]))
    np.testing.assert_allclose(response.together, others)
    slope = curvature.sum() / (predicted * others).sum()
    assert 0.3 < slope < 0.8
    np.testing.assert_allclose(response.growth, slope * others)


def test_confidence_runs_from_a_guess_to_certainty():
    family = Categorical(4)
    np.testing.assert_allclose(family.edges(3), [0.25, 0.5, 0.75, 1.0])
    p = np.array([[0.25] * 4, [0.0, 1.0, 0.0, 0.0]])
    assert family.scores(p).tolist() == [0.25, 1.0]
    assert family.side(p, np.array([1, 1])).tolist() == [0, 1]
