"""Fields of a study that contradict each other."""

from __future__ import annotations

import re

import pytest
import yaml
from pydantic import BaseModel, ValidationError

from crypto.rings.rings import ring_of
from policies.documents.document import DocumentError
from policies.documents.study import Study, load_study, parse_study
from policies.plan.grids import SEALED_NORM

NUMBER = {"column": "y", "minimum": 0, "maximum": 30}
CALIBRATED = {"heads.calibration": "pooled", "heads.calibration_noise": 25.0}
RAW = {"model.encoder": "raw", "model.hidden": [], "model.representation": 5, "encoder.rounds": 0}
SCANS = {"model.encoder": "cnn", "data.features": [], "data.image": {"column": "scan", "height": 8, "width": 8}}
THREE = {"column": "y", "classes": [[0], [1], [2]]}

FEDERATED = {
    "recipe": "fedavg",
    "privacy.mode": "none",
    **dict.fromkeys(
        ("heads.pooled_noise", "heads.domain_noise", "encoder.noise", "evaluation.noise", "privacy.count_noise"), 0
    ),
    "heads.domain_rounds": 0,
    "encoder.sampling_rate": 1,
    "encoder.l2r": 0,
    "encoder.cmi": 0,
    "encoder.irm": 10.0,
    "data.environment": {"column": "ward", "values": ["a", "b"]},
}
"""Federated IRM on public data."""


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"version": 2}, "version"),
        ({"name": "Heart Disease"}, "name"),
        ({"silos": ["a", "a", "b"]}, "listed twice"),
        ({"silos": ["a"]}, "silos"),
        ({"min_silos": 5}, "exceeds the 4 silos"),
        ({"privacy.colluders": 2}, "min_silos > colluders"),
        ({"privacy.colluders": 3, "privacy.mode": "local"}, "leaves no honest silo among min_silos 3"),
        ({"encoder.sealing": "plain"}, "encoder.sealing"),
        ({"heads.pooled_noise": 0}, "heads.pooled_noise"),
        ({"heads.domain_noise": float("inf")}, "heads.domain_noise"),
        ({"encoder.noise": float("nan")}, "encoder.noise"),
        ({"encoder.sampling_rate": 0}, "encoder.sampling_rate"),
        ({"encoder.sampling_rate": 1e-300}, "encoder.sampling_rate"),
        ({"encoder.noise": 1e160}, "encoder.noise"),
        ({"encoder.sampling_rate": True}, "is not a number"),
        ({"encoder.steps": 10_001}, "encoder.steps"),
        ({"evaluation.noise": -1}, "evaluation.noise"),
        ({"privacy.count_noise": 0}, "privacy.count_noise"),
        ({"privacy.mode": "none"}, "privacy.mode"),
        ({"privacy.delta": 0}, "privacy.delta"),
        ({"privacy.smallest_domain": -1}, "privacy.smallest_domain"),
        ({"privacy.smallest_domain": True}, "is not a number"),
        ({"data.label.column": "age"}, "must not be a feature"),
        ({"personal": {"irm": 1.0}}, "personal.irm compare environments, and data.environment names no column"),
        ({**FEDERATED, "data.environment": None}, "encoder.irm compare environments"),
        ({**FEDERATED, "encoder.proximal": 0.1, "encoder.steps": 2}, "encoder.proximal is added to noised steps"),
        ({**FEDERATED, "encoder.group_dro": 1.5}, "encoder.group_dro"),
        ({**FEDERATED, "recipe": "second-order"}, "choose fedavg or multi-head-fedavg"),
        ({**FEDERATED, "encoder.sampling_rate": 0.5}, "encoder.sampling_rate is 0.5; make it 1"),
        ({**FEDERATED, "encoder.cmi": 0.1}, "encoder.cmi draws features"),
        ({"data.features": []}, "features, an image, or both"),
        ({"data.domain": [{"column": "g", "values": ["a"], "edges": [1], "names": ["a"]}]}, "either values or edges"),
        ({"data.domain": [{"column": "g", "names": ["a"]}]}, "either values or edges"),
        ({"data.domain": [{"column": "g", "edges": [1, 2], "names": ["a", "b"]}]}, "3 names are needed"),
        ({"data.domain": [{"column": "g", "edges": [2, 1], "names": ["a", "b", "c"]}]}, "edges must increase"),
        ({"data.features": [{"kind": "number", "column": "a", "minimum": 1, "maximum": 1}]}, "must lie below"),
        (
            {"data.features": [{"kind": "number", "column": "a", "minimum": 0, "maximum": 1, "scale": "log"}]},
            "minimum above 0",
        ),
        (
            {"data.features": [{"kind": "number", "column": "a", "minimum": -1, "maximum": 1, "scale": "log1p"}]},
            "at least 0",
        ),
        ({"data.features": [{"kind": "number", "column": "a", "minimum": 0, "maximum": 1, "fill": 2}]}, "must lie in"),
        ({"data.features": [{"kind": "category", "column": "a", "values": ["x", "y"]}] * 2}, "twice"),
        ({"data.features": [{"kind": "image", "column": "a"}]}, "data.features"),
        ({"heads.solver": "hierarchical", "heads.domain_rounds": 0}, "heads.domain_rounds is 0"),
        ({"heads.solver": "hierarchical", "encoder.rounds": 2}, "must lie below heads.pooled_rounds 2"),
        ({"heads.solver": "hierarchical", "model.representation": 250, "data.label": THREE}, "these have 753"),
        ({"encoder.rounds": 5}, "must lie below the 5 rounds"),
        (
            {
                "evaluation.together": True,
                "data.domain": [{"column": "g", "values": ["a", "b"], "names": ["a", "all patients"]}],
            },
            "a domain has this name",
        ),
        ({"evaluation.together": True, "evaluation.together_share": 1e-310}, "is outside 0, or 0.01 to 0.9"),
        ({"evaluation.together_share": 0.2}, "is for figures of all patients; set evaluation.together: true"),
        ({"evaluation.auc": "fitted", "data.label": THREE}, "evaluation.auc fitted is for two classes"),
        (CALIBRATED | {"encoder.rounds": 5}, "must lie below the 5 rounds"),
        (CALIBRATED | {"heads.calibration_noise": 0}, "heads.calibration_noise is 0; noise must be 0"),
        (CALIBRATED | {"heads.calibration": "none"}, "heads.calibration none leaves out"),
        (RAW | {"model.representation": 4}, "model.representation is 4; make it 5"),
        (RAW | {"model.hidden": [8]}, "make it an empty list"),
        (RAW | {"encoder.rounds": None}, "set encoder.rounds to 0"),
        ({"encoder.cmi_scale": True}, "encoder.cmi_scale is a factor within encoder.cmi"),
        ({"model.samples": 20}, "set encoder.cmi or leave it out"),
        (RAW | {"encoder.cmi": 0.1}, "leave them out"),
        (RAW | {"personal": {}}, "personal.mmd, personal.cosine and personal.mmd_d compare what encoders give"),
        (RAW | {"model.first_biases": 1}, "model.first_biases are those of hidden layers"),
        (RAW | {"model.start": "hadamard"}, "model.start is about the weights of layers; leave it out"),
        (RAW | {"model.skip": True}, "with model.encoder raw the heads read them anyway; leave it out"),
        ({"model.random_features": 8}, "set model.skip to true, or model.encoder to raw"),
        ({"model.input_scale": "counted"}, "no head reads inputs; leave model.input_scale out"),
        (SCANS | {"model.skip": True}, "data.features is empty"),
        (SCANS | {"model.random_features": 8}, "to raw; data.features is empty"),
        ({"model.skip": True, "model.representation": 256, "model.random_features": 256}, "a head reads 517 values"),
        (
            {"model.skip": True, "heads.solver": "hierarchical", "model.random_features": 256}
            | {"heads.pooled_rounds": 3, "data.label": THREE},
            "these have 798; make model.representation or model.random_features smaller",
        ),
        (RAW | {"encoder.rounds": None, "encoder.warm_up": 1}, "set encoder.rounds to 0"),
        ({"model.bias": False, "heads.calibration": "pooled", "heads.calibration_noise": 1.0}, "model.bias is false"),
        ({"recipe": "feddar-sa"}, "only for data declared public (privacy.mode none); choose second-order"),
        ({"recipe": "feddar-wa"}, "only for data declared public (privacy.mode none); choose second-order"),
        ({"recipe": "fedavg"}, "set heads.domain_rounds to 0"),
        ({"recipe": "multi-head-fedavg", "encoder.rounds": 2}, "trains the encoder in every round"),
        ({"recipe": "multi-head-fedavg", "encoder.warm_up": 1}, "trains the encoder in every round"),
        ({"recipe": "multi-head-fedavg", "heads.solver": "hierarchical"}, "has no heads.solver hierarchical"),
        ({"recipe": "fedper", "encoder.head_steps": 2}, "recipe fedper has no steps for the heads alone"),
        ({"recipe": "lg-fedavg"} | RAW, "has no weights that a silo could keep; choose mlp"),
        ({"recipe": "fedrep", "encoder.head_steps": 2} | RAW, "keeps the heads; choose recipe local, or mlp"),
        ({"recipe": "ditto", "encoder.proximal": 101}, "encoder.proximal"),
        ({"recipe": "fedprox", "encoder.proximal": 0.1, "encoder.steps": 1}, "encoder.steps is 1; take more steps"),
        ({"recipe": "local", "encoder.proximal": 0.1}, "encoder.proximal draws to what is shared"),
        ({"recipe": "local", "encoder.cmi": 0.1}, "recipe local shares nothing; make it local"),
        ({"encoder.warm_up": 2}, "encoder.warm_up 2 must lie below heads.pooled_rounds 2"),
        ({"encoder.warm_up": 1, "encoder.rounds": 0}, "must not lie below encoder.warm_up 1"),
        ({"heads.learning_rate": 3}, "heads.learning_rate"),
        ({"personal": {"learning_rate": 2, "ditto": 3}}, "times the 3 that personal.ditto weighs at most exceeds 3.8"),
    ],
)
def test_a_study_that_makes_no_sense_is_refused(changes, says, make_study):
    with pytest.raises(ValidationError) as caught:
        make_study(changes)
    assert says in str(caught.value)


PROTECTED = {"column": "sex", "values": ["f", "m"], "names": ["f", "m"]}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"personal": {"adversary": 0.3}}, "personal.adversary guesses data.protected, which is empty"),
        (
            {"personal": {"adversary": 0.3}, "data.protected": [PROTECTED], "model.skip": True},
            "guards the representation alone",
        ),
        ({"personal": {"depth": 9}}, "personal.depth 9 exceeds the encoder's"),
        ({"personal": {"mmd_every": 0}}, "personal.mmd_every"),
        ({"data.protected": [PROTECTED] * 2}, "protected lists a column twice"),
        ({"data.protected": [{**PROTECTED, "column": "y"}]}, "or the label's"),
        ({"data.protected": [{"column": "sex", "values": ["f"], "names": ["f"]}]}, "with one value"),
    ],
)
def test_a_personal_model_and_protected_attributes_that_make_no_sense_are_refused(changes, says, make_study):
    with pytest.raises(ValidationError) as caught:
        make_study(changes)
    assert says in str(caught.value)


def test_without_an_adversary_heads_may_read_the_inputs_too(make_study):
    assert make_study({"personal": {}, "model.skip": True}).personal.adversary == 0


UNNOISED = ("heads.pooled_noise", "heads.domain_noise", "encoder.noise", "evaluation.noise", "privacy.count_noise")


@pytest.mark.parametrize("field", UNNOISED)
def test_noise_is_left_out_everywhere_or_nowhere(field, make_study):
    without = {"privacy.mode": "none", **dict.fromkeys(UNNOISED, 0)}
    assert make_study(without).privacy.mode == "none"
    with pytest.raises(ValidationError, match=field):
        make_study({**without, field: 1.0})
    with pytest.raises(ValidationError, match=field):
        make_study({field: 0})


IMAGE = {"column": "scan", "height": 28, "width": 28}
OUTSIDE = {"outside": "clip"}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"data.image": IMAGE}, "model.encoder mlp and data.image do not fit"),
        ({"model.encoder": "cnn"}, "model.encoder cnn and data.image do not fit"),
        ({"model.encoder": "vgg", "data.image": IMAGE}, "model.encoder"),
        ({"model.encoder": "cnn", "model.channels": [8] * 5, "data.image": IMAGE}, "nothing of it is left"),
        ({"model.encoder": "cnn", "data.image": {**IMAGE, "column": "age"}}, "twice"),
        ({"model.encoder": "cnn", "data.image": {**IMAGE, "channels": 2}}, "data.image.channels"),
        ({"model.encoder": "cnn", "data.image": {**IMAGE, "minimum": 255}}, "must lie below"),
        ({"data.label": {"column": "y"}}, "positive and negative, or classes"),
        ({"data.label": {"column": "y", "positive": [1]}}, "positive and negative, or classes"),
        ({"data.label": {"column": "y", "classes": [[0], [1]]}}, "three or more"),
        ({"data.label": {"column": "y", "classes": [[0], [], [2]]}}, "data.label.classes"),
        ({"publish": ["auc", "auc"]}, "twice"),
        ({"publish": ["loss"]}, "publish"),
        ({"publish": ["auc"], "data.label": {"column": "y", "classes": [[0], [1], [2]]}}, "two classes only"),
        (
            {"publish": ["false_negatives"], "data.label": {"column": "y", "classes": [[0], [1], [2]]}},
            "false_negatives, defined for two classes only",
        ),
        ({"data.label": {"column": "y", "minimum": 0}}, "minimum and maximum"),
        ({"data.label": {"column": "y", "minimum": 0, "maximum": 1, "positive": [1]}}, "only one of them"),
        ({"data.label": {"column": "y", "minimum": 1, "maximum": 1}}, "must lie below"),
        ({"data.label": {"column": "y", "minimum": 0, "maximum": 1, "scale": "log"}}, "minimum of at least 1e-12"),
        ({"data.label": {"column": "y", "minimum": -1, "maximum": 1, "scale": "log1p"}}, "minimum of at least 0"),
        ({"data.label": {"column": "y", "minimum": 0, "maximum": 1e-13}}, "widen the range"),
        ({"data.label": {"column": "y", "minimum": 0, "maximum": 1e13}}, "choose another unit"),
        ({"data.label": {"column": "y", "positive": [1], "negative": [0], "scale": "log"}}, "leave it out"),
        ({"evaluation.largest_error": 0.5}, "evaluation.largest_error is for a number"),
        ({"data.label": NUMBER, "evaluation.largest_error": 0}, "evaluation.largest_error"),
        ({"expected": {"patients": [9, 9, 9, 9, 9]}}, "expected.patients has 5 numbers; write one, or one for each of"),
        ({"expected": {"patients": [9], "shares": [0.5, 0.4]}}, "one for each domain, with sum 1"),
        ({"data.label": NUMBER, "expected": {"patients": [9], "prevalence": 0.1}}, "for a label of two classes"),
        ({"publish": ["mae"]}, "publish lists mae, but data.label is classes"),
        ({"data.label": NUMBER, "publish": ["auc", "mae"]}, "publish lists auc, but data.label is a number"),
        ({"data.label": NUMBER, "encoder.cmi": 0.1}, "encoder.cmi has a table with a row for each class"),
        ({"data.label": NUMBER, "evaluation.bins": 20}, "evaluation.bins are those of a score"),
    ],
)
def test_images_classes_and_publications_that_make_no_sense_are_refused(changes, says, make_study):
    with pytest.raises(ValidationError) as caught:
        make_study(changes)
    assert says in str(caught.value)


def test_the_recipes_of_local_heads_are_for_public_data(make_study):
    public = {"privacy.mode": "none", **dict.fromkeys(UNNOISED, 0)}
    for recipe in ("feddar-sa", "feddar-wa"):
        assert make_study(public | {"recipe": recipe}).recipe == recipe
        with pytest.raises(ValidationError, match=r"leave heads\.clip out"):
            make_study(public | {"recipe": recipe, "heads.clip": 0.5})
        with pytest.raises(ValidationError, match=r"leave heads\.clip_by out"):
            make_study(public | {"recipe": recipe, "heads.clip_by": "worst"})


NOTHING = {"privacy.mode": "none", **dict.fromkeys(UNNOISED, 0)}
ONE_MATRIX = {"model.encoder": "linear", "model.hidden": []}
ALGORITHM_2 = {
    "recipe": "feddar-linear",
    **NOTHING,
    **ONE_MATRIX,
    "data.label": NUMBER,
    "encoder.steps": 1,
    "encoder.sampling_rate": 1.0,
}


def test_algorithm_2_is_told_all_that_it_leaves_no_room_for_at_once(make_study):
    assert make_study(ALGORITHM_2).recipe == "feddar-linear"
    with pytest.raises(ValidationError) as caught:
        make_study(
            {
                "recipe": "feddar-linear",
                "model.representation": 6,
                "model.gain": 2.0,
                "model.skip": True,
                "heads.clip": 0.5,
                "heads.clip_by": "worst",
                "encoder.steps": 3,
                "encoder.sampling_rate": 0.5,
                "encoder.momentum": 0.9,
                "encoder.l2r": 0.1,
                "encoder.warm_up": 1,
            }
        )
    for said in (
        "only for data declared public; set privacy.mode to none, or choose second-order",
        "model.encoder is mlp; make it linear",
        "model.representation is 6 of 5 inputs; make it at most 5",
        "model.gain is 2; leave it out",
        "leave model.skip and model.random_features out",
        "data.label is classes, and heads in closed form need a number",
        "heads.clip would change the closed form",
        "heads.clip_by would change the closed form",
        "encoder.steps is 3; make it 1",
        "encoder.sampling_rate is 0.5; make it 1",
        "encoder.momentum and encoder.schedule are not its own",
        "encoder.l2r and encoder.cmi are not its own",
        "encoder.warm_up is not its own",
    ):
        assert said in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"heads.solver": "hierarchical"}, "recipe feddar-linear has no heads.solver hierarchical"),
        ({"encoder.schedule": "cosine"}, "encoder.momentum and encoder.schedule are not its own"),
        ({"encoder.together": True}, "encoder.together goes with recipe feddar-sa alone"),
        ({"heads.calibration": "pooled"}, "recipe feddar-linear has no round of its own for calibration"),
    ],
)
def test_algorithm_2_is_refused_with_what_other_recipes_have(make_study, changes, said):
    with pytest.raises(ValidationError, match=said):
        make_study(ALGORITHM_2 | changes)


def test_one_matrix_is_an_encoder_of_public_data_alone(make_study):
    assert make_study(NOTHING | ONE_MATRIX).model.encoder == "linear"
    with pytest.raises(ValidationError) as caught:
        make_study({"model.encoder": "linear", "model.first_biases": 1, "encoder.cmi": 0.1})
    for said in (
        "only for data declared public; set privacy.mode to none, or choose mlp",
        "model.hidden lists layers",
        "model.first_biases are those of hidden layers",
        "encoder.cmi needs an encoder that is drawn",
    ):
        assert said in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"recipe": "feddar-wa"}, "encoder.together goes with recipe feddar-sa alone"),
        ({"encoder.rounds": 2}, "leave encoder.rounds, encoder.every and encoder.warm_up out"),
        ({"encoder.every": 2}, "leave encoder.rounds, encoder.every and encoder.warm_up out"),
        ({"encoder.warm_up": 1}, "leave encoder.rounds, encoder.every and encoder.warm_up out"),
        ({"encoder.cmi": 0.1}, "leave encoder.cmi out"),
        ({"model.encoder": "raw"}, "encoder.together trains an encoder; leave it out"),
    ],
)
def test_training_encoder_and_heads_together_is_for_sa_and_every_round(make_study, changes, said):
    together = NOTHING | {"recipe": "feddar-sa", "encoder.together": True}
    study, alternating = make_study(together), make_study(together | {"encoder.together": False})
    assert study.encoder_rounds == study.rounds
    assert study.digest != alternating.digest == make_study(NOTHING | {"recipe": "feddar-sa"}).digest
    with pytest.raises(ValidationError, match=said):
        make_study(together | changes)


SEALED = {"encoder.sealed_steps": True, "encoder.sampling_rate": 1.0, "encoder.sealing": "ring64"}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"encoder.sampling_rate": 0.5}, "make it 1"),
        ({"encoder.sealing": "ring32"}, "make it ring64"),
        ({"encoder.cmi": 0.1, "encoder.prior": "local"}, "make it averaged"),
        ({"encoder.steps": 99}, "4 x 99 steps make 401 rounds; have at most 400"),
        ({"privacy.max_patients": 10_000_000}, "lower it"),
    ],
)
def test_sealed_steps_that_cannot_be_summed_are_refused_with_the_fix(make_study, changes, said):
    study = make_study(SEALED)
    assert (study.rounds, study.head_rounds, study.encoder_steps) == (5 + 4 * 20, 5, 80)
    with pytest.raises(ValidationError, match=said):
        make_study({**SEALED, **changes})


def test_as_many_patients_take_sealed_steps_as_half_a_sum_of_ring64_holds_with_their_norms(make_study):
    """The other half is for the noise."""
    most = (ring_of("ring64").max_sum + 1) // 2 // SEALED_NORM
    silos = [f"site-{number}" for number in range(128)]
    full = {**SEALED, "silos": silos, "privacy.max_patients": most // len(silos)}
    assert make_study(full).privacy.max_patients == 262_144
    with pytest.raises(ValidationError, match=f"262145 of 128 silos exceed the {most} patients"):
        make_study(full | {"privacy.max_patients": 262_145})


def test_federated_irm_is_for_public_data_with_environments(make_study):
    study = make_study(FEDERATED)
    assert parse_study(study.canonical(), study.digest) == study
    assert make_study({**FEDERATED, "recipe": "multi-head-fedavg", "heads.domain_rounds": 2}).encoder.irm == 10.0
    assert make_study({"personal": {"irm": 1e4}, "data.environment": FEDERATED["data.environment"]}).personal.irm == 1e4


def test_a_strong_pull_is_fine_if_irm_divides_the_loss_from_the_first_step(make_study):
    changes = {"personal": {"learning_rate": 2, "ditto": 3, "irm": 300.0}}
    changes["data.environment"] = FEDERATED["data.environment"]
    assert make_study(changes).personal.ditto == 3
    changes["personal"]["irm_after"] = 1
    with pytest.raises(ValidationError, match=r"personal\.ditto weighs at most exceeds 3\.8"):
        make_study(changes)


SIX = {
    "min_silos": 5,
    "model.samples": 20,
    "encoder.warm_up": 2,
    "publish": ["mae"],
    "expected": {"patients": [9, 9, 9]},
    "pace": "padded",
    "pace_seconds": 3000,
}
"""Faults of six subjects, by the fields that tell them."""
TOLD = (
    "min_silos 5 exceeds the 4 silos",
    "model.samples draws from an encoder that encoder.cmi makes stochastic; set encoder.cmi or leave it out",
    "encoder.warm_up 2 must lie below heads.pooled_rounds 2",
    (
        "publish lists mae, but data.label is classes; choose among accuracy, auc, balanced_accuracy, calibration,"
        " expected_observed, false_negatives, patients"
    ),
    "expected.patients has 3 numbers; write one, or one for each of the 4 silos",
    "pace_seconds 3000 must lie below deadlines.offer and deadlines.train",
)


def test_six_faults_of_six_subjects_are_told_at_once_in_the_order_of_the_document(make_study, tmp_path):
    """Each on a line of its own, in the words in which it is told alone."""
    with pytest.raises(ValidationError) as caught:
        make_study(SIX)
    told = tuple(error["msg"].removeprefix("Value error, ") for error in caught.value.errors())
    assert told == TOLD
    assert list(SIX) == sorted(SIX, key=lambda field: list(Study.model_fields).index(field.split(".")[0]))
    stated = make_study().model_dump(mode="json")
    for field, value in SIX.items():
        section, _, name = field.partition(".")
        if name:
            stated[section][name] = value
        else:
            stated[field] = value
    path = tmp_path / "study.yaml"
    path.write_text(yaml.safe_dump(stated))
    with pytest.raises(DocumentError) as document:
        load_study(path)
    assert document.value.faults == [f"field (document): {text}" for text in TOLD]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"privacy.colluders": 3}, "privacy.colluders 3 leaves no honest silo among min_silos 3"),
        (
            {"recipe": "multi-head-fedavg", "encoder.rounds": 2},
            (
                "recipe multi-head-fedavg trains the encoder in every round; leave encoder.rounds, encoder.every and"
                " encoder.warm_up out"
            ),
        ),
        (
            {"recipe": "multi-head-fedavg", "encoder.sealed_steps": True},
            (
                "encoder.sealed_steps go with recipe second-order alone, without encoder.warm_up and encoder.every;"
                " leave them out"
            ),
        ),
        (
            {"recipe": "multi-head-fedavg", "heads.solver": "hierarchical"},
            "recipe multi-head-fedavg has no heads.solver hierarchical; leave it out",
        ),
        (
            SCANS | {"model.encoder": "raw"},
            "model.encoder raw and data.image do not fit: cnn and resnet18 read images, mlp, raw and linear none",
        ),
        (
            {"data.label": NUMBER, "publish": ["auc"]},
            "publish lists auc, but data.label is a number; choose among mae, mean_error, patients, r2",
        ),
    ],
)
def test_one_fault_is_told_as_one(changes, told, make_study):
    """No rule tells what follows from a fault that another one has told."""
    with pytest.raises(ValidationError) as caught:
        make_study(changes)
    assert [error["msg"] for error in caught.value.errors()] == [f"Value error, {told}"]


def test_all_noises_that_do_not_fit_the_mode_are_told_at_once(make_study):
    noises = ["heads.pooled_noise", "heads.domain_noise", "heads.calibration_noise", "encoder.noise"]
    noises += ["evaluation.noise", "privacy.count_noise"]
    named = [f"{part}.{name}" for part, section in make_study(CALIBRATED) if isinstance(section, BaseModel)
             for name in type(section).model_fields if "noise" in name]  # fmt: skip
    assert noises == named, "every noise of a study has its rule"
    told = re.escape(", ".join(f"{noise} is 0" for noise in noises) + "; noise must be 0 in all")
    with pytest.raises(ValidationError, match=told):
        make_study(CALIBRATED | dict.fromkeys(noises, 0))
