import numpy as np
import pytest

from policies.documents.study import HeadPlan
from silo_agent.learning.heads.local_steps import local_heads


def plan(**changes):
    return HeadPlan(pooled_noise=0, domain_noise=0, **changes)


def quadratic(curvature, best):
    """Sums of a loss whose least heads are known."""
    return lambda heads: (curvature, np.einsum("dij,dj->di", curvature, heads - best))


def test_many_steps_reach_the_silos_own_best_heads():
    best = np.array([[1.0, -2.0], [0.5, 0.25]])
    curvature = np.array([[[40.0, 5.0], [5.0, 30.0]], [[2.0, 0.0], [0.0, 1.0]]])
    found = local_heads(quadratic(curvature, best), np.zeros((2, 2)), plan(steps=200))
    np.testing.assert_allclose(found, best, atol=1e-9)
    assert np.abs(local_heads(quadratic(curvature, best), np.zeros((2, 2)), plan(steps=1)) - best).max() > 0.01


def test_the_length_of_a_step_does_not_depend_on_the_number_of_patients():
    best, curvature = np.array([[1.0, -2.0]]), np.array([[[4.0, 1.0], [1.0, 3.0]]])
    few, many = (local_heads(quadratic(size * curvature, best), np.zeros((1, 2)), plan(steps=3)) for size in (1, 500))
    np.testing.assert_allclose(few, many)


def test_a_domain_without_patients_keeps_the_common_head():
    heads = np.array([[1.0, 2.0]])
    found = local_heads(quadratic(np.zeros((1, 2, 2)), heads), heads, plan())
    np.testing.assert_array_equal(found, heads)


@pytest.mark.parametrize("most", [0.5, 3.0])
def test_no_head_ends_further_from_the_common_one_than_the_trust_region(most):
    far, heads = np.array([[1e6, 1e6], [0.1, 0.1]]), np.ones((2, 2))
    found = local_heads(quadratic(np.stack([np.eye(2)] * 2), far), heads, plan(max_step=most))
    assert np.linalg.norm(found - heads, axis=1)[0] == pytest.approx(most)
    assert np.linalg.norm(found - heads, axis=1).max() <= most * (1 + 1e-12)
