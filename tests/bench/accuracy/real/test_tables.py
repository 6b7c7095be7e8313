"""Published files as tables by silo."""

import csv
import io
import zipfile

import pytest

from bench.accuracy.real import data_sets, tables
from policies.documents.study import load_study
from silo_agent.data.reader import read_records

HEADER = (
    "encounter_id,patient_nbr,race,gender,age,admission_type_id,discharge_disposition_id,admission_source_id,"
    "time_in_hospital,payer_code,medical_specialty,num_lab_procedures,num_procedures,num_medications,number_outpatient,"
    "number_emergency,number_inpatient,diag_1,diag_2,diag_3,number_diagnoses,max_glu_serum,A1Cresult,metformin,insulin,"
    "change,diabetesMed,readmitted"
)
STAY = "5,1,Asian,Male,[70-80),1,1,7,3,MC,Cardiology,40,1,9,0,0,2,428,250.02,V45,9,None,>8,No,Up,Ch,Yes,<30"
COLUMNS, FIRST = (line.split(",") for line in (HEADER, STAY))
LATER = ["9", *FIRST[1:10], "?", *FIRST[11:]]
DEAD = ["7", "2", *FIRST[2:6], "11", *FIRST[7:]]


def stays(folder, rows):
    text = io.StringIO()
    csv.writer(text).writerows([COLUMNS, *rows])
    with zipfile.ZipFile(folder / "dataset_diabetes.zip", "w") as archive:
        archive.writestr("data/diabetic_data.csv", text.getvalue())
    return tables.diabetes(folder)


@pytest.mark.parametrize(
    ("code", "group"),
    [("250.83", "diabetes"), ("428", "circulatory"), ("785", "circulatory"), ("V45", "other"), ("?", "none"),
     ("140", "neoplasm"), ("239", "neoplasm"), ("240", "other"), ("999", "injury")],
)  # fmt: skip
def test_codes_go_to_their_chapters(code, group):
    assert tables.icd_group(code) == group


def test_a_patient_is_where_the_first_stay_was_and_the_dead_are_left_out(tmp_path):
    found = stays(tmp_path, [LATER, FIRST, DEAD])
    assert {silo: len(rows) for silo, rows in found.items() if rows} == {"cardiology": 2}
    first = found["cardiology"][1]
    assert first["diagnosis_1"] == "circulatory"
    assert (first["age"], first["age_squared"], first["any_inpatient"]) == (75, 5625, 1)


def test_the_tables_fit_their_studies(tmp_path):
    study = load_study(data_sets.HERE / "diabetes.yaml")
    files = tables.write({"cardiology": stays(tmp_path, [FIRST])["cardiology"]}, tmp_path / "out")
    records = read_records(files["cardiology"], study.data).whole()
    assert records.inputs.shape == (1, study.model.representation)
    assert study.data.domains[records.domains[0]] == "Asian"


PERSON = "39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, {race}, Male, 2174, 0, 40, {country}, {income}"  # noqa: E501


def test_adult_is_dealt_to_six_silos_and_fits_its_study(tmp_path):
    rows = [
        PERSON.format(race=race, country="United-States", income=income)
        for race, income in zip(["White", "Black", "Asian-Pac-Islander"] * 4, ["<=50K", ">50K"] * 6, strict=True)
    ]
    (tmp_path / "adult.data").write_text("\n".join(rows) + "\n\n", encoding="utf-8")
    (tmp_path / "adult.test").write_text("|1x3 Cross validator\n" + ".\n".join(rows) + ".\n", encoding="utf-8")
    training, test = tables.adult(tmp_path)
    assert [row["row"] for row in training["silo-2"]] == [1, 7]
    assert [row["income"] for row in test["silo-2"]] == [">50K", ">50K"]
    study = load_study(data_sets.HERE / "adult.yaml")
    files = tables.write(training, tmp_path / "out")
    assert tuple(files) == study.silos
    records = read_records(files["silo-3"], study.data, ("row",)).whole()
    assert records.inputs.shape == (2, study.model.representation)
    assert {study.data.domains[m] for m in records.domains} == {"other male"}
