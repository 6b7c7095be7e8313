from __future__ import annotations

import json

import pytest
import yaml
from pydantic import ValidationError

from policies.documents import bounds
from policies.documents import study as study_module
from policies.documents.document import DocumentError
from policies.documents.study import Study, load_study, parse_study, require_bounds
from policies.refusals import Reason, Refused
from support.studies import tiny_document, tiny_study

NUMBER = {"column": "y", "minimum": 0, "maximum": 30}
DAYS = {"positive": [], "negative": [], "minimum": 0, "maximum": 30}
IMAGE = {"column": "scan", "height": 28, "width": 28}
OUTSIDE = {"outside": "clip"}


def test_the_digest_names_the_meaning_and_not_the_spelling(make_study, tmp_path):
    study = make_study()
    content = json.loads(study.canonical())
    for number, text in enumerate((json.dumps(content, indent=3), yaml.safe_dump(content, sort_keys=False))):
        path = tmp_path / f"{number}.yaml"
        path.write_text(text)
        assert load_study(path).digest == study.digest
    assert make_study({"encoder.noise": 1.51}).digest != study.digest


def test_a_changed_copy_has_a_digest_of_its_own(make_study):
    study = make_study()
    before = study.digest
    assert study.model_copy(update={"name": "other"}).digest == make_study({"name": "other"}).digest != before


def test_what_breaks_a_bound_is_refused_under_the_name_of_bounds():
    stored = Study.model_validate(tiny_document(encoder={"clip": 1e39}), context=bounds.STORED)
    with pytest.raises(Refused, match=r"^bounds: study\.encoder\.clip: 1e\+39 is outside") as refused:
        require_bounds(stored)
    assert refused.value.reason is Reason.BOUNDS


def test_a_study_travels_as_its_canonical_bytes(make_study):
    study = make_study()
    assert parse_study(study.canonical(), study.digest) == study
    with pytest.raises(ValueError, match="the received study is"):
        parse_study(make_study({"encoder.noise": 2}).canonical(), study.digest)


def test_a_missing_study_is_named(tmp_path):
    with pytest.raises(DocumentError, match="there is no such file"):
        load_study(tmp_path / "study.yaml")


def test_unknown_fields_are_refused(make_study):
    content = {**make_study().model_dump(), "code": "import os"}
    with pytest.raises(ValidationError, match="code"):
        Study.model_validate(content)


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


def test_a_study_of_the_first_version_keeps_its_name():
    """Ledgers, labels and models carry it."""
    minute = dict.fromkeys(("offer", "keys", "train", "open", "solve"), 60.0)
    assert tiny_study(deadlines=minute).digest == "22ec758abdb53f2f4895b56bd9fbc7839a127f5590baaab9e23d606cf5d52d11"


def test_no_field_that_came_later_stands_in_the_canonical_form_with_its_default():
    study = tiny_study(personal={})
    whole, canonical = study.model_dump(mode="json"), json.loads(study.canonical())
    for (*way, field), default in study_module._ADDED:
        sections = study_module._parts(whole, way)
        assert sections or way[:2] in NONE_HERE, field
        assert all(section[field] == default for section in sections), field
        assert not any(field in section for section in study_module._parts(canonical, way)), field


NONE_HERE = (["data", "environment"], ["data", "protected"])
"""Sections that the study does not have, whose fields cannot stand in it."""


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


@pytest.mark.parametrize(
    ("evaluation", "expected", "threshold"),
    [
        ({}, None, 0.5),
        ({}, {"patients": [100]}, 0.5),
        ({}, {"patients": [100], "prevalence": 0.12}, 0.12),
        ({"threshold": 0.3}, {"patients": [100], "prevalence": 0.12}, 0.3),
        ({"threshold": 0.3}, None, 0.3),
    ],
)
def test_the_threshold_is_stated_or_the_expected_prevalence(evaluation, expected, threshold):
    assert tiny_study(evaluation=evaluation, expected=expected).threshold == threshold


def test_a_threshold_is_for_two_classes():
    changes = {"label": {"positive": [], "negative": [], "classes": [[0], [1], [2]]}}
    with pytest.raises(ValidationError, match=r"evaluation\.threshold is for a label of two classes; leave it out"):
        tiny_study(data=changes, evaluation={"threshold": 0.3})
    for wrong in (0, 1, True):
        with pytest.raises(ValidationError, match="threshold"):
            tiny_study(evaluation={"threshold": wrong})
