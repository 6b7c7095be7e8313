"""What `make bench NAME=hessian` compares: both ways give the same matrix; ratios are of the same turn."""

import pytest

from bench.speed.hessian import AGREEMENT, Problem, WayCost, figures_of


@pytest.mark.parametrize(("rows", "width"), [(1, 4), (3, 2)])
def test_the_closed_forms_give_what_differentiation_gives(rows, width):
    problem = Problem(rows, width, 60)
    assert problem.automatic().shape == (rows * (width + 1),) * 2
    assert problem.difference() < AGREEMENT
    assert min(vars(problem.turn()).values()) > 0


def test_a_ratio_is_of_one_turn_and_the_median_is_judged():
    turns = [WayCost(30.0, 1.0, 3.0), WayCost(90.0, 2.0, 3.0), WayCost(50.0, 1.0, 25.0)]
    ratio, release, difference = figures_of("C = 1, k = 2", 45.0, 1e-12, turns)
    assert ratio.measured.startswith("45.0 ")
    assert release.measured == "10.0"
    assert ratio.met
    assert difference.met
    assert not figures_of("", 45.1, 1e-12, turns)[0].met
    assert not figures_of("", 45.0, 1e-9, turns)[2].met
