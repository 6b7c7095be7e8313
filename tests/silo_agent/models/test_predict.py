import csv
import io
import os
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
from pyarrow.csv import read_csv

from silo_agent.data.errors import DataError
from silo_agent.data.unlabelled import read_unlabelled
from silo_agent.learning.errors import ModelFileError
from silo_agent.learning.model import kept_parts
from silo_agent.learning.personal.unknown_domain import Way, predict_ensemble, predict_pooled
from silo_agent.models.predict import PredictionError, check_output, load_model, predict
from silo_agent.storage.folders import StudyFolder
from support.models import (
    DAYS,
    DOSE,
    STUDIES,
    VISITS,
    random_model,
    random_personal,
    study_of,
    write_records,
    write_rows,
)

ROW = {"patient": "p", "group": "a", "age": 30, "lactate": 5}


@pytest.fixture
def study():
    return study_of("linear mlp")


@pytest.fixture
def model(study):
    return random_model(study)


def rows_of(*groups):
    return [ROW | {"patient": f"p{n}", "group": group, "age": 20 + 9 * n} for n, group in enumerate(groups)]


def inputs_of(rows):
    return np.array([[row["age"] / 60 - 1, row["lactate"] / 5 - 1] for row in rows], np.float32)


# --- domains ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("make", [random_model, random_personal])
def test_a_record_is_predicted_by_its_own_domains_head(tmp_path, study, make):
    rows = rows_of("a", "b", "b")
    found = predict(make(study), write_rows(tmp_path / "r.csv", rows), folder=tmp_path)
    assert found.ways == ("own",) * 3
    assert found.note == ""
    wanted = make(study).predict(inputs_of(rows), np.array([0, 1, 1]))
    np.testing.assert_allclose(found.probabilities, wanted, atol=1e-6)
    assert found.patients == ("p0", "p1", "p2")


def test_one_domain_may_be_given_for_all(tmp_path, model):
    rows = rows_of("b", "b", "")
    path = write_rows(tmp_path / "r.csv", rows)
    found = predict(model, path, folder=tmp_path, domain="a")
    assert found.ways == ("own",) * 3
    np.testing.assert_allclose(found.probabilities, model.predict(inputs_of(rows), np.zeros(3, np.int64)), atol=1e-6)


def test_a_domain_that_the_study_does_not_know_is_named(tmp_path, model):
    with pytest.raises(PredictionError, match="--domain 'c' is unknown: the study knows a, b"):
        predict(model, write_rows(tmp_path / "r.csv", [ROW]), folder=tmp_path, domain="c")


def test_one_domain_for_all_and_unknown_domains_exclude_each_other(tmp_path, model):
    with pytest.raises(PredictionError, match="exclude each other"):
        predict(model, write_rows(tmp_path / "r.csv", [ROW]), folder=tmp_path, domain="a", unknown=Way.POOLED)


def test_an_unknown_domain_is_refused_unless_asked_for(tmp_path, model):
    path = write_rows(tmp_path / "r.csv", rows_of("a", "c"))
    with pytest.raises(PredictionError, match="row 3, column 'group': found 'c', expected one of 'a', 'b'") as caught:
        predict(model, path, folder=tmp_path)
    assert "--unknown-domain ensemble or --unknown-domain pooled" in str(caught.value)
    path.write_text(path.read_text().replace("c", "a").replace("group", "grp"))
    with pytest.raises(PredictionError, match="--domain DOMAIN says the domain of all records"):
        predict(model, path, folder=tmp_path)
    wrong = write_rows(tmp_path / "w.csv", rows_of("a", "b"))
    wrong.write_text(wrong.read_text().replace("lactate", "lact"))
    with pytest.raises(DataError, match="lactate") as caught:
        predict(model, wrong, folder=tmp_path)
    assert "--unknown-domain" not in str(caught.value), "no domain is at fault"


@pytest.mark.parametrize("counts", [None, "[30.0, 10.0]"])
@pytest.mark.parametrize("make", [random_model, random_personal])
def test_unknown_domains_by_the_ensemble(tmp_path, study, make, counts):
    if counts:
        (tmp_path / "counts.json").write_text(counts)
    rows = rows_of("a", "c", "", "b")
    found = predict(make(study), write_rows(tmp_path / "r.csv", rows), folder=tmp_path, unknown=Way.ENSEMBLE)
    assert found.ways == ("own", "ensemble", "ensemble", "own")
    assert found.domains.tolist() == [0, -1, -1, 1]
    shares = np.array([0.75, 0.25] if counts else [0.5, 0.5])
    model, x = make(study), inputs_of(rows)
    np.testing.assert_allclose(found.probabilities[1:3], predict_ensemble(model, shares, x)[1:3], atol=1e-6)
    own = model.predict(x, np.array([0, 0, 0, 1]))
    np.testing.assert_allclose(found.probabilities[[0, 3]], own[[0, 3]], atol=1e-6)
    basis = "weighted by the noised domain counts" if counts else "weighted equally"
    assert found.note == f"mean of the 2 domains' predictions, {basis}"


def test_unknown_domains_by_the_pooled_model_that_the_silo_kept(tmp_path, study, model):
    pooled = random_model(study, round_number=1, seed=9)
    pooled = pooled.with_heads(np.repeat(pooled.heads[:1], 2, axis=0), 1)
    pooled.save(tmp_path / "model-1.safetensors")
    rows = rows_of("c", "a")
    found = predict(model, write_rows(tmp_path / "r.csv", rows), folder=tmp_path, unknown=Way.POOLED)
    assert found.ways == ("pooled", "own")
    assert found.note == "the pooled head of round 1"
    wanted = pooled.predict(inputs_of(rows), np.zeros(2, np.int64))
    np.testing.assert_allclose(found.probabilities[0], wanted[0], atol=1e-6)


def test_what_the_silo_keeps_completes_the_model_of_either_round(tmp_path):
    """FedPer: own heads in the last round, own pooled head for unknown domains; without them nothing is predicted."""
    study = study_of("linear mlp", recipe="fedper")
    rows, whole = rows_of("c", "a"), {}
    for number in (1, 2):
        drawn = random_model(study, round_number=number, seed=number)
        heads = drawn.heads[:1] if number == 1 else drawn.heads
        change = kept_parts.PartsChange.of(np.concatenate([np.zeros(len(drawn.encoder)), heads.ravel()]), study, number)
        shared = replace(drawn, heads=np.zeros_like(drawn.heads))
        shared.save(StudyFolder(tmp_path).model(number))
        kept_parts.keep(change, shared, StudyFolder(tmp_path), number)
        whole[number] = replace(drawn, heads=np.broadcast_to(heads, drawn.heads.shape).copy())
    path = StudyFolder(tmp_path).model(2)
    records = write_rows(tmp_path / "r.csv", rows)
    found = predict(load_model(path, personal=False), records, folder=tmp_path, unknown=Way.POOLED)
    assert found.note == "the pooled head of round 1"
    wanted = [whole[number].predict(inputs_of(rows), np.zeros(2, np.int64)) for number in (1, 2)]
    np.testing.assert_allclose(found.probabilities, [wanted[0][0], wanted[1][1]], atol=1e-6)
    for number in (1, 2):
        StudyFolder(tmp_path).kept(number).unlink()
    with pytest.raises(ModelFileError, match="recipe fedper keeps a part of the model at the silo"):
        load_model(path, personal=False)


@pytest.mark.parametrize("make", [random_model, random_personal])
@pytest.mark.parametrize("stored", ["nothing", "another study", "another round"])
def test_without_a_kept_pooled_model_it_is_the_mean_head(tmp_path, study, make, stored):
    if stored == "another study":
        random_model(study_of("linear mlp", name="other"), round_number=1).save(tmp_path / "model-1.safetensors")
    if stored == "another round":
        random_model(study, round_number=2, seed=7).save(tmp_path / "model-1.safetensors")
    rows = rows_of("c", "a")
    found = predict(make(study), write_rows(tmp_path / "r.csv", rows), folder=tmp_path, unknown=Way.POOLED)
    assert found.note == "mean of the heads, weighted equally"
    wanted = predict_pooled(make(study), np.array([0.5, 0.5]), inputs_of(rows))
    np.testing.assert_allclose(found.probabilities[0], wanted[0], atol=1e-6)


def test_a_personal_model_never_takes_the_shared_pooled_head(tmp_path, study):
    random_model(study, round_number=1, seed=9).save(tmp_path / "model-1.safetensors")
    path = write_rows(tmp_path / "r.csv", rows_of("c"))
    found = predict(random_personal(study), path, folder=tmp_path, unknown=Way.POOLED)
    assert found.note == "mean of the heads, weighted equally"


def test_a_model_of_a_pooled_round_is_itself_the_pooled_one(tmp_path, model):
    early = replace(model, round=1)
    path = write_rows(tmp_path / "r.csv", rows_of("c"))
    assert predict(early, path, folder=tmp_path, unknown=Way.POOLED).note == "the pooled head of round 1"


def test_where_every_domain_is_known_there_is_nothing_to_note(tmp_path, model):
    (tmp_path / "counts.json").write_text("damaged")
    path = write_rows(tmp_path / "r.csv", rows_of("a", "b"))
    assert predict(model, path, folder=tmp_path, unknown=Way.ENSEMBLE).note == ""


# --- files ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", STUDIES)
def test_every_kind_of_study_is_predicted_from_csv_and_parquet_alike(tmp_path, kind):
    study = study_of(kind)
    path = write_records(tmp_path / "r.csv", study)
    found = predict(random_model(study), path, folder=tmp_path, unknown=Way.ENSEMBLE)
    assert found.probabilities.shape == (24, study.data.label.count)
    if study.data.label.number is None:
        np.testing.assert_allclose(found.probabilities.sum(axis=1), 1.0)
    pq.write_table(read_csv(path), tmp_path / "r.parquet")
    again = predict(random_model(study), tmp_path / "r.parquet", folder=tmp_path, unknown=Way.ENSEMBLE)
    np.testing.assert_array_equal(again.probabilities, found.probabilities)
    assert (again.ways, again.patients) == (found.ways, found.patients)


def test_rows_say_record_patient_domain_way_probabilities_and_class(tmp_path, model):
    path = write_rows(tmp_path / "r.csv", rows_of("b", "c"))
    found = predict(model, path, folder=tmp_path, unknown=Way.ENSEMBLE)
    header, *rows = csv.reader(io.StringIO(found.to_csv()))
    assert header == ["record", "patient", "domain", "how", "probability_0", "probability_1", "predicted"]
    assert [row[:4] for row in rows] == [["1", "p0", "b", "own"], ["2", "p1", "", "ensemble"]]
    for row, wanted in zip(rows, found.probabilities, strict=True):
        assert [float(cell) for cell in row[4:6]] == wanted.tolist()
        assert row[6] == str(int(wanted[1] > wanted[0]))


def test_a_class_is_named_by_its_first_code(tmp_path):
    study = study_of("stochastic mlp of three classes")
    path = write_rows(tmp_path / "r.csv", rows_of("a", "b", "a", "b", "a"))
    found = predict(random_model(study), path, folder=tmp_path)
    assert found.columns[4:] == ("probability_well", "probability_ill", "probability_worse", "predicted")
    names = np.array(["well", "ill", "worse"])
    assert [row[-1] for row in found.rows()] == names[found.probabilities.argmax(axis=1)].tolist()


@pytest.mark.parametrize("threshold", [0.1, 0.5, 0.9])
def test_yes_is_predicted_from_the_studys_threshold_on(tmp_path, threshold):
    study = study_of("linear mlp", evaluation={"threshold": threshold})
    found = predict(random_model(study), write_rows(tmp_path / "r.csv", rows_of("a", "b", "a")), folder=tmp_path)
    risks = [0.05, threshold, 0.95]
    said = replace(found, probabilities=np.array([[1 - risk, risk] for risk in risks]))
    assert [row[-1] for row in said.rows()] == ["0", "1", "1"]


@pytest.mark.parametrize(
    ("label", "names"),
    [
        ({"positive": ["<30"], "negative": ["NO", ">30"]}, ("not <30", "<30")),
        ({"positive": [2, 3], "negative": [0, 1]}, ("not 2/3", "2/3")),
        ({"positive": ["yes"], "negative": ["no"]}, ("no", "yes")),
    ],
)
def test_no_is_named_by_its_meaning_if_it_has_several_codes(tmp_path, label, names):
    study = study_of("linear mlp", data={"label": {"column": "ill", **label}})
    found = predict(random_model(study), write_rows(tmp_path / "r.csv", rows_of("a", "b", "a")), folder=tmp_path)
    assert found.columns[4:6] == tuple(f"probability_{name}" for name in names)
    assert {row[-1] for row in found.rows()} <= set(names)


@pytest.mark.parametrize("label", [DAYS, DOSE, VISITS])
def test_a_number_is_predicted_in_the_unit_of_its_column(tmp_path, label):
    study = study_of("mlp of a number", data={"label": label})
    low, high, scale = study.data.label.number
    found = predict(random_model(study), write_records(tmp_path / "r.csv", study), folder=tmp_path, unknown=Way.POOLED)
    assert found.columns[-2:] == ("how", "predicted")
    values = np.array([row[-1] for row in found.rows()])
    np.testing.assert_array_equal(values, found.probabilities[:, 0])
    assert ((low <= values) & (values <= high)).all()
    assert np.ptp(values) > 0.3 * (high - low)
    own = np.array(found.ways) == "own"
    records = read_unlabelled(tmp_path / "r.csv", study.data, unknown_allowed=True)
    places = (random_model(study).predict(records.inputs[own], records.domains[own])[:, 0] + 1) / 2
    one = {"linear": None, "log": 0, "log1p": 1}[scale]
    wanted = low + (high - low) * places
    if one is not None:
        wanted = (one + low) * ((one + high) / (one + low)) ** places - one
    np.testing.assert_allclose(values[own], wanted, atol=1e-6)
    found.save(tmp_path / "out.parquet")
    assert str(pq.read_table(tmp_path / "out.parquet").schema.field("predicted").type) == "double"


def test_without_a_patient_column_there_is_none_in_the_output(tmp_path):
    study = study_of("linear mlp", data={"patient": None})
    found = predict(random_model(study), write_rows(tmp_path / "r.csv", rows_of("a")), folder=tmp_path)
    assert found.columns[:3] == ("record", "domain", "how")
    assert next(found.rows())[:3] == (1, "a", "own")


@pytest.mark.parametrize("groups", [("b", "c"), ()])
def test_parquet_holds_the_same_rows_typed(tmp_path, model, groups):
    path = write_rows(tmp_path / "r.csv", rows_of("a", *groups))
    if not groups:
        path.write_text(path.read_text().splitlines()[0] + "\n")
    found = predict(model, path, folder=tmp_path, unknown=Way.ENSEMBLE)
    found.save(tmp_path / "out.parquet")
    table = pq.read_table(tmp_path / "out.parquet")
    assert tuple(table.column_names) == found.columns
    assert [str(table.schema.field(name).type) for name in ("record", "domain", "probability_1")] == [
        "int64",
        "string",
        "double",
    ]
    assert [tuple(row.values()) for row in table.to_pylist()] == list(found.rows())


@pytest.mark.parametrize("name", ["out.csv", "out.parquet"])
def test_what_is_saved_is_for_the_owners_eyes_and_whole_or_not_there(tmp_path, model, name, monkeypatch):
    found = predict(model, write_rows(tmp_path / "r.csv", rows_of("a")), folder=tmp_path)
    found.save(tmp_path / "new" / name)
    assert (tmp_path / "new" / name).stat().st_mode & 0o777 == 0o600
    before = (tmp_path / "new" / name).read_bytes()

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        replace(found, ways=("pooled",)).save(tmp_path / "new" / name)
    assert [path.name for path in (tmp_path / "new").iterdir()] == [name]
    assert (tmp_path / "new" / name).read_bytes() == before


def test_a_name_that_says_no_format_is_refused(tmp_path):
    for name in ("out.txt", "out"):
        with pytest.raises(PredictionError, match=r"must be one of \.csv, \.parquet"):
            check_output(tmp_path / name)
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(PredictionError, match="is a folder"):
        check_output(tmp_path / "folder.csv")
    check_output(tmp_path / "out.csv")


@pytest.mark.parametrize("name", ["absent.csv", "absent.parquet"])
def test_a_file_that_is_not_there_is_named(tmp_path, model, name):
    with pytest.raises(DataError, match=rf"{name}: found no file"):
        predict(model, tmp_path / name, folder=tmp_path)


def test_an_image_that_is_not_there_is_named(tmp_path):
    study = study_of("cnn")
    path = write_records(tmp_path / "r.csv", study)
    (tmp_path / "scans" / "3.png").unlink()
    with pytest.raises(DataError, match=r"row 5, column 'scan': found 'scans/3\.png', no such file"):
        predict(random_model(study), path, folder=tmp_path, unknown=Way.ENSEMBLE)


# --- models -----------------------------------------------------------------------------------------------------------
def test_models_are_loaded_by_their_kind(tmp_path, study, model):
    model.save(tmp_path / "shared.safetensors")
    random_personal(study).save(tmp_path / "personal.safetensors")
    assert load_model(tmp_path / "shared.safetensors", personal=False).digest == model.digest
    assert load_model(tmp_path / "personal.safetensors", personal=True).round == 2
    with pytest.raises(ModelFileError, match="this is a personal model, not a shared one"):
        load_model(tmp_path / "personal.safetensors", personal=False)
    with pytest.raises(ModelFileError, match="this is a shared model, not a personal one"):
        load_model(tmp_path / "shared.safetensors", personal=True)
