import math

import numpy as np
import pytest
import torch

from silo_agent.learning.outcomes.family import C
from silo_agent.learning.outcomes.two_classes import LOGIT_RANGE, SHARE, Bernoulli


def length(share, q):
    """Of a record's packed term at ||z|| = C, q the probability of the wrong class."""
    return math.sqrt((4 * share * q * (1 - q)) ** 2 + q**2)


def test_the_share_is_the_largest_that_costs_no_sensitivity():
    golden = (1 + math.sqrt(5)) / 2
    assert pytest.approx(0.83255, abs=1e-4) == SHARE
    assert length(SHARE, 1 / golden) == pytest.approx(1, abs=1e-12)
    assert max(length(SHARE, q) for q in np.linspace(0, 1, 10_001)) <= 1 + 1e-12
    assert length(1.001 * SHARE, 1 / golden) > 1


def test_the_family_packs_by_that_share():
    family = Bernoulli()
    assert family.hessian_factor == 4 * SHARE / C**2
    assert family.gradient_divisor == C


def test_the_threshold_is_an_edge_and_the_second_class_begins_there():
    family = Bernoulli()
    for bins in (2, 7, 24):
        assert 0.0 in family.edges(bins)
        assert family.edges(bins)[-1] == LOGIT_RANGE
    assert family.decisions(np.array([[0.5, 0.5], [0.51, 0.49]])).tolist() == [1, 0]


@pytest.mark.parametrize("threshold", [0.02, 0.12, 0.5, 0.9])
def test_a_public_threshold_is_an_edge_which_parts_right_from_wrong(threshold):
    family = Bernoulli(threshold=threshold)
    cut = math.log(threshold / (1 - threshold))
    for bins in (2, 7, 24):
        edges = family.edges(bins)
        assert abs(edges[(bins + 1) // 2] - cut) < 1e-12
        np.testing.assert_allclose(np.diff(edges), np.diff(Bernoulli().edges(bins)))
        below, above = family.right_cells(bins)
        assert above.tolist() == [float(edge > cut - 1e-9) for edge in edges[:-1]]
        assert (below + above).tolist() == [1.0] * bins
    said = np.array([[1 - threshold, threshold], [1 - threshold + 1e-6, threshold - 1e-6], [0.05, 0.95]])
    assert family.decisions(said).tolist() == [1, 0, 1]
    assert family.with_curvature(0.5).threshold == threshold


def test_a_certain_prediction_has_a_score_and_no_curvature():
    family = Bernoulli()
    assert family.scores(np.array([[0.0, 1.0], [1.0, 0.0]])).tolist() == [np.inf, -np.inf]
    assert family.curvature_norm(family.expected(torch.tensor([[-np.inf], [np.inf]]))).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("bins", [8, 20, 21])
@pytest.mark.parametrize(("middle", "spread"), [(-2.0, 1.5), (1.0, 2.5)])
def test_the_sum_of_risks_in_a_bin_is_told_from_counts(bins, middle, spread):
    family, n = Bernoulli(), 400_000
    logits = np.random.default_rng(bins).normal(middle, spread, n)
    edges = family.edges(bins)
    cell = np.searchsorted(edges[1:-1], logits, "right")
    counts = np.bincount(cell, minlength=bins).astype(float)
    risks = np.bincount(cell, 1 / (1 + np.exp(-logits)), minlength=bins)
    found = family.claimed(edges, counts) @ counts
    np.testing.assert_allclose(found[1:-1], risks[1:-1], rtol=0.025 if bins == 8 else 0.01, atol=3.0)
    # The open bins are taken to follow a power law, which tells the smaller of p and 1 - p to within a third.
    for end, smaller in ((0, lambda p: p), (-1, lambda p: 1 - p)):
        if counts[end] > 1000:
            told, true = smaller(found[end] / counts[end]), smaller(risks[end] / counts[end])
            assert told == pytest.approx(true, rel=0.35)


@pytest.mark.parametrize(
    ("sums", "growth"), [((9.0, 4.0, 1.0), 0.25), ((9.0, 4.0, -8.0), -1.0), ((0.0, 0.0, 0.0), 0.0)]
)
def test_the_curvature_grows_as_its_third_sum_says(sums, growth):
    response = Bernoulli().response(np.array(sums))
    assert response.growth.tolist() == [growth]
    assert response.together.tolist() == [1.0]


def test_at_exactly_one_half_the_second_class_is_predicted_and_its_bin_begins():
    family = Bernoulli()
    assert family.decisions(np.array([[0.5, 0.5]])).tolist() == [1]
    for bins in (2, 7, 8):
        below, above = family.right_cells(bins)
        assert above.tolist() == [float(edge >= 0.0) for edge in family.edges(bins)[:-1]]
        assert (below + above).tolist() == [1.0] * bins


def test_terms_of_the_calibration_are_residual_curvature_and_its_slope_by_their_scale():
    family, logits = Bernoulli(), torch.tensor([[-1.0], [0.3], [4.0]], dtype=torch.float64)
    expected = family.expected(logits)
    terms = family.intercept_terms(expected, family.residual(expected, torch.tensor([0, 1, 1])))
    p = 1 / (1 + np.exp(-logits.numpy()[:, 0]))
    own = np.stack([p - [0, 1, 1], p * (1 - p), p * (1 - p) * (1 - 2 * p)], axis=1)
    np.testing.assert_allclose(terms.numpy() / family.intercept_scale, own)


def test_bins_are_equally_wide_in_logits_and_the_odd_one_lies_below():
    family = Bernoulli()
    assert family.edges(4).tolist() == [-5.0, -2.5, 0.0, 2.5, 5.0]
    assert family.edges(5).tolist() == [-7.5, -5.0, -2.5, 0.0, 2.5, 5.0]
    ends = family.ends(np.array([-5.0, math.log(0.25), math.log(3.0), 5.0]))
    np.testing.assert_allclose(ends, [[0.0, 0.2], [0.2, 0.75], [0.75, 1.0]])


def test_what_metrics_count_is_the_second_class():
    family, p = Bernoulli(), np.array([[0.25, 0.75], [np.nan, np.nan], [-0.5, 1.5]])
    np.testing.assert_allclose(family.scores(p), [math.log(3.0), 0.0, np.inf])
    said, risk = family.claim(p[:1], np.array([1]))
    assert (said.tolist(), risk.tolist(), said.dtype) == ([1.0], [0.75], np.float64)
    assert family.side(p, np.array([1, 0, 1])).tolist() == [0, 0, 0]
    cells, count = family.calibration_cells(np.arange(6.0).reshape(2, 3))
    assert (cells.tolist(), count) == ([0.0, 1.0, 2.0, 3.0, 4.0, 5.0], 1)
    assert (family.has_auc, family.operation, family.form.logits, family.intercept_scale) == (
        True,
        "two_classes",
        1,
        (1.0, 2.0, 2.0),
    )


def test_losses_and_sums_are_those_of_the_logistic_regression():
    family, logits = Bernoulli(), torch.tensor([[-1.0], [0.3], [4.0]], dtype=torch.float64)
    labels, z = torch.tensor([0, 1, 0]), torch.tensor([[1.0, 2.0], [0.0, 1.0], [-1.0, 3.0]], dtype=torch.float64)
    p = family.probabilities(logits.numpy())
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    np.testing.assert_allclose(family.losses(logits, labels), -np.log(p[np.arange(3), labels]))
    expected, weight = family.expected(logits), torch.tensor([1.0, 2.0, 0.5], dtype=torch.float64)
    curvature = np.diag(weight.numpy() * p[:, 0] * p[:, 1])
    np.testing.assert_allclose(family.curvature_sum(expected, z, weight), z.numpy().T @ curvature @ z.numpy())
    half = family.with_curvature(0.5)
    assert half.hessian_factor == 0.5 * family.hessian_factor
    sums = np.eye(2), np.ones((1, 2))
    assert all(mine is given for mine, given in zip(family.centred(*sums), sums, strict=True))


def test_between_the_open_bins_the_density_has_the_slope_of_the_neighbours():
    """By a finer integral of p over a bin of logits, and by its first moment about the middle."""
    family, edges = Bernoulli(), Bernoulli().edges(8)
    rows = family.claimed(edges, np.full(8, 5.0))
    place = (np.arange(20_000) + 0.5) / 20_000 - 0.5
    for b in range(1, 7):
        p = 1 / (1 + np.exp(-((edges[b] + edges[b + 1]) / 2 + 1.25 * place)))
        np.testing.assert_allclose(rows[b, b - 1 : b + 2], [-(p * place).mean() / 2, p.mean(), (p * place).mean() / 2])
    assert (rows != 0).sum() == 2 + 3 * 6
    piled = family.claimed(edges, np.array([50.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 50.0]))
    assert 0.0 < piled[0, 0] < rows[0, 0] < 1 / (1 + math.exp(3.75)), "few who are nearly certain, or many"
    assert piled[-1, -1] == pytest.approx(1.0 - piled[0, 0])


def test_the_outcome_that_is_furthest_is_the_less_probable_class():
    family, logits = Bernoulli(), torch.tensor([[-3.0], [-0.1], [0.0], [0.1], [3.0]], dtype=torch.float64)
    expected = family.expected(logits)
    far = family.farthest(expected)
    assert far.tolist() == [1, 1, 1, 0, 0]
    longest = family.residual(expected, far).abs()
    for label in (0, 1):
        assert (longest >= family.residual(expected, torch.full((5,), label)).abs()).all()
