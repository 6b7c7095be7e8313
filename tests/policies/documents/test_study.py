from __future__ import annotations

import json

import pytest
import yaml
from pydantic import ValidationError

from policies.documents.document import DocumentError
from policies.documents.study import Study, load_study, parse_study
from support.studies import tiny_study

NUMBER = {"column": "y", "minimum": 0, "maximum": 30}
DAYS = {"positive": [], "negative": [], "minimum": 0, "maximum": 30}


def test_the_digest_names_the_meaning_and_not_the_spelling(make_study, tmp_path):
    study = make_study()
    content = json.loads(study.canonical())
    for number, text in enumerate((json.dumps(content, indent=3), yaml.safe_dump(content, sort_keys=False))):
        path = tmp_path / f"{number}.yaml"
        path.write_text(text)
        assert load_study(path).digest == study.digest
    assert make_study({"encoder.noise": 1.51}).digest != study.digest


def test_a_study_travels_as_its_canonical_bytes(make_study):
    study = make_study()
    assert parse_study(study.canonical(), study.digest) == study
    with pytest.raises(ValueError, match="the received study is"):
        parse_study(make_study({"encoder.noise": 2}).canonical(), study.digest)


def test_a_missing_study_is_named(tmp_path):
    with pytest.raises(DocumentError, match="there is no such file"):
        load_study(tmp_path / "study.yaml")


CALIBRATED = {"heads.calibration": "pooled", "heads.calibration_noise": 25.0}
RAW = {"model.encoder": "raw", "model.hidden": [], "model.representation": 5, "encoder.rounds": 0}
SCANS = {"model.encoder": "cnn", "data.features": [], "data.image": {"column": "scan", "height": 8, "width": 8}}
THREE = {"column": "y", "classes": [[0], [1], [2]]}


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
        ({"evaluation.auc": "fitted", "data.label": THREE}, "evaluation.auc fitted is for two classes"),
        (CALIBRATED | {"encoder.rounds": 5}, "must lie below the 5 rounds"),
        (CALIBRATED | {"heads.calibration_noise": 0}, "heads.calibration_noise is 0; noise must be 0"),
        (CALIBRATED | {"heads.calibration": "none"}, "heads.calibration none leaves out"),
        (CALIBRATED | {"data.label": THREE}, "is for two classes or a number, and data.label has 3"),
        (RAW | {"model.representation": 4}, "model.representation is 4; make it 5"),
        (RAW | {"model.hidden": [8]}, "make it an empty list"),
        (RAW | {"encoder.rounds": None}, "set encoder.rounds to 0"),
        (RAW | {"encoder.cmi": 0.1}, "leave them out"),
        (RAW | {"personal": {}}, "personal trains an encoder of its own"),
        (RAW | {"model.first_biases": 1}, "model.first_biases are those of hidden layers"),
        (RAW | {"model.skip": True}, "with model.encoder raw the heads read them anyway; leave it out"),
        ({"model.random_features": 8}, "set model.skip to true, or model.encoder to raw"),
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
        ({"encoder.warm_up": 2}, "encoder.warm_up 2 must lie below heads.pooled_rounds 2"),
        ({"encoder.warm_up": 1, "encoder.rounds": 0}, "must not lie below encoder.warm_up 1"),
        ({"heads.learning_rate": 3}, "heads.learning_rate"),
    ],
)
def test_a_study_that_makes_no_sense_is_refused(changes, says, make_study):
    with pytest.raises(ValidationError) as caught:
        make_study(changes)
    assert says in str(caught.value)


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


def test_unknown_fields_are_refused(make_study):
    content = {**make_study().model_dump(), "code": "import os"}
    with pytest.raises(ValidationError, match="code"):
        Study.model_validate(content)


def test_what_a_head_reads_follows_from_the_model(make_study):
    assert make_study().head_inputs == 4
    assert make_study({"model.skip": True}).head_inputs == 4 + 5
    assert make_study({"model.skip": True, "model.random_features": 7}).head_inputs == 4 + 5 + 7
    raw = make_study(RAW | {"model.random_features": 7})
    assert (raw.head_inputs, raw.head_row) == (12, 13)
    assert make_study({"model.bias": False}).head_row == 4


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


def test_a_number_has_a_range_and_no_classes(make_study):
    study = make_study({"data.label": NUMBER, "publish": ["mae", "r2", "mean_error", "patients"], "encoder.l2r": 0.1})
    label = study.data.label
    assert (label.count, label.codes, label.number) == (1, (), (0, 30, "linear"))
    assert make_study().data.label.number is None


def test_an_image_may_stand_beside_features_or_alone(make_study):
    changes = {"model.encoder": "cnn", "data.image": IMAGE}
    assert make_study(changes).data.inputs == make_study().data.inputs
    assert make_study({**changes, "data.features": []}).data.inputs == 0


def test_classes_have_codes_in_order(make_study):
    assert make_study().data.label.codes == (make_study().data.label.negative, make_study().data.label.positive)
    label = make_study({"data.label": {"column": "y", "classes": [["a"], ["b", "B"], ["c"]]}}).data.label
    assert (label.count, label.codes) == (3, (("a",), ("b", "B"), ("c",)))


def test_the_recipes_of_local_heads_are_for_public_data(make_study):
    public = {"privacy.mode": "none", **dict.fromkeys(UNNOISED, 0)}
    for recipe in ("feddar-sa", "feddar-wa"):
        assert make_study(public | {"recipe": recipe}).recipe == recipe
        with pytest.raises(ValidationError, match=r"leave heads\.clip out"):
            make_study(public | {"recipe": recipe, "heads.clip": 0.5})


def test_a_study_of_the_first_version_keeps_its_name():
    """Ledgers, labels and models carry it."""
    minute = dict.fromkeys(("offer", "keys", "train", "open", "solve"), 60.0)
    assert tiny_study(deadlines=minute).digest == "22ec758abdb53f2f4895b56bd9fbc7839a127f5590baaab9e23d606cf5d52d11"


@pytest.mark.parametrize(
    "changes",
    [
        {"publish": ["accuracy"]},
        {"heads": {"solver": "hierarchical"}},
        {"heads": {"pooled_share": 0.5}},
        {"recipe": "multi-head-fedavg"},
        {"heads": {"steps": 5}},
        {"heads": {"learning_rate": 0.5}},
        {"heads": {"ridge": 0.0}},
        {"heads": {"pooled_rounds": 2}, "encoder": {"warm_up": 1}},
        {"encoder": {"every": 2}},
        {"encoder": {"rounds": 0}},
        {"encoder": {"sealing": "ring64"}},
        {"data": {"label": {"positive": [], "negative": [], "classes": [[0], [1], [2]]}}},
        {"data": {"label": DAYS}, "evaluation": {"bins": 10}},
        {"data": {"label": DAYS | {"minimum": 1, "scale": "log"}}, "evaluation": {"bins": 10}},
        {"data": {"label": DAYS}, "evaluation": {"bins": 10, "largest_error": 0.5}},
        {"data": {"image": IMAGE}, "model": {"encoder": "cnn"}},
        {"data": {"image": IMAGE}, "model": {"encoder": "cnn", "channels": [8]}},
        {"data": {"features": [{"kind": "number", "column": "x0", "minimum": 0, "maximum": 1, **OUTSIDE}]}},
    ],
)
def test_every_field_counts_for_the_digest_once_it_is_set(changes):
    study = tiny_study(**changes)
    assert study.digest != tiny_study().digest
    assert parse_study(study.canonical(), study.digest) == study


def test_a_study_that_says_nothing_of_what_lies_outside_keeps_its_name():
    number = {"kind": "number", "column": "x0", "minimum": 0, "maximum": 1}
    others = [{**number, "column": "x1"}, {"kind": "category", "column": "c", "values": ["x", "y"]}]
    old, dropped, clipped = (
        tiny_study(data={"features": [{**number, **said}, *others]}) for said in ({}, {"outside": "drop"}, OUTSIDE)
    )
    assert b"outside" not in old.canonical()
    assert clipped.canonical().count(b"outside") == 1
    assert dropped.digest == old.digest != clipped.digest


def test_a_study_that_asks_for_no_smallest_domain_keeps_its_name(make_study):
    assert b"smallest_domain" not in make_study().canonical()
    assert make_study({"privacy.smallest_domain": 0}).digest == make_study().digest
    asked = make_study({"privacy.smallest_domain": 20})
    assert asked.digest != make_study().digest
    assert parse_study(asked.canonical(), asked.digest).privacy.smallest_domain == 20


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
