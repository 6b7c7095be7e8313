from __future__ import annotations

import math

import pytest

from silo_agent.learning.dpsgd.schedule import half_cosine, learning_rate


def test_a_constant_rate_is_the_studys_to_the_last_bit(make_study):
    plan = make_study().encoder.model_copy(update={"learning_rate": 0.1})
    assert {learning_rate(plan, step, 60) for step in range(60)} == {0.1}


def test_the_cosine_falls_from_the_rate_towards_zero(make_study):
    plan = make_study().encoder.model_copy(update={"learning_rate": 0.4, "schedule": "cosine"})
    rates = [learning_rate(plan, step, 60) for step in range(60)]
    assert rates[0] == 0.4
    assert rates[30] == pytest.approx(0.2)
    assert rates == sorted(rates, reverse=True)
    assert 0 < rates[-1] < 1e-3
    assert learning_rate(plan, 0, 1) == 0.4


def test_the_series_is_the_cosine():
    for x in (number / 97 for number in range(98)):
        assert half_cosine(x) == pytest.approx((1 + math.cos(math.pi * x)) / 2, abs=1e-15)
    assert (half_cosine(0.0), half_cosine(0.5)) == (1.0, 0.5)
