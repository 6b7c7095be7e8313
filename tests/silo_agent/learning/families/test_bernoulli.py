import math

import numpy as np
import pytest
import torch

from silo_agent.learning.families.bernoulli import LOGIT_RANGE, SHARE, Bernoulli
from silo_agent.learning.families.family import C


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
