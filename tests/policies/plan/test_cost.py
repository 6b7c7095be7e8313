from __future__ import annotations

import math

import pytest

from policies.errors import CostError
from policies.plan.cost import MAX_COUNT, Cost


@pytest.mark.parametrize("noise", [-1.0, 1.1e6, 1e160, 10**400, -(10**400), math.nan, math.inf, True, "1", None])
def test_noise_without_a_meaning_is_refused(noise):
    with pytest.raises(CostError, match="noise"):
        Cost("training", 1.0, noise, 1)


@pytest.mark.parametrize("rate", [0, 5e-324, -0.1, 1.1, 10**400, math.nan, math.inf, True, "1"])
def test_a_rate_that_is_no_chance_is_refused(rate):
    with pytest.raises(CostError, match="sampling_rate"):
        Cost("training", rate, 1.0, 1)


@pytest.mark.parametrize("count", [0, -1, 1.5, True, MAX_COUNT + 1, math.nan])
def test_a_count_that_does_not_count_is_refused(count):
    with pytest.raises(CostError, match="count"):
        Cost("training", 1.0, 1.0, count)


def test_an_unknown_cohort_is_refused():
    with pytest.raises(CostError, match="cohort"):
        Cost("everybody", 1.0, 1.0, 1)


def test_equal_costs_are_one_however_they_are_written():
    assert Cost("training", 1, 20, 1) == Cost("training", 1.0, 20.0, 1)
    assert repr(Cost("training", 1, 20, 1)) == repr(Cost("training", 1.0, 20.0, 1))
