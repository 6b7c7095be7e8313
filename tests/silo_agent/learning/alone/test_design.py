import numpy as np

from silo_agent.learning.alone.design import Design, columns
from silo_agent.learning.outcomes.registry import family_of


def test_a_record_is_its_inputs_and_its_domain():
    found = columns(np.array([[0.5, -1.0], [0.25, 1.0]], np.float32), np.array([2, 0]), 3)
    assert found.dtype == np.float32
    assert found.tolist() == [[0.5, -1.0, 0, 0, 1], [0.25, 1.0, 1, 0, 0]]


def test_each_patient_counts_once(make_records):
    records = make_records(30, patients=7)
    design = Design.of(records, 3, family_of(2))
    counted = np.bincount(records.patients, weights=design.counted)
    np.testing.assert_allclose(counted, 1.0)
    rows = records.domains == 1
    part = design.rows(rows)
    assert part.x.shape == (rows.sum(), 8)
    assert (part.labels.tolist(), part.counted.tolist()) == (
        records.labels[rows].tolist(),
        design.counted[rows].tolist(),
    )
