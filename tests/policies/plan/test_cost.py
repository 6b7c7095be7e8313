from __future__ import annotations

import math
import sys
from dataclasses import FrozenInstanceError

import pytest

from policies.errors import CostError
from policies.plan.cost import MAX_COUNT, MAX_NOISE, MIN_RATE, Cost, finite


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


def test_a_cost_may_lie_at_the_ends_of_its_ranges_and_not_beyond():
    assert (MIN_RATE, MAX_NOISE, MAX_COUNT) == (1e-9, 1e6, 10**9)
    Cost("training", MIN_RATE, 0.0, 1)
    Cost("evaluation", 1.0, MAX_NOISE, MAX_COUNT)
    for rate, noise in (
        (math.nextafter(MIN_RATE, 0.0), 1.0),
        (math.nextafter(1.0, 2.0), 1.0),
        (1.0, math.nextafter(0.0, -1.0)),
        (1.0, math.nextafter(MAX_NOISE, math.inf)),
    ):
        with pytest.raises(CostError, match="must lie between"):
            Cost("training", rate, noise, 1)


def test_an_unknown_cohort_is_refused():
    with pytest.raises(CostError, match="cohort"):
        Cost("everybody", 1.0, 1.0, 1)


def test_equal_costs_are_one_however_they_are_written():
    assert Cost("training", 1, 20, 1) == Cost("training", 1.0, 20.0, 1)
    assert repr(Cost("training", 1, 20, 1)) == repr(Cost("training", 1.0, 20.0, 1))


def test_a_price_that_was_charged_cannot_be_changed():
    cost = Cost("training", 1.0, 20.0, 1)
    with pytest.raises(FrozenInstanceError):
        cost.count = 2


def test_the_largest_floats_are_numbers():
    largest = sys.float_info.max
    assert [finite(number) for number in (largest, -largest, int(largest), 2 * int(largest), -2 * int(largest))] == [
        True,
        True,
        True,
        False,
        False,
    ]
