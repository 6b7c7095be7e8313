import dataclasses

import numpy as np
import pytest

from policies.documents.study import NUMBER
from silo_agent.learning.alone import fitting
from silo_agent.learning.alone.boosting import ROUNDS
from silo_agent.learning.alone.fitting import fit
from silo_agent.learning.outcomes.links import losses
from silo_agent.learning.outcomes.registry import family_of


def folds(records, count=5):
    return (np.arange(records.patient_count) % count)[records.patients]


def straight(records, seed=0):
    """Outcomes that a regression has right, but for chance."""
    risk = 1 / (1 + np.exp(-3.0 * (records.inputs[:, 0] + records.inputs[:, 1])))
    labels = (np.random.default_rng(seed).random(len(records)) < risk).astype(np.int64)
    return dataclasses.replace(records, labels=labels)


def bent(records):
    """Outcomes that only trees have right."""
    labels = ((records.inputs[:, 0] > 0) ^ (records.inputs[:, 1] > 0)).astype(np.int64)
    return dataclasses.replace(records, labels=labels)


def test_the_kind_that_predicts_other_patients_better_is_taken(make_study, make_records):
    study, records = make_study(), make_records(400, patients=250)
    for own, kind in ((straight(records), "regression"), (bent(records), "boosting")):
        found = fit(own, folds(own), study, 7)
        assert (found.model.kind, found.model.round, found.model.study) == (kind, 7, study)
        family = family_of(2)
        unseen = np.average(losses(found.unseen, own.labels, family), weights=own.weights)
        assert unseen < 0.65, "chance is .693"
        seen = np.average(losses(found.model.logits(own.inputs, own.domains), own.labels, family), weights=own.weights)
        assert seen < unseen


@pytest.mark.parametrize("kind", ["regression", "boosting"])
def test_no_record_is_told_by_a_model_that_has_seen_its_fold(make_study, make_records, monkeypatch, kind):
    """A record's own outcome moves the logits of all other folds, and not its own's."""
    keep = "_tried"
    tried = getattr(fitting, keep)
    monkeypatch.setattr(fitting, keep, lambda *given: _only(tried(*given), kind))
    records = straight(make_records(120))
    fold = folds(records)
    whole = fit(records, fold, make_study(), 1).unseen
    for one in range(5):
        turned = records.labels.copy()
        turned[fold == one] = 1 - turned[fold == one]
        other = fit(dataclasses.replace(records, labels=turned), fold, make_study(), 1).unseen
        np.testing.assert_allclose(other[fold == one], whole[fold == one], atol=1e-9)
        assert (np.abs(other[fold != one] - whole[fold != one]) > 1e-6).mean() > 0.5


def _only(tried, kind):
    found = list(tried)
    regressions = len(fitting.STRENGTHS)
    assert len(found) == regressions + len(fitting.LEAVES) * len(ROUNDS)
    return found[1:2] if kind == "regression" else found[regressions + 1 : regressions + 2]


def test_of_very_many_records_those_of_some_patients_are_learned_from_and_all_are_judged(
    make_study, make_records, monkeypatch
):
    records, learned = straight(make_records(600, patients=300)), []
    regress = fitting.regress
    monkeypatch.setattr(fitting, "MOST", 300)
    monkeypatch.setattr(
        fitting, "regress", lambda design, strength: learned.append(design) or regress(design, strength)
    )
    found = fit(records, folds(records), make_study(), 1)
    assert all(150 <= len(design.labels) <= 350 for design in learned)
    some = fitting._drawn(records)
    by_patient = np.bincount(records.patients, weights=some) / np.bincount(records.patients)
    assert set(by_patient.tolist()) == {0.0, 1.0}, "a patient's records stay together"
    assert (found.unseen != 0.0).all()
    monkeypatch.setattr(fitting, "MOST", 600)
    assert fitting._drawn(records).all()


@pytest.mark.parametrize("classes", [3, NUMBER])
def test_other_outcomes_are_fitted_too(make_study, make_records, classes):
    study, records = make_study(classes=3), make_records(200, classes=3)
    if classes == NUMBER:
        label = study.data.label.model_copy(update={"classes": (), "minimum": 0.0, "maximum": 1.0})
        study = study.model_copy(update={"data": study.data.model_copy(update={"label": label})})
        records = dataclasses.replace(records, labels=((records.inputs[:, 0] + 1) * 2**19).astype(np.int64))
    found = fit(records, folds(records), study, 1)
    family = family_of(study.data.label.count)
    chance = np.zeros_like(found.unseen)
    assert losses(found.unseen, records.labels, family).mean() < 0.7 * losses(chance, records.labels, family).mean()


def test_too_few_of_a_class_or_no_table_gives_no_model(make_study, make_records):
    records = straight(make_records(200))
    rare = dataclasses.replace(records, labels=(np.arange(200) < 9).astype(np.int64))
    assert fit(rare, folds(rare), make_study(), 1) is None
    enough = dataclasses.replace(records, labels=(np.arange(200) < 10).astype(np.int64))
    assert fit(enough, folds(enough), make_study(), 1) is not None
    together = np.where(enough.labels == 1, 0, folds(enough))
    assert fit(enough, together, make_study(), 1) is None, "without that fold nobody has the class"
    one = dataclasses.replace(rare, patients=np.zeros(200, np.int64), identities=("p",))
    assert fit(one, np.zeros(200, np.int64), make_study(), 1) is None
    images = make_study(inputs=0, image=8, encoder="cnn", hidden=())
    assert fit(records, folds(records), images, 1) is None
