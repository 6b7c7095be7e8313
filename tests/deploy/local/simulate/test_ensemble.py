"""The mean of all silos' own models, and who has none."""

import numpy as np
import pytest

from deploy.local.simulate.engine import simulate
from deploy.local.simulate.ensemble import mean_of, require_local_models
from deploy.local.simulate.errors import SimulationError
from deploy.local.simulate.silos import Cohorts
from support.made_up import MadeUp
from support.studies import tiny_study


def cohorts_of(study):
    return MadeUp(60, 0.3, 1.5, 0.5, 0.25).draw(study, 1)


class Says:
    def __init__(self, risk):
        self.risk = risk

    def predict(self, inputs, _domains, _images):
        return np.tile([1 - self.risk, self.risk], (len(inputs), 1))


def test_it_is_the_mean_of_what_the_models_say():
    records = cohorts_of(tiny_study()).test
    np.testing.assert_allclose(mean_of([Says(0.1), Says(0.2), Says(0.9)], records)[:, 1], 0.4)


@pytest.mark.parametrize("changes", [{"recipe": "lg-fedavg"}, {"personal": {"epochs": 1}}], ids=["kept", "personal"])
def test_silos_with_models_of_their_own_are_measured_together(changes):
    study = tiny_study(**changes)
    drawn = cohorts_of(study)
    held_out = Cohorts(drawn.silos)
    plain, found = (simulate(study, held_out, seed=1, ensemble=wanted) for wanted in (False, True))
    assert plain.ensemble is None
    assert found.model.digest == plain.model.digest
    assert found.exact == plain.exact
    assert found.ensemble.together.records == sum(len(silo.held_out) for silo in drawn.silos.values())
    assert found.ensemble.exact != found.exact
    assert simulate(study, held_out, seed=1, ensemble=True).ensemble.exact == found.ensemble.exact
    if study.composition.keeps:
        unknown = simulate(study, drawn, seed=1, ensemble=True)
        assert unknown.ensemble.exact == unknown.exact, "of separate test records it is what the study itself is"


def test_a_study_without_local_models_has_no_ensemble():
    for study in (tiny_study(personal={}), tiny_study(recipe="fedper")):
        require_local_models(study)
    with pytest.raises(SimulationError, match=r"recipe second-order keeps no part.*personal is absent"):
        simulate(tiny_study(), cohorts_of(tiny_study()), seed=1, ensemble=True)
