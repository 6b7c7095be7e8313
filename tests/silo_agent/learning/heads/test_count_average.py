import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.documents.study import HeadPlan
from silo_agent.learning.heads import count_average
from silo_agent.learning.heads.local_steps import local_heads

PLAN = HeadPlan(pooled_noise=0, domain_noise=0, steps=4, max_step=3.0)


def silo(rng, sizes, width):
    """A silo's patients by domain, and its losses."""
    curvature = np.stack([size * np.eye(width) for size in sizes])
    best = rng.normal(size=(len(sizes), width))
    return np.array(sizes), lambda heads: (curvature, np.einsum("dij,dj->di", curvature, heads - best))


@settings(max_examples=20)
@given(st.integers(0, 10_000), st.integers(1, 4))
def test_the_sum_gives_local_heads_weighted_by_their_patients(seed, count):
    rng = np.random.default_rng(seed)
    heads = rng.normal(size=(2, 3))
    silos = [silo(rng, rng.integers(1, 50, 2).astype(float), 3) for _ in range(count)]
    total = sum(count_average.statistic(sums, sizes, heads, PLAN) for sizes, sums in silos)
    local = [local_heads(sums, heads, PLAN) for _, sums in silos]
    patients = sum(sizes for sizes, _ in silos)
    wanted = sum(sizes[:, None] * own for (sizes, _), own in zip(silos, local, strict=True)) / patients[:, None]
    np.testing.assert_allclose(count_average.solve(heads, total, PLAN, 1e-3), wanted, atol=1e-12)


def test_a_domain_that_nobody_has_keeps_its_head():
    rng = np.random.default_rng(0)
    heads = rng.normal(size=(2, 3))
    sizes, sums = silo(rng, [20.0, 0.0], 3)
    found = count_average.solve(heads, count_average.statistic(sums, sizes, heads, PLAN), PLAN, 1e-3)
    np.testing.assert_array_equal(found[1], heads[1])
    assert np.abs(found[0] - heads[0]).max() > 0.01


def test_no_value_exceeds_the_number_of_patients():
    """So nothing is cut at the edge of the grid, which `privacy.max_patients` sets."""
    rng = np.random.default_rng(1)
    sizes, sums = silo(rng, [40.0, 7.0], 3)
    sent = count_average.statistic(sums, sizes, 100 * rng.normal(size=(2, 3)), PLAN)
    assert np.abs(sent).max(axis=1) == pytest.approx(sizes)
