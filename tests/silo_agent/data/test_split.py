import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from silo_agent.data.records import Records
from silo_agent.data.split import split


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


@pytest.mark.parametrize("holdout", [0.0, 1.0, float("nan")])
def test_a_fraction_that_leaves_a_cohort_out_is_refused(holdout):
    with pytest.raises(ValueError, match="holdout"):
        split(make([0], ["a"]), "set", holdout)
