import csv
import hashlib
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from shutil import copytree

import numpy as np
import pytest

from silo_agent.config import SqlSource
from silo_agent.data.errors import DataError, Faults
from silo_agent.data.reader import read_records
from silo_agent.data.sources.data_set import DataSet, Division
from silo_agent.data.table import Written
from silo_agent.learning.alone.mixing import Mix
from silo_agent.learning.errors import ModelFileError
from silo_agent.learning.figures.calibration_line import calibration_line
from silo_agent.learning.figures.evaluation import quality
from silo_agent.learning.figures.paired import paired
from silo_agent.learning.figures.subgroup_risks import subgroup_risks
from silo_agent.learning.learner import Learner
from silo_agent.learning.model.shared import SharedModel
from silo_agent.learning.noise.draws import FreshDraws
from silo_agent.learning.personal.choice import CandidateGain, Choice
from silo_agent.learning.personal.model import PersonalModel
from silo_agent.models.beside_own import beside_own
from silo_agent.models.evaluate import HospitalCohorts, NoFileError, NoModelError, PatientCounts, evaluate, file_of
from silo_agent.models.jackknife import spread
from support.entropy import SeededEntropy
from support.local_federation import write_patients
from support.models import random_alone
from support.studies import tiny_study

SLOPES = np.array([[6.0, 0.0], [0.0, 6.0]])
COHORTS = HospitalCohorts(Division("north-ward", 0.25, ("patient",)), lambda _: None)


@pytest.fixture(scope="module")
def study():
    return tiny_study(model={"hidden": [], "representation": 2}, personal={"epochs": 20})


@pytest.fixture(scope="module")
def trained(tmp_path_factory, study):
    tmp_path = tmp_path_factory.mktemp("trained")
    data = write_patients(tmp_path / "own.csv", np.random.default_rng(1), SLOPES, patients=400)
    records = read_records(data, study.data).whole()
    model = SharedModel.start(study)
    phi = model.features(records.inputs).numpy()
    ours, wanted = records.domains == 0, records.inputs @ SLOPES.T.astype(np.float32)
    head = np.linalg.lstsq(phi[ours], wanted[ours, 0], rcond=None)[0]
    heads = np.zeros((2, 3))
    heads[0, :2] = head
    model = model.with_heads(heads, 2)
    model.save(tmp_path / "model-2.safetensors")
    personal = PersonalModel.start(model).train(model, records, study.personal, entropy=SeededEntropy(1))
    personal.save(tmp_path / "personal.safetensors")
    return tmp_path


@pytest.fixture
def folder(trained, tmp_path):
    """A study's folder after round 2: heads that know nothing of domain b, and a personal model that does."""
    return Path(copytree(trained, tmp_path / "study"))


def fresh(folder, **changes):
    return write_patients(folder / "test.csv", np.random.default_rng(2), SLOPES, patients=300, **changes)


def test_auc_by_domain_of_the_shared_and_the_personal_model(folder, study):
    found = evaluate(folder, 2, fresh(folder), COHORTS)
    assert (found.study, found.name, found.round, found.domains) == (study.digest, "tiny", 2, ("a", "b"))
    assert found.shared[0].auc > 0.85
    assert found.shared[1].auc == 0.5
    assert found.personal[1].auc > found.shared[1].auc + 0.2
    assert found.shared[0].accuracy > 0.7
    assert 0 <= found.shared[0].calibration < 0.2
    assert found.personal[0].records + found.personal[1].records == 300


def test_a_personal_model_that_is_being_removed_is_not_looked_for(folder):
    assert evaluate(folder, 2, fresh(folder), COHORTS, personal_kept=False).personal is None


def test_it_is_the_quality_of_what_the_model_predicts(folder, study):
    data = fresh(folder)
    records = read_records(data, study.data).whole()
    for model, found in (
        (SharedModel.load(folder / "model-2.safetensors"), evaluate(folder, 2, data, COHORTS).shared),
        (PersonalModel.load(folder / "personal.safetensors"), evaluate(folder, 2, data, COHORTS).personal),
    ):
        probabilities = model.predict(records.inputs, records.domains)
        for m in range(2):
            own = records.domains == m
            assert found[m] == quality(probabilities[own], records.labels[own], study.evaluation.bins, model.family)


def test_without_a_personal_model_there_is_none(folder):
    (folder / "personal.safetensors").unlink()
    assert evaluate(folder, 2, fresh(folder), COHORTS).personal is None


@pytest.mark.parametrize(("changes", "absent"), [({"domains": (1,)}, (0,)), ({"label": 1}, (0, 1))])
def test_an_absent_domain_or_class_has_no_auc(folder, changes, absent):
    found = evaluate(folder, 2, fresh(folder, **changes), COHORTS)
    assert tuple(m for m, value in enumerate(found.shared) if value.auc is None) == absent
    assert tuple(m for m, value in enumerate(found.shared) if value.balanced_accuracy is None) == absent


# --- which model the hospital chose ----------------------------------------------------------------------------------
def choose(folder, candidate):
    shared = SharedModel.load(folder / "model-2.safetensors")
    heads = shared.heads * 0.5 + 1.0 if candidate == "own heads" else shared.heads[:0]
    personal = hashlib.sha256((folder / "personal.safetensors").read_bytes()).hexdigest()
    compared = (CandidateGain("own heads", 0.02, 0.01),)
    Choice(shared.study, 2, shared.digest, candidate, 99, 5, compared, heads, personal).save(
        folder / "choice.safetensors"
    )
    return PersonalModel.start(shared, heads) if len(heads) else shared


def test_the_choice_stands_beside_both_models_with_paired_intervals_on_held_out_patients(folder, study):
    model = choose(folder, "own heads")
    found = evaluate(folder, 2, None, own(folder, study))
    assert (found.choice, "99 training patients" in found.why) == ("own heads", True)
    held = COHORTS.division.split(read_records(folder / "own.csv", study.data).whole())[1]
    shared = SharedModel.load(folder / "model-2.safetensors")
    said = [one.predict(held.inputs, held.domains) for one in (shared, model)]
    assert found.untouched["chosen"] == paired(*said, held.labels, held.patients, shared.family)
    assert found.untouched["personal"].auc.low > 0, "the shared model knows nothing of domain b"
    assert found.untouched["personal"].patients == held.patient_count == found.patients.held_out
    records = read_records(folder / "own.csv", study.data).whole()
    rows = records.domains == 1
    said = model.predict(records.inputs, records.domains)[rows]
    assert found.chosen[1] == quality(said, records.labels[rows], study.evaluation.bins, shared.family)


@pytest.mark.parametrize("candidate", ["shared", "personal"])
def test_a_chosen_model_that_is_shown_anyway_is_not_shown_twice(folder, study, candidate):
    choose(folder, candidate)
    found = evaluate(folder, 2, None, own(folder, study))
    assert (found.choice, found.chosen, set(found.untouched)) == (candidate, None, {"personal"})


def test_the_calibration_of_every_model_is_told_by_domain(folder, study):
    model = choose(folder, "own heads")
    found = evaluate(folder, 2, None, own(folder, study))
    assert list(found.lines) == ["shared", "personal", "chosen"]
    records = read_records(folder / "own.csv", study.data).whole()
    rows = records.domains == 1
    risks = model.predict(records.inputs, records.domains)[rows, 1]
    assert found.lines["chosen"][1] == calibration_line(risks, records.labels[rows], records.patients[rows])
    assert [len(lines) for lines in found.lines.values()] == [2, 2, 2]
    risks = model.predict(records.inputs, records.domains)[:, 1]
    assert found.subgroups["chosen"] == subgroup_risks(study.data, records, risks)
    assert list(found.subgroups) == list(found.lines)


def test_a_chosen_mix_is_shown_as_the_chosen_model(folder, study):
    alone, shared = random_alone(study), SharedModel.load(folder / "model-2.safetensors")
    alone.save(folder / "alone.safetensors")
    own_digest = hashlib.sha256((folder / "alone.safetensors").read_bytes()).hexdigest()
    for candidate, mix in (("own records", None), ("shared and own records", Mix(np.ones(2), np.zeros(1)))):
        Choice(
            study, 2, shared.digest, candidate, 99, 5, (CandidateGain(candidate, 0.02, 0.01),), shared.heads[:0],
            mix=mix, alone=own_digest,
        ).save(folder / "choice.safetensors")  # fmt: skip
        found = evaluate(folder, 2, None, own(folder, study))
        assert (found.choice, set(found.untouched)) == (candidate, {"chosen", "personal"})
        records = read_records(folder / "own.csv", study.data).whole()
        rows = records.domains == 0
        said = alone.predict(records.inputs, records.domains)[rows]
        wanted = quality(said, records.labels[rows], study.evaluation.bins, shared.family)
        assert found.chosen[0].auc == pytest.approx(wanted.auc, abs=1e-9)


def test_the_shared_model_stands_beside_one_of_the_hospitals_records_on_held_out_patients(folder, study):
    alone = random_alone(study)
    assert evaluate(folder, 2, None, own(folder, study)).beside is None
    alone.save(folder / "alone.safetensors")
    held = COHORTS.division.split(read_records(folder / "own.csv", study.data).whole())[1]
    shared = SharedModel.load(folder / "model-2.safetensors")
    for held_out in (False, True):
        found = evaluate(folder, 2, None, own(folder, study), held_out=held_out)
        assert found.beside == beside_own(shared, alone, held)
    assert evaluate(folder, 2, None, own(folder, study), personal_kept=False).beside is None


def test_without_a_choice_nothing_is_said_of_one(folder, study):
    found = evaluate(folder, 2, None, own(folder, study))
    assert (found.choice, found.why, found.chosen) == (None, None, None)
    choose(folder, "own heads")
    gone = evaluate(folder, 2, None, own(folder, study), personal_kept=False)
    assert (gone.choice, gone.untouched) == (None, {})


def test_a_damaged_choice_is_an_error(folder):
    (folder / "choice.safetensors").write_bytes(b"damaged")
    with pytest.raises(ModelFileError, match="cannot be used"):
        evaluate(folder, 2, fresh(folder), COHORTS)


# --- whose records are scored ----------------------------------------------------------------------------------------
def own(folder, study, **changes):
    """The cohorts of a hospital whose own file is own.csv."""
    return replace(COHORTS, source_of=lambda _: folder / "own.csv", **changes)


def test_who_has_withdrawn_is_scored_by_nobody(folder, study):
    gone = frozenset(read_records(folder / "own.csv", study.data).whole().identities[:7])
    found = evaluate(folder, 2, None, own(folder, study, withdrawn=gone))
    assert (sum(one.records for one in found.shared), found.skipped) == (400 - 7, 0)
    # A file whose records do not say whose they are has nobody to leave out.
    by_record = study.data.model_copy(update={"patient": None})
    assert read_records(folder / "own.csv", by_record, faults=Faults(1), withdrawn=gone).kept == 400


def test_held_out_scores_exactly_the_patients_whom_training_never_sees(folder, study):
    learner = Learner(
        study,
        DataSet(folder / "own.csv", COHORTS.division),
        folder / "again",
        draws=FreshDraws(SeededEntropy(1)),
        device="cpu",
    )
    training, evaluation = learner.cohort("training"), learner.cohort("evaluation")
    found = evaluate(folder, 2, None, own(folder, study), held_out=True)
    assert (found.file, found.scored, found.skipped) == ("own.csv", "held out", 0)
    assert found.patients == PatientCounts("patient", training.patient_count, evaluation.patient_count, own=True)
    model = SharedModel.load(folder / "model-2.safetensors")
    probabilities = model.predict(evaluation.inputs, evaluation.domains)
    for m in range(2):
        ours = evaluation.domains == m
        facts = probabilities[ours], evaluation.labels[ours]
        assert found.shared[m] == quality(*facts, study.evaluation.bins, model.family)
        assert found.shared_intervals[m] == spread(
            *facts, evaluation.patients[ours], study.evaluation.bins, model.family
        )


def test_without_it_both_cohorts_are_scored_and_counted(folder, study):
    found = evaluate(folder, 2, None, own(folder, study))
    assert (found.scored, found.patients.own) == ("all", True)
    assert found.patients.training + found.patients.held_out == 400
    assert sum(one.records for one in found.shared) == 400
    other = evaluate(folder, 2, fresh(folder), own(folder, study))
    assert not other.patients.own
    assert other.patients.training + other.patients.held_out == 300


def test_a_statement_on_a_database_is_measured_on_as_a_file_is(folder, study):
    with closing(sqlite3.connect(folder / "ward.sqlite3")) as database, (folder / "own.csv").open() as file:
        names, *rows = csv.reader(file)
        database.execute(f"CREATE TABLE stay ({', '.join(names_of(names))})")
        database.executemany(f"INSERT INTO stay VALUES ({', '.join('?' * len(names))})", rows)  # noqa: S608  # made-up columns
        database.commit()
    source = SqlSource(url=f"sqlite:///{folder}/ward.sqlite3", statement="SELECT * FROM stay")
    found = evaluate(folder, 2, None, replace(COHORTS, source_of=lambda _: source), held_out=True)
    of_file = evaluate(folder, 2, None, own(folder, study), held_out=True)
    assert (found.file, found.patients, found.shared) == ("database ward.sqlite3", of_file.patients, of_file.shared)


def names_of(names):
    return [f'"{name}"' for name in names]


def test_a_file_is_read_as_the_hospital_writes_it_unless_it_is_in_the_studys_form(folder, study):
    data = fresh(folder)
    cohorts = replace(COHORTS, written=Written(";", ()))
    in_study_form = evaluate(folder, 2, data, cohorts, in_study_form=True)
    data.write_text(data.read_text().replace(",", ";"))
    assert evaluate(folder, 2, data, cohorts) == in_study_form
    with pytest.raises(DataError, match="parted by semicolons, expected ','"):
        evaluate(folder, 2, data, cohorts, in_study_form=True)


def test_records_that_do_not_fit_are_skipped_and_counted(folder, study):
    data = folder / "own.csv"
    lines = data.read_text().splitlines()
    data.write_text("\n".join([*lines[:3], "x1,a,600,1,1", "x2,z,60,1,1", *lines[3:]]) + "\n")
    found = evaluate(folder, 2, None, own(folder, study), held_out=True)
    assert found.skipped == 2
    assert ["row 4" in found.faults[0], "row 5" in found.faults[1]] == [True, True]
    assert found.patients.training + found.patients.held_out == 400


def test_a_file_in_which_nothing_fits_is_an_error(folder):
    data = folder / "other.csv"
    data.write_text("patient,group,age,lactate,ill\np,z,60,1,1\n")
    with pytest.raises(DataError, match="column 'group'"):
        evaluate(folder, 2, data, COHORTS)


def test_without_a_file_there_is_nothing_to_measure_on(folder):
    with pytest.raises(NoFileError, match="names no data for the study 'tiny'"):
        evaluate(folder, 2, None, COHORTS)


def test_a_file_is_the_hospitals_own_if_it_is_the_very_same(folder, study, tmp_path):
    cohorts = replace(COHORTS, source_of=lambda _: folder / "own.csv")
    (tmp_path / "link.csv").symlink_to(folder / "own.csv")
    (tmp_path / "other.csv").write_text("")
    for name, same in (("link.csv", True), ("other.csv", False), ("absent.csv", False)):
        assert file_of(study, tmp_path / name, cohorts) == (tmp_path / name, same)


def test_records_without_a_patient_are_divided_by_the_policys_columns(folder, tmp_path):
    study = tiny_study(data={"patient": None}, model={"hidden": [], "representation": 2})
    SharedModel.start(study).save(tmp_path / "model-0.safetensors")
    division = replace(COHORTS.division, identified_by=("age", "lactate"))
    cohorts = replace(COHORTS, source_of=lambda _: folder / "own.csv", division=division)
    found = evaluate(tmp_path, 0, None, cohorts, held_out=True)
    assert found.patients.unit == "record"
    assert sum(one.records for one in found.shared) == found.patients.held_out < 200
    assert evaluate(tmp_path, 0, fresh(folder), cohorts).patients is None
    other = replace(cohorts, division=replace(division, identified_by=("number",)))
    with pytest.raises(DataError, match="'number'"):
        evaluate(tmp_path, 0, fresh(folder), other, held_out=True)


def test_evaluating_changes_nothing(folder):
    data = fresh(folder)
    before = {path: path.read_bytes() for path in folder.iterdir()}
    evaluate(folder, 2, data, COHORTS)
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_a_round_that_never_finished_has_no_model(folder):
    for number in (-1, 0, 3):
        with pytest.raises(NoModelError, match="no finished round"):
            evaluate(folder, number, fresh(folder), COHORTS)


def test_a_file_of_another_schema_is_named(folder):
    (folder / "test.csv").write_text("patient,group,ill\n1,a,0\n")
    with pytest.raises(DataError, match=r"test\.csv"):
        evaluate(folder, 2, folder / "test.csv", COHORTS)


def test_a_damaged_model_is_an_error(folder):
    (folder / "model-2.safetensors").write_bytes(b"damaged")
    with pytest.raises(ModelFileError):
        evaluate(folder, 2, fresh(folder), COHORTS)


def test_a_number_is_measured_by_its_errors_in_its_unit(tmp_path):
    label = {"positive": [], "negative": [], "minimum": 0, "maximum": 10}
    study = tiny_study(data={"label": label}, evaluation={"bins": 10})
    heads = np.zeros((2, 3))
    heads[1, 2] = 0.2  # everybody of domain b is predicted at 6, everybody of a at 5
    SharedModel.start(study).with_heads(heads, 2).save(tmp_path / "model-2.safetensors")
    rows = ["p1,a,50,5,4", "p2,a,50,5,8", "p3,b,50,5,3"]
    (tmp_path / "test.csv").write_text("\n".join(["patient,group,age,lactate,ill", *rows]) + "\n")
    first, second = evaluate(tmp_path, 2, tmp_path / "test.csv", COHORTS).shared
    assert (first.mae, first.mean_error, first.records) == pytest.approx((2, -1, 2), abs=1e-4)
    assert first.r2 == pytest.approx(1 - 10 / 8, abs=1e-4)
    assert (second.mae, second.r2, second.records) == (pytest.approx(3, abs=1e-4), None, 1)
