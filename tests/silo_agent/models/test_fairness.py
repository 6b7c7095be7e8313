import dataclasses
import json

import numpy as np
import pytest

from silo_agent.data.errors import DataError
from silo_agent.data.reader import read_records
from silo_agent.data.sources.data_set import Division
from silo_agent.data.split import split
from silo_agent.learning.model.shared import SharedModel
from silo_agent.learning.personal.model import PersonalModel
from silo_agent.models.evaluate import HospitalCohorts, NoFileError, NoModelError
from silo_agent.models.fairness import NoReportError, report
from silo_agent.models.fairness import _of_sums as of_sums
from silo_agent.storage.folders import StudyFolder
from support.local_federation import write_patients
from support.studies import tiny_study

SLOPES = np.array([[6.0, 0.0], [0.0, 6.0]])


@pytest.fixture
def study():
    plain = tiny_study(model={"hidden": [], "representation": 2})
    return plain.model_copy(update={"data": plain.data.model_copy(update={"protected": plain.data.domain})})


@pytest.fixture
def folder(study, tmp_path):
    model = SharedModel.start(study).with_heads(np.array([[3.0, 0.0, 0.0], [0.0, 0.0, 0.0]]), 2)
    model.save(tmp_path / "model-2.safetensors")
    PersonalModel.start(model).save(tmp_path / "personal.safetensors")
    return tmp_path


@pytest.mark.slow
def test_groups_of_the_held_out_patients_under_both_models(folder, study):
    data = write_patients(folder / "own.csv", np.random.default_rng(1), SLOPES, patients=400)
    cohorts = HospitalCohorts(Division("north-ward", 0.5, ("patient",)), lambda _: data)
    found = report(folder, 2, cohorts)
    (shared,), (personal,) = found.shared, found.personal
    assert (shared.attribute, [group.group for group in shared.groups]) == (
        study.data.domain[0].column,
        list(study.data.domains),
    )
    assert 100 < found.held_out < 300
    assert sum(group.records for group in shared.groups) == found.held_out < len(read_records(data, study.data).whole())
    assert shared.gaps["auc"].gap == pytest.approx(abs(shared.groups[0].auc - shared.groups[1].auc))
    assert shared.attacker == personal.attacker
    assert found.together is None
    estimate = {"value": 0.8, "low": 0.7, "high": 0.9}
    results = {"study": study.digest, "by_domain": [{"auc": estimate}, {"auc": {**estimate, "value": 0.75}}]}
    (folder / "results.json").write_text(json.dumps(results))
    found = report(folder, 2, cohorts, personal_kept=False)
    assert found.personal is None
    assert (found.together.attribute, found.together.groups) == (study.data.domain[0].column, study.data.domains)
    assert found.together.gaps["auc"].value == pytest.approx(0.05)
    for fault, why in (({"study": "f" * 64}, "another study"), ({"by_domain": [{"auc": 1}]}, "damaged")):
        (folder / "results.json").write_text(json.dumps(results | fault))
        with pytest.raises(NoReportError, match=why):
            report(folder, 2, cohorts)


def test_patients_who_train_appear_in_no_figure_and_each_held_out_patient_does(folder, study):
    """Without those who train, the report is the same; without one of the others, it is not."""
    whole = write_patients(folder / "own.csv", np.random.default_rng(1), SLOPES, patients=60)
    header, *rows = whole.read_text().splitlines()

    def reported(lines):
        file = folder / "some.csv"
        file.write_text("\n".join([header, *lines]) + "\n")
        found = report(folder, 2, HospitalCohorts(Division("north-ward", 0.5, ("patient",)), lambda _: file))
        return found.held_out, found.shared, found.personal

    kept = split(read_records(whole, study.data, ["patient"]).records, "north-ward", 0.5)[1].identities
    held_out = [row for row in rows if row.split(",")[0] in kept]
    assert 15 < len(held_out) < 45
    assert reported(held_out) == reported(rows)
    count, shared, personal = reported(held_out[1:])
    assert count == len(held_out) - 1
    assert shared != reported(rows)[1]
    assert personal != reported(rows)[2]
    assert reported([*rows, "x1,nowhere,60,1,1"]) == reported(rows), "a record that does not fit is left out"
    with pytest.raises(DataError, match="column 'group'"):
        reported(["x1,nowhere,60,1,1"])
    cohorts = HospitalCohorts(Division("north-ward", 0.5, ("patient",)), lambda _: whole)
    assert report(folder, 2, cohorts).personal is not None
    assert report(folder, 2, cohorts, personal_kept=False).personal is None
    StudyFolder(folder).personal.unlink()
    assert report(folder, 2, cohorts).personal is None


def test_what_the_sums_say_is_taken_from_this_study_alone(folder, study):
    estimate = {"value": 0.8, "low": 0.7, "high": 0.9}
    results = {"study": study.digest, "by_domain": [{"auc": estimate}, {"auc": {**estimate, "value": 0.75}}]}
    own, file = StudyFolder(folder), folder / "results.json"
    file.write_text(json.dumps(results))
    assert of_sums(own, study).gaps["auc"].value == pytest.approx(0.05)
    open_to_all = study.model_copy(update={"data": study.data.model_copy(update={"protected": ()})})
    assert of_sums(own, open_to_all) is None, "the domain is not protected"
    faults = [results | {"by_domain": [wrong]} for wrong in ({"auc": 1}, {"auc": {"no": 1}}, 7)]
    faults += [{"study": study.digest}, {"by_domain": []}, []]
    for fault, why in ((results | {"study": "f" * 64}, "another study"), *((fault, "damaged") for fault in faults)):
        file.write_text(json.dumps(fault))
        with pytest.raises(NoReportError, match=why):
            of_sums(own, study)


def test_what_it_cannot_report_on_is_said(folder, study):
    cohorts = HospitalCohorts(Division("north-ward", 0.5, ("patient",)), lambda _: None)
    with pytest.raises(NoModelError):
        report(folder, 3, cohorts)
    with pytest.raises(NoFileError):
        report(folder, 2, cohorts)
    plain = study.model_copy(update={"data": study.data.model_copy(update={"protected": ()})})
    dataclasses.replace(SharedModel.start(plain), round=2).save(folder / "model-2.safetensors")
    with pytest.raises(NoReportError, match=r"data\.protected"):
        report(folder, 2, cohorts)
