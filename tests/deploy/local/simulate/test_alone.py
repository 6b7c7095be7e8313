"""What the mean silo reaches by itself."""

import numpy as np
import pytest

from deploy.local.simulate.alone import alone
from deploy.local.simulate.errors import SimulationError
from deploy.local.simulate.silos import Cohorts, Silo, of_arrays
from support.made_up import MadeUp
from support.studies import tiny_study


def test_it_is_the_mean_over_the_silos():
    study = tiny_study()
    cohorts = MadeUp(patients=600, test=4000, effect=3.0, difference=0.0).draw(study, 1)
    apart = [alone(study, Cohorts({name: silo}, cohorts.test), seed=1) for name, silo in cohorts.silos.items()]
    found = alone(study, cohorts, seed=1)
    assert found.together.auc == pytest.approx(np.mean([own.together.auc for own in apart]))
    assert found.exact[1].auc == pytest.approx(np.mean([own.exact[1].auc for own in apart]))
    assert found.mean > 0.85
    assert found.together.accuracy > 0.75, "a record is of the class that is the likelier one"
    assert found.together.calibration == pytest.approx(1.0, abs=0.1)


def test_a_silo_with_one_class_says_its_rate():
    study = tiny_study()
    test = MadeUp(test=100).draw(study, 1).test
    ill = of_arrays(np.zeros((9, 2)), np.ones(9), np.zeros(9))
    nobody = of_arrays(np.zeros((0, 2)), [], [])
    for records, calibration in ((ill, 1.0), (nobody, 0.5)):
        found = alone(study, Cohorts({"north": Silo(records, records)}, test), seed=1)
        assert found.together.auc == 0.5
        assert found.together.calibration == pytest.approx(calibration / test.labels.mean())


def test_more_than_two_classes_are_refused():
    classes = {"column": "ill", "positive": [], "negative": [], "classes": [["a"], ["b"], ["c"]]}
    study = tiny_study(data={"label": classes})
    with pytest.raises(SimulationError, match="leave out --alone"):
        alone(study, MadeUp(patients=20, test=20).draw(study, 1), seed=1)
