from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from silo_agent.data.errors import DataError
from silo_agent.data.reader import read_records
from silo_agent.data.sources.data_set import Division
from silo_agent.data.split import split
from silo_agent.learning.errors import AdaptError, ModelFileError
from silo_agent.learning.model.shared import SharedModel
from silo_agent.learning.model.start import begin
from silo_agent.learning.personal import adapt as adapting
from silo_agent.learning.personal.model import PersonalModel
from silo_agent.models.adapt import adapt, check_output
from silo_agent.models.evaluate import HospitalCohorts, NoFileError
from support.local_federation import write_patients
from support.studies import tiny_study

SLOPES = np.array([[0.0, 6.0], [6.0, 0.0]])
COHORTS = HospitalCohorts(Division("north-ward", 0.25, ("patient",)), lambda _: None)


def handed_over(folder, **changes):
    """A study's shared model, as a file that came from elsewhere: encoders were kept, the heads are known."""
    study = tiny_study(
        recipe="lg-fedavg", model={"hidden": [], "representation": 2}, personal={"learning_rate": 0.2}, **changes
    )
    model = SharedModel.start(study).with_heads(np.array([[8.0, 0.0, 0.0], [0.0, 8.0, 0.0]]), 2)
    model.save(folder / "model.safetensors")
    return folder / "model.safetensors", study


def own_file(folder, **changes):
    return write_patients(folder / "north.csv", np.random.default_rng(1), SLOPES, patients=400, **changes)


def test_the_training_cohort_alone_trains_and_the_held_out_patients_say_how_good_it_is(tmp_path):
    (model, study), data = handed_over(tmp_path), own_file(tmp_path)
    found = adapt(model, None, replace(COHORTS, source_of=lambda _: data), most=8, device="cpu")
    training, held_out = split(read_records(data, study.data).whole(), "north-ward", 0.25)
    assert found.adapted.patients == training.patient_count
    assert (found.held_out.patients, found.file, found.skipped) == (held_out.patient_count, "north.csv", 0)
    wanted = adapting.adapt(SharedModel.load(model), training, most=8)
    assert found.adapted.model.to_bytes() == wanted.model.to_bytes()
    assert found.held_out.auc.low > 0
    assert found.held_out.loss.high < 0


def test_records_that_do_not_fit_are_skipped_and_a_file_without_others_is_refused_with_all_reasons(tmp_path):
    (model, _), data = handed_over(tmp_path), own_file(tmp_path)
    with data.open("a") as file:
        file.write("late,z,50,5,1\n")
    found = adapt(model, data, COHORTS, most=1, device="cpu")
    assert found.skipped == 1
    assert adapt(model, data, replace(COHORTS, withdrawn={"late"}), most=1, device="cpu").skipped == 0
    assert "column 'group'" in found.faults[0]
    data.write_text("patient,group,age,lactate,ill\np,z,50,x,7\n")
    with pytest.raises(DataError) as refused:
        adapt(model, data, COHORTS)
    for column in ("group", "lactate", "ill"):
        assert f"column '{column}'" in str(refused.value)
    data.write_text("patient,ill\np,1\n")
    with pytest.raises(DataError) as lacking:
        adapt(model, data, COHORTS)
    for column in ("group", "age", "lactate"):
        assert column in str(lacking.value)


def test_without_a_file_or_a_name_of_whose_a_record_is_nothing_is_trained(tmp_path):
    model, _ = handed_over(tmp_path)
    with pytest.raises(NoFileError, match="'tiny'"):
        adapt(model, None, COHORTS)
    model, _ = handed_over(tmp_path, data={"patient": None})
    with pytest.raises(AdaptError, match=r"north\.csv do not say whose.*identified_by"):
        adapt(model, own_file(tmp_path), replace(COHORTS, division=replace(COHORTS.division, identified_by=())))


def test_a_model_of_a_study_that_continued_another_is_adapted_too(tmp_path):
    first = SharedModel.load(handed_over(tmp_path)[0])
    study = tiny_study(**{**first.study.model_dump(mode="json"), "name": "later", "continues": first.digest})
    replace(begin(study, first), round=2, heads=first.heads).save(tmp_path / "model.safetensors")
    found = adapt(tmp_path / "model.safetensors", own_file(tmp_path), COHORTS, most=1)
    assert found.adapted.model.study == study


def test_a_model_that_its_study_cannot_give_and_a_personal_one_are_refused(tmp_path):
    model, _ = handed_over(tmp_path)
    shared = SharedModel.load(model)
    replace(shared, encoder=shared.encoder + np.float32(0.01)).save(model)
    with pytest.raises(ModelFileError, match="encoder hold a weight that 2 rounds"):
        adapt(model, None, COHORTS)
    PersonalModel.start(shared).save(model)
    with pytest.raises(ModelFileError, match="this is a personal model"):
        adapt(model, None, COHORTS)


def test_a_place_for_the_model_is_checked_before_anything_is_read(tmp_path):
    check_output(tmp_path / "new.safetensors")
    (tmp_path / "old.safetensors").write_bytes(b"")
    for path, why in (
        (tmp_path / "old.safetensors", "exists"),
        (tmp_path / "new.bin", "ends with"),
        (tmp_path / "none" / "new.safetensors", "no folder"),
        (Path(tmp_path), "ends with"),
    ):
        with pytest.raises(ModelFileError, match=why):
            check_output(path)
