"""The shared heads without some patients, beside those of the study that these patients really did not join."""

import numpy as np
import pytest

from deploy.local.simulate.engine import simulate
from deploy.local.simulate.silos import Cohorts, Silo
from silo_agent.data.records import Records
from silo_agent.learning.model.shared import SharedModel
from silo_agent.learning.personal.without_patients import change_without
from support.studies import tiny_study

RAW = {"encoder": "raw", "hidden": [], "representation": 2}
PUBLIC = {
    "encoder": {"rounds": 0, "noise": 0.0},
    "evaluation": {"noise": 0.0},
    "privacy": {"mode": "none", "count_noise": 0.0},
}
NO_NOISE = {"pooled_noise": 0.0, "domain_noise": 0.0}


def study_of(**heads):
    rounds = {"solver": "hierarchical", "pooled_rounds": 2, "domain_rounds": 2, "clip": 0.5}
    return tiny_study(model=RAW, heads=NO_NOISE | rounds | heads, **PUBLIC)


def records_of(seed, n=150):
    r = np.random.default_rng(seed)
    x, d = r.uniform(-1, 1, (n, 2)).astype(np.float32), r.integers(0, 2, n)
    y = (r.random(n) < 1 / (1 + np.exp(-3 * x[np.arange(n), d]))).astype(np.int64)
    return Records(x, y, d, np.arange(n), tuple(f"p{i}" for i in range(n)))


def run(study, silos):
    models = {0: SharedModel.start(study)}
    held = records_of(9)
    cohorts = Cohorts({name: Silo(own, held) for name, own in silos.items()})
    simulate(study, cohorts, seed=1, after_round=lambda model: models.update({model.round: model}))
    return models


@pytest.mark.parametrize(
    ("calibration", "clip_by"),
    [("none", "own"), ("none", "worst"), pytest.param("pooled", "own", marks=pytest.mark.slow)],
)
def test_it_is_nearly_the_study_that_these_patients_did_not_join(calibration, clip_by):
    study = study_of(calibration=calibration, clip_by=clip_by)
    silos = {name: records_of(seed) for seed, name in enumerate(study.silos)}
    models = run(study, silos)
    last = models[max(models)]
    leaving = np.arange(150) < 60
    left = silos["north"].of_patients(leaving)
    without = run(study, silos | {"north": silos["north"].of_patients(~leaving)})
    wanted = without[max(without)].heads - last.heads
    found = change_without(models, left)
    assert np.linalg.norm(found - wanted) < 0.35 * np.linalg.norm(wanted)
    assert np.linalg.norm(wanted) > 0.05


def test_what_cannot_be_taken_out_stays():
    """Another solver keeps no sums; and of a round whose models were not kept nothing is known."""
    newton = study_of(solver="newton")
    silos = {name: records_of(seed) for seed, name in enumerate(newton.silos)}
    assert not change_without(run(newton, silos), silos["north"]).any()
    models = run(study_of(), silos)
    last = max(models)
    assert change_without(models, silos["north"]).any()
    assert not change_without(models, silos["north"].of_patients(np.zeros(150, bool))).any()
    assert not change_without({last: models[last]}, silos["north"]).any()
