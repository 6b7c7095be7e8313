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
