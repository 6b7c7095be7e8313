import csv

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from policies.documents.study import DataSchema
from silo_agent.data.errors import DataError
from silo_agent.data.reader import read_records
from silo_agent.data.unlabelled import UNKNOWN, read_unlabelled
from support.models import STUDIES, study_of, write_records, write_rows

SCHEMA = DataSchema.model_validate(
    {
        "patient": "patient",
        "missing": ["", "NA"],
        "label": {"column": "ill", "positive": [1], "negative": [0]},
        "domain": [
            {"column": "group", "values": ["a", "b"], "names": ["a", "b"]},
            {"column": "age", "edges": [40], "names": ["young", "old"]},
        ],
        "features": [{"kind": "number", "column": "lactate", "minimum": 0, "maximum": 10}],
    }
)


def row(**changes):
    return {"patient": "p", "group": "a", "age": 30, "lactate": 5, **changes}


@pytest.mark.parametrize("kind", STUDIES)
def test_what_is_read_is_what_training_would_have_read(tmp_path, kind):
    study = study_of(kind)
    path = write_records(tmp_path / "records.csv", study, label=True)
    lines = path.read_text().splitlines()
    path.write_text("\n".join(lines[:-2]) + "\n")  # the last two are of domains that training refuses
    trained, read = read_records(path, study.data).whole(), read_unlabelled(path, study.data)
    np.testing.assert_array_equal(read.inputs, trained.inputs)
    np.testing.assert_array_equal(read.domains, trained.domains)
    assert read.patients == tuple(trained.identities[p] for p in trained.patients)
    assert (read.images is None) == (trained.images is None)
    if read.images is not None and trained.images is not None:
        np.testing.assert_array_equal(read.images.take(slice(None)), trained.images.take(slice(None)))


@pytest.mark.parametrize("label", [{}, {"ill": "what nobody knows"}, {"ill": ""}])
def test_a_label_is_not_even_looked_at(tmp_path, label):
    path = write_rows(tmp_path / "r.csv", [row(**label), row(group="b", age=40, **label)])
    assert read_unlabelled(path, SCHEMA).domains.tolist() == [0, 3]


def test_parquet_is_read_the_same_way(tmp_path):
    columns = {"patient": ["p", "q"], "group": ["b", None], "age": [40.0, 20.0], "lactate": [5, 10]}
    pq.write_table(pa.table(columns), tmp_path / "r.parquet")
    read = read_unlabelled(tmp_path / "r.parquet", SCHEMA, unknown_allowed=True)
    assert read.domains.tolist() == [3, UNKNOWN]
    assert read.inputs.ravel().tolist() == [0.0, 1.0]
    assert read.patients == ("p", "q")


@pytest.mark.parametrize(
    "changes", [{"group": ""}, {"group": "NA"}, {"group": "c"}, {"age": ""}, {"age": "NA"}, {"group": " "}]
)
def test_an_absent_or_unlisted_domain_is_unknown_only_where_that_is_allowed(tmp_path, changes):
    path = write_rows(tmp_path / "r.csv", [row(), row(**changes)])
    assert read_unlabelled(path, SCHEMA, unknown_allowed=True).domains.tolist() == [0, UNKNOWN]
    with pytest.raises(DataError, match=rf"r\.csv, row 3, column '{next(iter(changes))}'"):
        read_unlabelled(path, SCHEMA)


def test_a_band_that_is_no_number_is_an_error_even_there(tmp_path):
    path = write_rows(tmp_path / "r.csv", [row(age="4O")])
    with pytest.raises(DataError, match=r"column 'age': found '4O', expected a number such as 1\.5, or nothing"):
        read_unlabelled(path, SCHEMA, unknown_allowed=True)


def test_one_unknown_factor_makes_the_domain_unknown(tmp_path):
    path = write_rows(tmp_path / "r.csv", [row(group="b", age=""), row(group="c", age=50), row(group="b", age=50)])
    assert read_unlabelled(path, SCHEMA, unknown_allowed=True).domains.tolist() == [UNKNOWN, UNKNOWN, 3]


def test_a_domain_column_that_is_not_there_leaves_every_domain_unknown(tmp_path):
    path = write_rows(tmp_path / "r.csv", [{"patient": "p", "age": 30, "lactate": 5}] * 2)
    assert read_unlabelled(path, SCHEMA, unknown_allowed=True).domains.tolist() == [UNKNOWN, UNKNOWN]
    with pytest.raises(DataError, match=r"column 'group': found 0 columns of this name"):
        read_unlabelled(path, SCHEMA)


def test_a_domain_that_is_given_needs_no_column(tmp_path):
    path = write_rows(tmp_path / "r.csv", [{"patient": "p", "lactate": 5}] * 2)
    assert read_unlabelled(path, SCHEMA, domain=2).domains.tolist() == [2, 2]
    path = write_rows(tmp_path / "r.csv", [row(group="nonsense", age="x")])
    assert read_unlabelled(path, SCHEMA, domain=2).domains.tolist() == [2]


def test_a_column_that_is_domain_and_feature_stays_needed(tmp_path):
    features = [{"kind": "number", "column": "age", "minimum": 0, "maximum": 100}]
    schema = DataSchema.model_validate({**SCHEMA.model_dump(), "features": features})
    path = write_rows(tmp_path / "r.csv", [{"patient": "p", "group": "a"}])
    for options in ({"unknown_allowed": True}, {"domain": 0}):
        with pytest.raises(DataError, match="column 'age': found 0 columns"):
            read_unlabelled(path, schema, **options)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"lactate": 11}, r"row 2, column 'lactate': found '11', expected a number in \[0, 10\]"),
        ({"lactate": ""}, "row 2, column 'lactate': found nothing"),
        ({"patient": ""}, "row 2, column 'patient'"),
    ],
)
def test_all_else_is_as_strict_as_training(tmp_path, changes, why):
    path = write_rows(tmp_path / "r.csv", [row(**changes)])
    with pytest.raises(DataError, match=why):
        read_unlabelled(path, SCHEMA, unknown_allowed=True)


def test_without_a_patient_column_there_are_no_patients(tmp_path):
    schema = SCHEMA.model_copy(update={"patient": None})
    path = write_rows(tmp_path / "r.csv", [row()])
    assert read_unlabelled(path, schema).patients is None


def test_no_records_are_a_normal_result(tmp_path):
    with (tmp_path / "r.csv").open("w", newline="") as file:
        csv.writer(file).writerow(row())
    read = read_unlabelled(tmp_path / "r.csv", SCHEMA)
    assert (len(read), read.inputs.shape, read.patients) == (0, (0, 1), ())


def test_records_print_nothing_of_themselves(tmp_path):
    assert repr(read_unlabelled(write_rows(tmp_path / "r.csv", [row()]), SCHEMA)) == "Unlabelled(<private>)"
