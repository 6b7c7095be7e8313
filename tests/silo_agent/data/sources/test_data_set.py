"""A data set is read and divided in one place, and travels to another process as it is."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from policies.documents.policy import load_policy
from silo_agent.config import SqlSource
from silo_agent.data.sources.data_set import DataSet, Division
from silo_agent.data.table import Written
from support.local_federation import write_patients
from support.small_cohort import policy_document, write_yaml
from support.stores import Memory
from support.studies import tiny_study

SCHEMA = tiny_study().data
DIVISION = Division("north-ward", 0.25, ("patient",))
WRITTEN = Written(";", ("patient", "ill"), ("?",), {"ill": {"yes": 1, "9": None}})


@pytest.fixture
def file(tmp_path):
    return write_patients(tmp_path / "own.csv", np.random.default_rng(1), np.ones((2, 2)), patients=40)


@pytest.mark.parametrize("written", [None, WRITTEN])
@pytest.mark.parametrize("database", [True, False])
def test_it_is_read_back_as_it_was_written(tmp_path, written, database):
    source = SqlSource(url="sqlite:////ward.db", statement="SELECT 1") if database else tmp_path / "own.csv"
    data_set = DataSet(source, DIVISION, written)
    assert DataSet.parse(json.loads(json.dumps(data_set.document()))) == data_set


def test_it_is_what_the_policy_says(tmp_path):
    document = {**policy_document(), "version": 4}
    document["limits"]["memory_mib"] = 1024
    file = {"delimiter": ";", "columns": ["patient", "ill"]}
    document["data_set"] |= {"id": "north-ward", "identified_by": ["patient"], "holdout": 0.25, "file": file}
    document["spelling"] = {"missing": ["?"], "codes": WRITTEN.codes}
    policy = load_policy(write_yaml(tmp_path / "policy.yaml", document))
    assert DataSet.of(policy, tmp_path / "own.csv") == DataSet(tmp_path / "own.csv", DIVISION, Written.of(policy))
    assert Written.of(policy) == WRITTEN


@pytest.mark.parametrize("kept", [True, False])
def test_a_file_is_read_as_the_hospital_writes_it(file, kept):
    plain = DataSet(file, DIVISION).cohorts(SCHEMA)
    file.write_text(file.read_text().replace(",", ";"))
    spelt = DataSet(file, DIVISION, Written(";", (), (), {}))
    for expected, found in zip(plain, spelt.cohorts(SCHEMA, kept=Memory() if kept else None), strict=True):
        assert (len(found), found.identities) == (len(expected), expected.identities)


def test_every_patient_is_in_one_cohort_by_name_and_share(file):
    training, held_out = DataSet(file, DIVISION).cohorts(SCHEMA)
    assert not set(training.identities) & set(held_out.identities)
    assert 0 < held_out.patient_count < training.patient_count
    for other in (Division("south-ward", 0.25, ("patient",)), Division("north-ward", 0.75, ("patient",))):
        assert set(DataSet(file, other).cohorts(SCHEMA)[1].identities) != set(held_out.identities)


def test_rows_that_are_kept_are_read_again_and_others_are_not(file):
    kept, data_set = Memory(), DataSet(file, DIVISION)
    first = [cohort.identities for cohort in data_set.cohorts(SCHEMA, kept=kept)]
    lines = file.read_text().splitlines()
    file.write_text("\n".join(lines[:10]) + "\n")
    assert [cohort.identities for cohort in data_set.cohorts(SCHEMA, kept=kept)] == first
    assert sum(len(cohort.identities) for cohort in data_set.cohorts(SCHEMA)) < sum(map(len, first))


def test_the_columns_that_say_whose_a_record_is_are_the_divisions(file):
    by_record = SCHEMA.model_copy(update={"patient": None})
    training, held_out = DataSet(file, Division("north-ward", 0.25, ("patient", "age"))).cohorts(by_record)
    assert len(training) + len(held_out) > 0
    with pytest.raises(ValueError, match="identified_by"):
        DataSet(file, Division("north-ward", 0.25, ())).cohorts(by_record)


ROOT = Path(__file__).parents[4]
FOR_PEOPLE = {"silo_agent/review/data_check.py", "silo_agent/data/profiling/profile.py", "silo_agent/models"}
FOR_TRAINING = {"silo_agent/data/sources/data_set.py", "silo_agent/data/sources/snapshot.py"}


def test_who_trains_takes_the_records_alone():
    """What does not fit, and how many, would tell who sees a result about single patients."""
    readers = {}
    for path in (ROOT / "silo_agent").rglob("*.py"):
        text = path.read_text("utf-8")
        if re.search(r"import .*\b(read_records|RecordBuilder)\b", text):
            readers[path.relative_to(ROOT).as_posix()] = text
    shown = {name for name in readers if name in FOR_PEOPLE or name.rpartition("/")[0] in FOR_PEOPLE}
    assert readers.keys() - shown == FOR_TRAINING
    for name in FOR_TRAINING:
        calls = re.findall(r"\b(?:read_records|reading)\((?:[^()]|\([^()]*\))*\)(\.?\w*)", readers[name])
        assert calls, name
        assert set(calls) == {".records"}, (name, calls)
