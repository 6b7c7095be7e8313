from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.errors import CostError
from policies.plan import shapes
from policies.plan.cost import COHORTS, Cost
from policies.plan.release import KINDS, Release, encoder_release, noise_fields, plan
from protos.messages import Tensor


def test_the_plan_round_by_round(make_study):
    study = make_study()
    encoder = Cost("training", 0.02, 1.5, 20)
    assert plan(study).round_costs(0) == {"counts": Cost("training", 1.0, 30.0, 1)}
    assert plan(study).round_costs(1) == {"heads": Cost("training", 1.0, 15.0, 1), "encoder": encoder}
    assert plan(study).round_costs(2) == {"heads": Cost("training", 1.0, 15.0, 1), "encoder": encoder}
    assert plan(study).round_costs(3) == {"heads": Cost("training", 1.0, 20.0, 1), "encoder": encoder}
    assert plan(study).round_costs(5) == {"heads": Cost("training", 1.0, 20.0, 1)}
    assert plan(study).round_costs(6) == {"metrics": Cost("evaluation", 1.0, 8.0, 1)}
    assert (plan(study).last, study.rounds) == (6, 5)


@pytest.mark.parametrize("number", [-1, 7, 1000])
def test_a_round_outside_the_plan_is_not_free(number, make_study):
    with pytest.raises(CostError, match="not in the plan"):
        plan(make_study()).round_costs(number)
    with pytest.raises(CostError, match="not in the plan"):
        plan(make_study()).costs(number)


@given(pooled=st.integers(1, 12), domain=st.integers(0, 12))
def test_every_summed_tensor_has_a_cost_and_nothing_else(make_study, pooled, domain):
    study = make_study({"heads.pooled_rounds": pooled, "heads.domain_rounds": domain})
    for number in range(plan(study).last + 1):
        assert tuple(plan(study).round_costs(number)) == plan(study).tensors(number)
    whole, last = plan(study).costs(), plan(study).last
    assert whole == [cost for number in range(last + 1) for cost in plan(study).round_costs(number).values()]
    assert plan(study).costs(last) == list(plan(study).round_costs(last).values())
    assert sum(cost.cohort == "evaluation" for cost in whole) == 1


def test_a_study_of_one_round_trains_no_encoder(make_study):
    study = make_study({"heads.pooled_rounds": 1, "heads.domain_rounds": 0})
    assert all(cost.sampling_rate == 1 for cost in plan(study).costs())


def test_the_tensors_costs_are_the_studys(make_study):
    study = make_study()
    by_tensor = plan(study).tensor_costs()
    assert list(by_tensor) == ["counts", "heads", "encoder", "metrics"]
    assert [len(costs) for costs in by_tensor.values()] == [1, study.rounds, study.rounds - 1, 1]
    assert sorted(map(repr, plan(study).costs())) == sorted(repr(c) for costs in by_tensor.values() for c in costs)


def test_only_distributed_noise_is_drawn_anew_and_never_the_encoders(make_study):
    together, alone = make_study(), make_study({"privacy.mode": "local"})
    heads, encoder = (plan(together).round_costs(1)[tensor] for tensor in ("heads", "encoder"))
    assert plan(together).repeated_costs(1, 3) == [heads, heads, heads, encoder]
    assert plan(alone).repeated_costs(1, 3) == [heads, encoder]
    assert plan(together).repeated_costs(0, 1) == list(plan(together).round_costs(0).values())
    with pytest.raises(CostError, match="not in the plan"):
        plan(together).repeated_costs(plan(together).last + 1, 1)


def test_each_kind_of_round_says_once_what_another_attempt_at_it_adds(make_study):
    together, alone = plan(make_study()), plan(make_study({"privacy.mode": "local"}))
    (counts,), (pooled, encoder), (domain, _) = (together.costs()[:1], *map(costs_of_round(together), (1, 3)))
    (metrics,) = costs_of_round(together)(6)
    assert together.repeats() == [[counts], [pooled], [domain], [metrics]]
    assert alone.repeats() == [[]]
    for planned in (together, alone):
        whole = [[counts], [pooled, encoder], [domain, encoder], [domain], [metrics]]
        assert planned.repeats(spoilt=True) == whole


def costs_of_round(planned):
    return lambda number: list(planned.round_costs(number).values())


def test_the_order_of_sums(make_study):
    study = make_study()
    assert plan(study).tensors(0) == ("counts",)
    assert plan(study).tensors(4) == ("heads", "encoder")
    assert plan(study).tensors(5) == ("heads",)
    assert plan(study).tensors(6) == ("metrics",)


def test_a_recipe_says_which_rounds_train_heads_and_encoder_together(make_study):
    study = make_study({"recipe": "multi-head-fedavg"})
    assert [plan(study).tensors(number) for number in range(1, 6)] == [("encoder",)] * 5
    one, many = (plan(study).release(number, "encoder").values for number in (1, 5))
    assert many - one == (len(study.data.domains) - 1) * shapes.head_width(study)
    assert one - encoder_release(study).values == shapes.head_width(study)
    assert {release.noise for release in plan(study) if release.tensor == "encoder"} == {study.encoder.noise}


def test_the_encoder_may_be_warmed_up_and_then_trained_in_some_rounds_only(make_study):
    study = make_study({"heads.pooled_rounds": 2, "heads.domain_rounds": 5, "encoder.warm_up": 1, "encoder.every": 2})
    sums = [plan(study).tensors(number) for number in range(1, 8)]
    alone, both = ("heads",), ("heads", "encoder")
    assert sums == [("encoder",), alone, both, alone, both, alone, alone]


def test_an_average_of_local_heads_has_no_curvature(make_study):
    none = dict.fromkeys(noise_fields(COHORTS), 0) | {"privacy.mode": "none"}
    study = make_study(none | {"recipe": "feddar-wa"})
    width, domains = shapes.head_width(study), len(study.data.domains)
    assert [plan(study).release(number, "heads").values for number in (1, 5)] == [width + 1, domains * (width + 1)]
    weighted = make_study(none | {"recipe": "feddar-sa"})
    assert plan(weighted).release(5, "heads").values == domains * (width * (width + 1) // 2 + width)


@given(pooled=st.integers(1, 12), domain=st.integers(0, 12), mode=st.sampled_from(("distributed", "local")))
def test_only_the_first_tensor_of_a_round_may_need_everybodys_noise(make_study, pooled, domain, mode):
    planned = plan(make_study({"heads.pooled_rounds": pooled, "heads.domain_rounds": domain, "privacy.mode": mode}))
    assert all(release.resendable for releases in planned.rounds for release in releases[1:])


def test_what_a_round_does_not_release_is_refused(make_study):
    with pytest.raises(CostError, match="does not release 'gradient'"):
        plan(make_study()).release(1, "gradient")
    with pytest.raises(CostError, match="does not release 'counts'"):
        plan(make_study()).release(1, "counts")
    with pytest.raises(CostError, match="does not release 'encoder'"):
        plan(make_study({"heads.pooled_rounds": 1, "heads.domain_rounds": 0})).ring("encoder")


@pytest.mark.parametrize("sealing", ["ring32", "ring64", "ckks"])
def test_the_study_chooses_the_encoders_ring_and_no_other(make_study, sealing):
    study = make_study({"encoder.sealing": sealing})
    rings = {tensor: plan(study).ring(tensor) for tensor in ("counts", "heads", "encoder", "metrics")}
    assert rings == {"counts": "ckks", "heads": "ckks", "encoder": sealing, "metrics": "ckks"}


def test_the_plan_and_the_wire_name_the_same_tensors():
    assert set(KINDS) == {str(tensor) for tensor in Tensor}


def test_one_tensor_is_solved_and_the_encoder_alone_is_always_sent_again(make_study):
    for mode, resendable in (("distributed", {"encoder"}), ("local", set(KINDS))):
        releases = list(plan(make_study({"privacy.mode": mode})))
        assert {release.tensor for release in releases if release.solved} == {"heads"}
        assert {release.tensor for release in releases if release.resendable} == resendable


def test_the_fields_that_set_noise_set_every_noise_and_no_other(make_study):
    assert set(noise_fields(["evaluation"])) == {"evaluation.noise"}
    fields = {field: 50.0 + number for number, field in enumerate(noise_fields(COHORTS))}
    assert {release.noise for release in plan(make_study(fields))} == set(fields.values())
    calibrated = make_study({"heads.calibration": "pooled", "heads.calibration_noise": 25})
    assert noise_fields(["evaluation"], calibrated) == ("evaluation.noise",)
    fields = {field: 50.0 + number for number, field in enumerate(noise_fields(COHORTS, calibrated))}
    changes = {**fields, "heads.calibration": "pooled"}
    assert {release.noise for release in plan(make_study(changes))} == set(fields.values())


def test_a_release_that_cannot_be_accounted_for_does_not_exist(make_study):
    release = encoder_release(make_study())
    assert isinstance(release, Release)
    for wrong in ({"noise": float("nan")}, {"noise": -1.0}, {"count": 0}, {"sampling_rate": 0.0}, {"cohort": "all"}):
        with pytest.raises(CostError):
            replace(release, **wrong)


SEALED = {"encoder.sealed_steps": True, "encoder.sampling_rate": 1.0, "encoder.sealing": "ring64"}


@given(
    pooled=st.integers(1, 4),
    trained=st.integers(0, 3),
    steps=st.integers(1, 5),
    mode=st.sampled_from(("distributed", "local")),
)
def test_a_sealed_step_is_a_round_of_its_own_with_the_noise_of_the_mode(make_study, pooled, trained, steps, mode):
    domain, trained = 2, min(trained, pooled + 1)
    changes = {"heads.pooled_rounds": pooled, "heads.domain_rounds": domain, "encoder.rounds": trained}
    study = make_study({**SEALED, **changes, "encoder.steps": steps, "privacy.mode": mode})
    planned = plan(study)
    training = [planned.tensors(number) for number in range(1, study.rounds + 1)]
    assert training == [("heads",), *[("encoder",)] * steps] * trained + [("heads",)] * (pooled + domain - trained)
    sealed = [release for release in planned if release.tensor == "encoder"]
    assert {release.cost for release in sealed} <= {Cost("training", 1.0, 1.5, 1)}
    assert len(sealed) == trained * steps
    assert {release.resendable for release in sealed} <= {mode == "local"}
    pooled_noise = [release.noise for release in planned if release.tensor == "heads"]
    assert pooled_noise == [15.0] * pooled + [20.0] * domain
