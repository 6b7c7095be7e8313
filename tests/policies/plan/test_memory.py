"""What a study may need in memory: by arithmetic alone, and never less when a constant grows."""

from __future__ import annotations

import pytest

from policies.plan import shapes
from policies.plan.memory import MAPS, PART, needed
from silo_agent.data.images import PixelScale
from silo_agent.learning.dpsgd import training
from support.studies import tiny_study

IMAGE = {"column": "scan", "height": 64, "width": 64}
CNN = {"data": {"image": IMAGE}, "model": {"encoder": "cnn", "channels": [8]}}


def of(**changes):
    return needed(tiny_study(**changes))


@pytest.mark.parametrize(
    ("part", "fewer", "more"),
    [
        ("records", {"privacy": {"max_patients": 1000}}, {"privacy": {"max_patients": 1001}}),
        ("records", {}, {"model": {"representation": 3}}),
        ("records", CNN, {**CNN, "data": {"image": IMAGE | {"height": 65}}}),
        ("records", CNN, {**CNN, "data": {"image": IMAGE | {"maximum": 256}}}),
        ("records", {}, {"model": {"skip": True}}),
        ("heads", {"model": {"skip": True}}, {"model": {"skip": True, "random_features": 1}}),
        ("encoder", {}, {"model": {"hidden": [4]}}),
        ("encoder", {}, {"encoder": {"cmi": 0.1}}),
        ("encoder", CNN, {**CNN, "model": {"encoder": "cnn", "channels": [16]}}),
        ("heads", {}, {"model": {"representation": 3}}),
        ("heads", {}, {"evaluation": {"bins": 5}}),
        ("personal", {}, {"personal": {}}),
        ("personal", {"personal": {"mmd": 0}}, {"personal": {"mmd": 0.1}}),
        ("personal", {"personal": {"batch_size": 64}}, {"personal": {"batch_size": 65}}),
    ],
)
def test_a_larger_constant_needs_more_of_its_part(part, fewer, more):
    assert getattr(of(**more), part) > getattr(of(**fewer), part)
    assert of(**more).total > of(**fewer).total


def test_a_study_of_the_largest_constants_is_priced_without_being_built():
    largest = tiny_study(
        model={"encoder": "cnn", "channels": [512], "hidden": [4096] * 8, "representation": 256},
        data={"image": IMAGE | {"height": 1024, "width": 1024}},
        privacy={"max_patients": 10_000_000},
        personal={"batch_size": 4096},
    )
    found = needed(largest)
    assert found.encoder > 1e12
    assert found.records > 1e13
    assert found.personal > 1e13


def test_each_patient_of_a_small_batch_brings_a_gradient_and_its_copy():
    one, two, three = (of(privacy={"max_patients": patients}).encoder for patients in (1, 2, 3))
    weights = shapes.encoder_values(tiny_study())
    assert three - two == two - one == 2 * 4 * weights


def test_a_part_of_a_batch_is_what_training_takes_at_once():
    assert (PART, MAPS) == (training.PART_BYTES, training._MAPS)
    one = of(privacy={"max_patients": 1}).encoder
    assert of(privacy={"max_patients": 2}).encoder - one < 2 * PART
    assert of(privacy={"max_patients": 10_000_000}).encoder < one + 2 * PART


@pytest.mark.parametrize(
    ("low", "high"), [(0, 255), (0, 256), (-1000, 400), (0.5, 3.0), (0, 1), (-128, 127), (0, 65_535)]
)
def test_an_image_takes_the_bytes_that_its_range_needs(low, high):
    study = tiny_study(**{**CNN, "data": {"image": IMAGE | {"minimum": low, "maximum": high}}})
    narrow = tiny_study(**CNN)
    bytes_each = PixelScale.of(study.data.image).kind().itemsize
    assert needed(study).records - needed(narrow).records == 1000 * 64 * 64 * (bytes_each - 1)


def test_where_every_step_reads_all_records_the_encoder_needs_memory_for_them(make_study):
    plain = make_study()
    encoder = plain.encoder.model_copy(update={"irm": 1.0})
    study = plain.model_copy(update={"encoder": encoder})
    privacy = study.privacy.model_copy(update={"max_patients": 2 * study.privacy.max_patients})
    once, twice = (needed(one).encoder for one in (study, study.model_copy(update={"privacy": privacy})))
    assert twice > 1.9 * once
