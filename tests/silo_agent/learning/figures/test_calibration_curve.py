"""Groups of like risks: as many patients in each, each patient once, with an interval that holds the truth."""

import numpy as np
import pytest

from silo_agent.learning.figures.calibration_curve import FEWEST, GROUPS, calibration_curve


def drawn(count, rng, *, shift=0.0):
    logits = rng.normal(-1.5, 1.2, count)
    risks = 1 / (1 + np.exp(-logits))
    labels = (rng.random(count) < 1 / (1 + np.exp(-logits - shift))).astype(np.int64)
    return risks, labels, np.arange(count)


@pytest.mark.parametrize(("count", "groups"), [(39, 0), (40, 2), (75, 3), (200, 10), (5000, 10)])
def test_groups_hold_enough_patients_each(count, groups):
    points = calibration_curve(*drawn(count, np.random.default_rng(1)))
    assert len(points) == groups <= GROUPS
    assert sum(one.patients for one in points) == (count if groups else 0)
    assert all(one.patients >= FEWEST for one in points)
    assert [one.predicted for one in points] == sorted(one.predicted for one in points)
    assert all(0.0 <= one.low <= one.observed <= one.high <= 1.0 for one in points)


@pytest.mark.parametrize(("shift", "least", "most"), [(0.0, 0.92, 1.0), (1.0, 0.0, 0.5)])
def test_intervals_hold_the_truth_if_risks_are_right_and_do_not_if_they_are_not(shift, least, most):
    rng = np.random.default_rng(3)
    held = []
    for _ in range(60):
        risks, labels, patients = drawn(1000, rng, shift=shift)
        held += [one.low <= one.predicted <= one.high for one in calibration_curve(risks, labels, patients)]
    assert least <= np.mean(held) <= most


def test_a_patient_with_many_records_counts_once_with_their_mean():
    risks, labels, patients = drawn(100, np.random.default_rng(2))
    found = calibration_curve(np.repeat(risks, 5), np.repeat(labels, 5), np.repeat(patients, 5))
    wanted = calibration_curve(risks, labels, patients)
    assert [(one.patients, one.observed) for one in found] == [(one.patients, one.observed) for one in wanted]
    assert [one.predicted for one in found] == pytest.approx([one.predicted for one in wanted])
    halves = calibration_curve(np.full(80, 0.5), np.tile([0, 1], 40), np.repeat(np.arange(40), 2))
    assert [(one.patients, one.observed) for one in halves] == [(20, 0.5), (20, 0.5)]
