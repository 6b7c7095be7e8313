import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.documents.study import NumericFeature
from silo_agent.data.images import Images
from silo_agent.data.inputs import Inputs
from silo_agent.data.records import Records

FILLED = NumericFeature(kind="number", column="age", minimum=0, maximum=10, fill=7.5)


def make(patients, **changes):
    n = len(patients)
    fields = {
        "inputs": np.arange(2 * n, dtype=np.float32).reshape(n, 2),
        "labels": np.zeros(n, np.int64),
        "domains": np.zeros(n, np.int64),
        "patients": np.array(patients, np.int64),
        "identities": tuple(f"p{i}" for i in range(max(patients, default=-1) + 1)),
    }
    return Records(**(fields | changes))


def test_choosing_patients_keeps_their_records_and_makes_the_index_dense_again():
    records = make([0, 2, 1, 2], environments=np.arange(4)).of_patients(np.array([False, True, True]))
    assert records.identities == ("p1", "p2")
    assert records.patients.tolist() == [1, 0, 1]
    assert records.inputs[:, 0].tolist() == [2, 4, 6]
    assert records.environments.tolist() == [1, 2, 3]


def test_protected_attributes_and_inputs_of_cells_belong_to_records():
    cells = Inputs(np.array([[1.0], [np.nan]], np.float32), (FILLED,), (0.5,))
    records = make([0, 1], protected=np.array([[0, 1], [1, 0]]), inputs=cells)
    assert records.of_patients(np.array([False, True])).protected.tolist() == [[1, 0]]
    assert records.inputs[:].tolist() == [[1.0, 0.0], [0.5, 1.0]], "an absent cell is filled as it is asked for"


def test_choosing_nobody_gives_empty_records():
    records = make([0, 1]).of_patients(np.zeros(2, bool))
    assert len(records) == records.patient_count == 0
    assert records.inputs.shape == (0, 2)


def test_arrays_are_read_only_and_the_text_hides_everything():
    records = make([0, 1])
    with pytest.raises(ValueError, match="read-only"):
        records.inputs[0, 0] = 1
    assert repr(records) == "Records(<private>)"


@pytest.mark.parametrize(
    "changes",
    [
        {"labels": np.zeros(3, np.int64)},
        {"labels": np.array([0.0, 1.0], np.float32)},
        {"labels": np.array([0, -1])},
        {"images": Images(np.zeros((3, 1, 8, 8), np.uint8))},
        {"inputs": np.array([[0.0], [np.nan]], np.float32)},
        {"identities": ("a", "b", "c")},
        {"identities": ("a",)},
        {"protected": np.zeros((3, 1), np.int64)},
        {"protected": np.zeros(2, np.int64)},
        {"protected": np.zeros((2, 1, 1), np.int64)},
        {"environments": np.zeros(3, np.int64)},
        {"environments": np.array([0, -1])},
        {"environments": np.zeros(2)},
    ],
)
def test_records_that_contradict_themselves_are_refused(changes):
    with pytest.raises(ValueError, match="must"):
        make([0, 1], **changes)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), max_size=20))
def test_the_records_of_a_patient_count_one_together_and_alike_whatever_their_domains(rows):
    patients = np.unique([patient for patient, _ in rows], return_inverse=True)[1].tolist()
    records = make(patients, domains=np.array([domain for _, domain in rows], np.int64))
    assert records.weights.shape == (len(rows),)
    for patient in set(patients):
        own = records.weights[records.patients == patient]
        assert own.sum() == pytest.approx(1.0)
        assert np.ptp(own) == 0.0
