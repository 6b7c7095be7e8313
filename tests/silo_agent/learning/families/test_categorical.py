import math

import numpy as np
import pytest
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


@pytest.mark.parametrize("bins", [5, 12])
@pytest.mark.parametrize("spread", [0.5, 2.5])
def test_the_sum_of_confidences_in_a_bin_is_told_from_counts(bins, spread):
    """Also where they pile up at 1."""
    family, n = Categorical(3), 200_000
    confidence = family.scores(family.probabilities(np.random.default_rng(bins).normal(0, spread, (n, 3))))
    edges = family.edges(bins)
    cell = np.searchsorted(edges[1:-1], confidence, "right")
    counts = np.bincount(cell, minlength=bins).astype(float)
    found = family.claimed(edges, counts) @ counts
    wanted = np.bincount(cell, confidence, minlength=bins)
    np.testing.assert_allclose(found[1:], wanted[1:], rtol=0.012, atol=60.0)
    np.testing.assert_allclose(found[0], wanted[0], rtol=0.06)  # the density begins within it


def test_only_confidence_that_piles_up_is_taken_to_follow_a_power_law():
    family, bins = Categorical(3), 4
    edges = family.edges(bins)
    middles = (edges[:-1] + edges[1:]) / 2
    level = family.claimed(edges, np.array([5.0, 5.0, 5.0, 5.0]))
    np.testing.assert_allclose(np.diag(level), middles)
    piled = family.claimed(edges, np.array([5.0, 5.0, 5.0, 50.0]))
    assert middles[-1] < piled[-1, -1] < 1.0
    assert edges[2] < piled[-2, -2] < edges[3]
    assert not piled[-1, :-1].any()
    third = (edges[1] - edges[0]) / 24
    assert (level[1, 2], level[1, 0]) == (pytest.approx(third), pytest.approx(-third))


def test_cells_of_all_classes_are_added_up_by_whether_they_are_right():
    cells = np.arange(18.0).reshape(3, 6)
    added, count = Categorical(3).calibration_cells(cells)
    assert count == 3
    assert added.tolist() == [sum(cells[c, b] for c in range(3)) for b in range(6)]
    right = Categorical(3).right_cells(3)
    assert right.tolist() == [[0.0, 0.0, 0.0, 1.0, 1.0, 1.0]] * 3


def test_terms_of_the_calibration_are_residuals_curvatures_and_predictions_by_their_scale():
    family, logits = Categorical(3), torch.tensor(np.random.default_rng(1).normal(0, 3, (4, 3)))
    expected, labels = family.expected(logits), torch.tensor([0, 2, 1, 2])
    terms = family.intercept_terms(expected, family.residual(expected, labels)).numpy()
    p = family.probabilities(logits.numpy())
    own = np.concatenate([p - np.eye(3)[labels], p * (1 - p), p], axis=1)
    np.testing.assert_allclose(terms / family.intercept_scale, own)
    squares = np.square(family.intercept_scale).reshape(3, 3)
    np.testing.assert_allclose(squares.T, [[0.4, 2.4, 0.2]] * 3)
