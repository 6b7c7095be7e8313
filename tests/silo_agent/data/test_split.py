from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.documents.policy import Policy
from silo_agent.data.reader import read_records
from silo_agent.data.records import Records
from silo_agent.data.split import split
from silo_agent.data.table import Written
from support.small_cohort import policy_document
from support.studies import tiny_study


def make(patients, identities):
    n = len(patients)
    zeros = np.zeros(n)
    return Records(
        zeros[:, None].astype(np.float32),
        zeros.astype(np.int64),
        zeros.astype(np.int64),
        np.array(patients, np.int64),
        tuple(identities),
    )


@given(
    st.lists(st.integers(0, 30), min_size=1, max_size=80),
    st.floats(0.05, 0.5),
    st.integers(0, 2**32),
)
def test_every_patient_lies_in_one_cohort_with_all_records_whoever_else_is_there(raw, holdout, seed):
    names, patients = np.unique(raw, return_inverse=True)
    records = make(patients, [f"p{n}" for n in names])
    training, evaluation = split(records, "set", holdout)
    assert set(training.identities).isdisjoint(evaluation.identities)
    assert set(training.identities) | set(evaluation.identities) == set(records.identities)
    assert len(training) + len(evaluation) == len(records)
    chosen = np.random.default_rng(seed).random(len(names)) < 0.5
    fewer, _ = split(records.of_patients(chosen), "set", holdout)
    assert set(fewer.identities) == set(training.identities) & set(records.of_patients(chosen).identities)


def test_the_fraction_is_the_policys_and_the_data_set_decides_who():
    records = make(range(4000), [str(i) for i in range(4000)])
    _, held = split(records, "set", 0.2)
    assert abs(held.patient_count - 800) < 5 * np.sqrt(4000 * 0.2 * 0.8)
    _, other = split(records, "other", 0.2)
    assert len(set(held.identities) & set(other.identities)) < 300
    _, larger = split(records, "set", 0.3)
    assert set(held.identities) < set(larger.identities)


def test_the_split_is_fixed_for_ever():
    records = make(range(8), [f"patient-{i}" for i in range(8)])
    assert split(records, "heart", 0.4)[1].identities == ("patient-0", "patient-2", "patient-5", "patient-6")


def test_records_of_which_nobody_said_what_identifies_them_are_not_split():
    with pytest.raises(ValueError, match="identified_by"):
        split(make([0, 1], ["", "b"]), "set", 0.2)


def cohorts(folder, study, policy, written=None):
    """Row of a headerless file -> whether it trains, for the rows that fit."""
    rows = np.random.default_rng(5).integers(0, 90, (200, 3))
    found = {}
    for number, row in enumerate(rows):
        (folder / "row.csv").write_text(",".join(f"{value}.0" for value in row) + ",1\n")
        records = read_records(folder / "row.csv", study.data, policy.data_set.identified_by, written=written).records
        training, evaluation = split(records, policy.data_set.id, policy.data_set.holdout)
        if len(records):
            found[number] = len(training) > len(evaluation)
    return found


def test_another_delimiter_would_move_records_to_the_other_cohort_so_the_policy_says_it(quick_path):
    """63.0,1.0,2.0,1 has four cells with commas, and four others with points."""
    columns = ["age", "sex", "group", "ill"]
    file = {"delimiter": ",", "columns": columns}
    document = policy_document("ward") | {"version": 4}
    data_set = document["data_set"] | {"unit": "record", "identified_by": columns, "file": file}
    policy = Policy.model_validate(
        document | {"data_set": data_set, "limits": {**document["limits"], "memory_mib": 64}}
    )

    def study(delimiter, positive):
        label = {"column": "ill", "positive": [positive], "negative": [9]}
        features = [{"kind": "number", "column": "age", "minimum": 0, "maximum": 90}]
        domain = [{"column": "age", "edges": [40], "names": ["young", "old"]}]
        data = {"patient": None, "columns": columns, "label": label, "features": features, "domain": domain}
        return tiny_study(data={**data, "delimiter": delimiter})

    honest, hostile = study(",", 1), study(".", "0,1")
    before, after = cohorts(quick_path, honest, policy), cohorts(quick_path, hostile, policy)
    assert len(before) == len(after) == 200
    assert sum(before[row] != after[row] for row in before) > 20
    # The silo reads as its policy says: the same cells, whatever the study says stands between them.
    written = Written.of(policy)
    assert cohorts(quick_path, study(".", 1), policy, written) == cohorts(quick_path, honest, policy, written) == before
    shuffled = honest.model_copy(update={"data": honest.data.model_copy(update={"columns": tuple(columns[::-1])})})
    assert cohorts(quick_path, shuffled, policy, written) == before
    # Own codes and marks make a record unfit or another input, and leave it in its cohort.
    spelled = replace(written, missing=("7.0", ""), codes={"age": {"8": 80, "9": None}, "ill": {"1": 1}})
    found = cohorts(quick_path, honest, policy, spelled)
    assert 0 < len(found) < 200
    assert all(before[row] == trains for row, trains in found.items())


@pytest.mark.parametrize("holdout", [0.0, 1.0, float("nan")])
def test_a_fraction_that_leaves_a_cohort_out_is_refused(holdout):
    with pytest.raises(ValueError, match="holdout"):
        split(make([0], ["a"]), "set", holdout)
