"""What follows from the fields of a study alone."""

from __future__ import annotations

from policies.documents import recipes

CALIBRATED = {"heads.calibration": "pooled", "heads.calibration_noise": 25.0}
RAW = {"model.encoder": "raw", "model.hidden": [], "model.representation": 5, "encoder.rounds": 0}


def test_widths_and_domains_follow_from_the_schema(make_study):
    domain = [
        {"column": "group", "values": ["a", "b"], "names": ["a", "b"]},
        {"column": "age", "edges": [40, 60], "names": ["young", "middle", "old"]},
    ]
    study = make_study({"data.domain": domain})
    assert study.data.domains == ("a young", "a middle", "a old", "b young", "b middle", "b old")
    assert study.data.inputs == 2 + 3
    assert study.rounds == 5


def test_a_calibration_is_one_round_more_in_which_no_encoder_is_trained(make_study):
    plain, study = make_study(), make_study(CALIBRATED)
    assert (study.rounds, study.head_rounds, study.encoder_rounds) == (6, 5, plain.encoder_rounds)
    assert study.digest != plain.digest


def test_what_a_head_reads_follows_from_the_model(make_study):
    assert make_study().head_inputs == 4
    assert make_study({"model.skip": True}).head_inputs == 4 + 5
    assert make_study({"model.skip": True, "model.random_features": 7}).head_inputs == 4 + 5 + 7
    raw = make_study(RAW | {"model.random_features": 7})
    assert (raw.head_inputs, raw.head_row) == (12, 13)
    assert make_study({"model.bias": False}).head_row == 4


def test_the_encoder_is_trained_in_all_rounds_but_those_that_need_it_finished(make_study):
    """Of five rounds of heads, two of them pooled."""
    assert make_study().encoder_rounds == 4
    assert make_study({"heads.solver": "hierarchical"}).encoder_rounds == 1
    assert make_study({"encoder.rounds": 3}).encoder_rounds == 3
    joint = make_study({"recipe": "multi-head-fedavg"})
    assert (joint.encoder_rounds, joint.encoder_steps) == (5, 100)
    assert joint.composition is recipes.RECIPES["multi-head-fedavg"]


def test_figures_are_those_of_the_domains_and_on_demand_of_all_patients(make_study):
    assert make_study().reported == ("group a", "group b")
    assert make_study({"evaluation.together": True}).reported == ("group a", "group b", "all patients")
