import numpy as np
import pytest

from silo_agent.learning.outcomes.open_bins import power_means


@pytest.mark.parametrize("power", [0.3, 1.0, 2.5])
def test_the_means_are_those_of_the_power_law_that_the_counts_follow(power):
    near, far, n = 0.2, 0.5, 400_000
    t = far * np.random.default_rng(0).random(n) ** (1 / power)
    inner = t[t < near]
    found = power_means(near, far, len(inner), n - len(inner))
    assert found == pytest.approx((inner.mean(), t[t >= near].mean()), rel=0.02)


@pytest.mark.parametrize(("inner", "outer"), [(-3.0, 5.0), (5.0, -3.0), (0.0, 0.0), (-1.0, -1.0)])
def test_counts_below_zero_give_means_within_the_bins(inner, outer):
    low, high = power_means(0.2, 0.5, inner, outer)
    assert 0.0 <= low <= 0.2 <= high <= 0.5
