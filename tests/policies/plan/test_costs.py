from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.errors import CostError
from policies.plan.costs import (
    MAX_COUNT,
    Cost,
    remaining_costs,
    repeated_costs,
    round_costs,
    study_costs,
    tensor_costs,
)
from policies.plan.shapes import tensors


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


def test_the_plan_round_by_round(make_study):
    study = make_study()
    encoder = Cost("training", 0.02, 1.5, 20)
    assert round_costs(study, 0) == {"counts": Cost("training", 1.0, 30.0, 1)}
    assert round_costs(study, 1) == {"heads": Cost("training", 1.0, 15.0, 1), "encoder": encoder}
    assert round_costs(study, 2) == {"heads": Cost("training", 1.0, 15.0, 1), "encoder": encoder}
    assert round_costs(study, 3) == {"heads": Cost("training", 1.0, 20.0, 1), "encoder": encoder}
    assert round_costs(study, 5) == {
        "heads": Cost("training", 1.0, 20.0, 1),
        "metrics": Cost("evaluation", 1.0, 8.0, 1),
    }


@pytest.mark.parametrize("number", [-1, 6, 1000])
def test_a_round_outside_the_plan_is_not_free(number, make_study):
    with pytest.raises(CostError, match="not in the plan"):
        round_costs(make_study(), number)
    with pytest.raises(CostError, match="not in the plan"):
        remaining_costs(make_study(), number)


@given(pooled=st.integers(1, 12), domain=st.integers(0, 12))
def test_every_summed_tensor_has_a_cost_and_nothing_else(make_study, pooled, domain):
    study = make_study({"heads.pooled_rounds": pooled, "heads.domain_rounds": domain})
    for number in range(study.rounds + 1):
        assert tuple(round_costs(study, number)) == tensors(study, number)
    whole = study_costs(study)
    assert whole == [cost for number in range(study.rounds + 1) for cost in round_costs(study, number).values()]
    assert remaining_costs(study, study.rounds) == list(round_costs(study, study.rounds).values())
    assert sum(cost.cohort == "evaluation" for cost in whole) == 1


def test_a_study_of_one_round_trains_no_encoder(make_study):
    study = make_study({"heads.pooled_rounds": 1, "heads.domain_rounds": 0})
    assert all(cost.sampling_rate == 1 for cost in study_costs(study))


def test_the_tensors_costs_are_the_studys(make_study):
    study = make_study()
    by_tensor = tensor_costs(study)
    assert list(by_tensor) == ["counts", "heads", "encoder", "metrics"]
    assert [len(costs) for costs in by_tensor.values()] == [1, study.rounds, study.rounds - 1, 1]
    assert sorted(map(repr, study_costs(study))) == sorted(repr(c) for costs in by_tensor.values() for c in costs)


def test_only_distributed_noise_is_drawn_anew_and_never_the_encoders(make_study):
    together, alone = make_study(), make_study({"privacy.mode": "local"})
    heads, encoder = (round_costs(together, 1)[tensor] for tensor in ("heads", "encoder"))
    assert repeated_costs(together, 1, 3) == [heads, heads, heads, encoder]
    assert repeated_costs(alone, 1, 3) == [heads, encoder]
    assert repeated_costs(together, 0, 1) == list(round_costs(together, 0).values())
    with pytest.raises(CostError, match="not in the plan"):
        repeated_costs(together, together.rounds + 1, 1)
