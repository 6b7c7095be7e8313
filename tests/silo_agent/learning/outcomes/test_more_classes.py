import math

import numpy as np
import pytest
import torch

from silo_agent.learning.outcomes.family import C
from silo_agent.learning.outcomes.more_classes import SHARE, Categorical


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
    np.testing.assert_array_equal(family.claimed(edges, np.array([5.0, 60.0, 5.0, 50.0])), piled)
    np.testing.assert_array_equal(family.claimed(edges, np.array([5.0, 5.0, -3.0, -1.0])), level)
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


def test_losses_sums_and_what_metrics_count_are_those_of_the_softmax():
    family, rng = Categorical(3), np.random.default_rng(4)
    logits, z = torch.tensor(rng.normal(0, 2, (5, 3))), torch.tensor(rng.normal(size=(5, 2)))
    labels, weight = torch.tensor([0, 2, 1, 2, 0]), torch.tensor(rng.random((5, 1)))
    p = family.probabilities(logits.numpy())
    np.testing.assert_allclose(p, np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(family.losses(logits, labels), -np.log(p[np.arange(5), labels]))
    expected = family.expected(logits)
    np.testing.assert_allclose(family.residual(expected, labels), p - np.eye(3)[labels], atol=1e-12)
    curvature = np.einsum("nc,cd->ncd", p, np.eye(3)) - np.einsum("nc,nd->ncd", p, p)
    np.testing.assert_allclose(family.curvature_norm(expected), np.linalg.norm(curvature, axis=(1, 2)))
    whole = np.einsum("n,ncd,ni,nj->cidj", weight[:, 0], curvature, z, z).reshape(6, 6)
    np.testing.assert_allclose(family.curvature_sum(expected, z, weight[:, 0]), whole, atol=1e-12)
    right, confidence = family.claim(p, labels.numpy())
    assert (right.tolist(), confidence.tolist()) == ((p.argmax(axis=1) == labels.numpy()).tolist(), p.max(1).tolist())
    assert family.scores(np.full((1, 3), np.nan)).tolist() == [1 / 3]
    assert family.ends(np.array([0.25, 0.5, 1.0])).tolist() == [[0.25, 0.5], [0.5, 1.0]]
    assert (family.has_auc, family.operation) == (False, "softmax")


def test_a_row_that_all_classes_share_is_taken_out_of_the_sums():
    family, rng = Categorical(3), np.random.default_rng(5)
    hessian, gradient = rng.normal(size=(2, 6, 6)), rng.normal(size=(2, 6))
    away = np.kron(np.eye(3) - 1 / 3, np.eye(2))
    h, g = family.centred(hessian, gradient)
    np.testing.assert_allclose(h, away @ hessian @ away, atol=1e-12)
    np.testing.assert_allclose(g, gradient @ away, atol=1e-12)


def test_the_outcome_that_is_furthest_is_the_least_probable_class():
    family = Categorical(4)
    expected = family.expected(torch.tensor(np.random.default_rng(1).normal(size=(50, 4)) * 3))
    longest = (family.residual(expected, family.farthest(expected)) ** 2).sum(dim=1)
    every = [(family.residual(expected, torch.full((50,), label)) ** 2).sum(dim=1) for label in range(4)]
    torch.testing.assert_close(longest, torch.stack(every).amax(dim=0), rtol=0, atol=0)
