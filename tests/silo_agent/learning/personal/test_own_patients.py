"""What a hospital's people are told of the shared model, by its own held-out patients."""

import numpy as np
import pytest

from policies.documents.study import Study
from silo_agent.data.records import Records
from silo_agent.learning.model.shared import SharedModel
from silo_agent.learning.personal.own_patients import warnings
from support.studies import tiny_document, tiny_study

STUDY = tiny_study(model={"encoder": "raw", "hidden": [], "representation": 2}, encoder={"rounds": 0})
LAW = np.array([2.0, -2.0])


def cohort(rng, patients, *, law=LAW, domain=None, per_patient=1):
    people = np.repeat(np.arange(patients), per_patient)
    inputs = np.repeat(rng.uniform(-1, 1, (patients, 2)), per_patient, axis=0).astype(np.float32)
    domains = np.repeat(rng.integers(0, 2, patients), per_patient) if domain is None else np.full(len(people), domain)
    sick = rng.random(patients) < 1 / (1 + np.exp(-3 * inputs[::per_patient] @ law))
    labels = np.repeat(sick, per_patient).astype(np.int64)
    return Records(inputs, labels, domains.astype(np.int64), people, tuple(f"p{n}" for n in range(patients)))


def swapped(records):
    return Records(records.inputs, 1 - records.labels, records.domains, records.patients, records.identities)


def model(*slopes, after=1):
    """A shared model whose two heads have these slopes, after a round."""
    start = SharedModel.start(STUDY)
    heads = np.zeros_like(start.heads)
    for own, slope in zip(heads, slopes, strict=True):
        own[: len(slope)] = slope
    return start.with_heads(heads, after)


def told(*found):
    return [(one.kind, one.domain) for one in found]


def test_nothing_is_said_of_a_model_that_is_right():
    good = model(LAW, LAW)
    for seed in range(30):
        rng = np.random.default_rng(seed)
        assert warnings(good, cohort(rng, 300), cohort(rng, 100)) == (), seed


def test_swapped_labels_are_told_for_all_patients_and_each_domain():
    rng = np.random.default_rng(1)
    found = warnings(model(LAW, LAW), swapped(cohort(rng, 600)), swapped(cohort(rng, 300)))
    assert told(*found) == [("reversed", None), ("reversed", "a"), ("reversed", "b")]
    assert all(one.shared < 0.4 and one.own is None for one in found)
    assert "yes and no may be swapped at this hospital" in found[0].brief
    assert not any(character.isdigit() for character in found[0].brief)
    assert f"{found[0].shared:.3f}" in found[0].text


def test_a_domain_that_the_shared_model_serves_worse_is_told_alone():
    rng = np.random.default_rng(2)
    training, held_out = cohort(rng, 900), cohort(rng, 500)
    assert warnings(model(LAW, [2.0, 2.0]), training, held_out) == ()  # domains have no heads of their own yet
    found = warnings(model(LAW, [2.0, 2.0], after=2), training, held_out)
    assert ("worse", "b") in told(*found)
    assert ("worse", "a") not in told(*found)
    one = next(one for one in found if one.domain == "b")
    assert one.own > one.shared + 0.1
    assert "b at this hospital is served worse by the shared model than by this hospital's own records" in one.text
    assert 200 < one.patients < 300


@pytest.mark.parametrize("patients", [1, 9, 20])
def test_few_patients_say_nothing(patients):
    rng = np.random.default_rng(3)
    assert warnings(model(LAW, LAW), swapped(cohort(rng, 29 - patients)), swapped(cohort(rng, patients))) == ()


def test_where_few_are_held_out_those_that_trained_tell_of_swapped_labels_but_not_of_a_worse_model():
    rng = np.random.default_rng(6)
    training, few = cohort(rng, 300), cohort(rng, 20)
    assert told(*warnings(model(LAW, LAW), swapped(training), swapped(few))) == [
        ("reversed", None), ("reversed", "a"), ("reversed", "b"),
    ]  # fmt: skip
    (found, *_) = warnings(model(LAW, LAW), swapped(training), swapped(few))
    assert found.patients == 320
    assert "on 320 patients of its own the shared model has" in found.text
    assert warnings(model(LAW, [2.0, 2.0], after=2), training, few) == ()
    of_a = cohort(rng, 300, domain=0)
    some = warnings(model(LAW, -LAW), training, of_a)  # of b nobody is held out, and only for b it is wrong
    assert told(*some) == [("reversed", "b")]
    assert 100 < some[0].patients < 200


def test_records_of_one_patient_do_not_count_as_many():
    """25 patients of fifty alike records are no 1,250."""
    rng = np.random.default_rng(4)
    few = swapped(cohort(rng, 25, per_patient=50))
    assert warnings(model(LAW, LAW), cohort(rng, 4), few) == ()


def test_a_study_of_more_classes_has_no_warning():
    document = tiny_document(model={"encoder": "raw", "hidden": []}, encoder={"rounds": 0})
    document["data"]["label"] = {"column": "ill", "classes": [[0], [1], [2]]}
    study = Study.model_validate(document)
    rng = np.random.default_rng(5)
    assert warnings(SharedModel.start(study), cohort(rng, 90), cohort(rng, 90)) == ()
