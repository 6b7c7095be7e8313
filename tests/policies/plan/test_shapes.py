from __future__ import annotations

import pytest

from policies.plan.families import MOMENT_CELLS
from policies.plan.release import noise_fields, plan
from policies.plan.shapes import (
    encoder_values,
    evidence_values,
    head_round,
    head_values,
    head_width,
    is_pooled,
    joint_heads,
    last_pooled,
    metric_cells,
    momentum_values,
    prior_values,
    sealed_step,
    trained_heads,
)
from silo_agent.learning.heads.evidence import Evidence

THREE = {"data.label": {"column": "y", "classes": [[0], [1], [2]]}}
NUMBER = {"data.label": {"column": "y", "minimum": 0, "maximum": 30}}


def test_sizes_by_hand(make_study):
    # Five inputs, eight hidden, four features: K = 5, a head has 15 + 5 values; two domains.
    study = make_study()
    assert encoder_values(study) == 5 * 8 + 8 + 8 * 4 + 4
    assert [head_values(study, number) for number in (1, 2, 3, 5)] == [20, 20, 40, 40]
    assert plan(study).release(0, "counts").values == 2
    assert plan(study).release(1, "heads").values == 20
    assert plan(study).release(1, "encoder").values == encoder_values(study)
    assert plan(study).release(6, "metrics").values == 2 * 2 * 10


def test_the_hierarchical_solver_adds_the_sum_of_all_domains_and_the_encoder_ends_before_it(make_study):
    study = make_study({"heads.solver": "hierarchical", "heads.pooled_rounds": 3})
    assert [head_values(study, number) for number in (3, 4, 6)] == [20, 60, 60]
    releases = plan(study)
    assert [releases.tensors(number) for number in (2, 3, 4)] == [("heads", "encoder"), ("heads",), ("heads",)]
    assert "encoder" not in plan(make_study({"encoder.rounds": 0})).tensor_costs()


@pytest.mark.parametrize("label", [{}, THREE])
@pytest.mark.parametrize("domains", [1, 2, 3])
def test_the_hierarchical_solver_keeps_what_its_evidence_holds(make_study, label, domains):
    names = ["a", "b", "c"][:domains]
    changes = {**label, "data.domain": [{"column": "group", "values": names, "names": names}]}
    study = make_study({**changes, "heads.solver": "hierarchical", "heads.pooled_rounds": 3})
    start = Evidence.start(domains, head_width(study) // study.head_row, study.head_row, study.heads.pooled_share)
    assert evidence_values(study) == len(start.to_array())
    assert evidence_values(make_study(changes)) == 0


@pytest.mark.parametrize(
    ("label", "calibration", "values"),
    [
        ({}, "pooled", 3),
        ({}, "domain", 9),
        (NUMBER, "pooled", 2),
        (NUMBER, "domain", 6),
        (THREE, "pooled", 9),
        (THREE, "domain", 27),
    ],
)
def test_the_calibration_releases_a_few_values_in_the_last_round(make_study, label, calibration, values):
    study = make_study({**label, "heads.calibration": calibration, "heads.calibration_noise": 25})
    block = 135 if "classes" in str(label) else 20
    assert [head_values(study, number) for number in (1, 2, 3, 5, 6)] == [block] * 2 + [2 * block] * 2 + [values]
    release = plan(study).release(6, "heads")
    assert (release.values, release.noise, release.cohort, plan(study).last) == (values, 25.0, "training", 7)
    assert plan(study).tensors(6) == ("heads",)


def test_raw_inputs_have_no_weights(make_study):
    raw = {"model.encoder": "raw", "model.hidden": [], "model.representation": 5, "encoder.rounds": 0}
    assert encoder_values(make_study(raw)) == 0
    assert head_width(make_study(raw)) == 6


def test_one_matrix_has_no_biases(make_study):
    none = dict.fromkeys(noise_fields(("training", "evaluation")), 0) | {"privacy.mode": "none"}
    study = make_study(none | {"model.encoder": "linear", "model.hidden": [], "model.representation": 3})
    assert (encoder_values(study), head_width(study)) == (5 * 3, 4)


def test_heads_that_are_trained_with_the_encoder_may_have_a_sum_of_their_own(make_study):
    none = dict.fromkeys(noise_fields(("training", "evaluation")), 0) | {"privacy.mode": "none"}
    study = make_study(none | {"recipe": "feddar-sa", "encoder.together": True})
    domains = len(study.data.domains)
    assert [trained_heads(study, number) for number in (1, study.rounds)] == [1, domains]
    assert [joint_heads(study, number) for number in (1, study.rounds)] == [0, 0]
    assert {plan(study).tensors(number) for number in range(1, study.rounds + 1)} == {("heads", "encoder")}
    averaged = make_study({"recipe": "multi-head-fedavg"})
    assert trained_heads(averaged, averaged.rounds) == joint_heads(averaged, averaged.rounds) == domains


def test_heads_widen_with_what_stands_beside_the_encoder_and_the_encoder_does_not(make_study):
    plain, wide = make_study(), make_study({"model.skip": True, "model.random_features": 7})
    assert head_width(wide) == 4 + 5 + 7 + 1
    assert head_values(wide, 1) == 17 * 18 // 2 + 17
    assert plan(wide).release(1, "heads").values == head_values(wide, 1)
    assert encoder_values(wide) == encoder_values(plain)
    assert head_width(make_study({"model.bias": False})) == 4


def test_cmi_widens_the_encoder_and_may_add_tables(make_study):
    averaged = make_study({"encoder.cmi": 0.1})
    assert encoder_values(averaged) == 5 * 8 + 8 + 8 * 8 + 8
    assert prior_values(averaged) == 2 * 2 * 4
    assert plan(averaged).release(1, "encoder").values == encoder_values(averaged) + 16
    local = make_study({"encoder.cmi": 0.1, "encoder.prior": "local"})
    assert prior_values(local) == 0


def test_more_classes_widen_heads_tables_and_metrics(make_study):
    study = make_study({"data.label": THREE["data.label"], "encoder.cmi": 0.1})
    assert head_width(study) == 3 * 5
    assert head_values(study, 1) == 15 * 16 // 2 + 15
    assert prior_values(study) == 2 * 3 * 4
    assert metric_cells(study) == (3, 20)
    assert plan(study).release(6, "metrics").values == 2 * 3 * 20
    shared = make_study(
        {"evaluation.together": True, "evaluation.together_share": 0.2, "data.label": THREE["data.label"]}
    )
    assert plan(shared).release(6, "metrics").values == 3 * 3 * 20


def test_a_number_has_heads_of_one_row_and_fixed_cells(make_study):
    study = make_study({"data.label": {"column": "y", "minimum": 0, "maximum": 30}})
    assert head_width(study) == 5
    assert metric_cells(study) == (1, MOMENT_CELLS)
    assert plan(study).release(6, "metrics").values == 2 * MOMENT_CELLS == 2 * 11


def test_an_image_network_adds_its_weights_and_its_features(make_study):
    image = {"column": "scan", "height": 9, "width": 12}
    study = make_study({"data.image": image, "model.encoder": "cnn", "model.channels": [4, 6]})
    network = (1 * 4 * 9 + 4 + 8) + (4 * 6 * 9 + 6 + 12)
    assert encoder_values(study) == network + (5 + 6 * 2 * 3) * 8 + 8 + 8 * 4 + 4


def test_a_round_is_pooled_until_the_domains_begin(make_study):
    assert [is_pooled(make_study(), number) for number in (1, 2, 3)] == [True, True, False]


SEALED = {"encoder.sealed_steps": True, "encoder.sampling_rate": 1.0, "encoder.sealing": "ring64"}


def test_sealed_steps_follow_their_round_of_the_heads(make_study):
    study = make_study({**SEALED, "encoder.steps": 3, "encoder.rounds": 2})
    rounds = range(1, study.rounds + 1)
    assert study.rounds == 5 + 2 * 3
    assert [head_round(study, number) for number in rounds] == [1, None, None, None, 2, None, None, None, 3, 4, 5]
    assert [sealed_step(study, number) for number in rounds] == [None, 0, 1, 2, None, 3, 4, 5, None, None, None]
    assert (last_pooled(study), last_pooled(make_study())) == (5, 2)
    assert [number for number in rounds if is_pooled(study, number)] == [1, 2, 3, 4, 5]
    assert [head_values(study, number) for number in (1, 5, 9, 11)] == [20, 20, 40, 40]


def test_momentum_is_kept_with_the_model_if_the_steps_are_sealed(make_study):
    study = make_study({**SEALED, "encoder.momentum": 0.9, "encoder.cmi": 0.1})
    assert momentum_values(study) == encoder_values(study) + prior_values(study)
    for without in (SEALED, {"encoder.momentum": 0.9}, {**SEALED, "encoder.momentum": 0.9, "encoder.rounds": 0}):
        assert momentum_values(make_study(without)) == 0
