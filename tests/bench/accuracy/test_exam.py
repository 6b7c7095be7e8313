"""What the bench of the demo's patients judges."""

import numpy as np
import pytest

from bench.accuracy import exam
from deploy.local.simulate.silos import of_arrays


def judged(own, fedavg=(0.83, 0.77), alone=(0.8, 0.7), fit=(0.87, 0.85), epsilon=3.9):
    """`own` and the others: mean and worst AUC of two domains, the same on three seeds."""
    areas = {
        method: np.tile([worst, 2 * mean - worst], (3, 1))
        for method, (mean, worst) in zip(
            (exam.OWN, exam.FEDAVG, exam.ALONE, exam.OPEN), (own, fedavg, alone, fit), strict=True
        )
    }
    return [figure.met for figure in exam.figures(areas, epsilon)]


def test_every_wanted_figure_can_be_missed():
    fine = (0.858, 0.821)
    assert judged(fine) == [True] * 5
    assert judged((0.8565, 0.821)) == [False, *[True] * 4]
    assert judged((0.858, 0.8195)) == [False, *[True] * 4]
    assert judged(fine, fit=(0.874, 0.85)) == [True, False, True, True, True]
    assert judged(fine, fedavg=(0.839, 0.77)) == [True, True, False, True, True]
    assert judged(fine, fedavg=(0.83, 0.792)) == [True, True, False, True, True]
    assert judged(fine, alone=(0.86, 0.7)) == [True, True, True, False, True]
    assert judged(fine, epsilon=3.91) == [*[True] * 4, False]


def test_a_domains_own_columns_are_empty_for_others():
    found = exam.with_domains(of_arrays(np.array([[0.5, -1.0], [0.25, 1.0]]), [0, 1], [0, 1]))
    np.testing.assert_array_equal(found.inputs, [[0.5, -1, 1, 0, 0.5, -1, 0, 0], [0.25, 1, 0, 1, 0, 0, 0.25, 1]])


@pytest.mark.slow
def test_the_cohorts_are_the_agents_own():
    study = exam.load_source(exam.STUDY).study
    cohorts = exam.Made().draw(study, 3)
    assert tuple(cohorts.silos) == study.silos
    sizes = [silo.training.patient_count + silo.held_out.patient_count for silo in cohorts.silos.values()]
    assert tuple(sizes) == exam.cohort.SITE_PATIENTS
    share = sum(silo.held_out.patient_count for silo in cohorts.silos.values()) / sum(sizes)
    assert share == pytest.approx(0.2, abs=0.02)
    assert np.bincount(cohorts.test.domains).tolist() == [4000] * 5
