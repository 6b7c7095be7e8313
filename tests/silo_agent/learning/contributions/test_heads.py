"""Rounds of the heads without noise, from predictions that are sure and wrong."""

import numpy as np

from support.local_federation import LocalFederation, write_patients
from support.studies import tiny_study

SLOPES = np.array([[7.0, -2.0], [-5.0, 4.0]])
SILOS = ("north", "south", "west")
OPEN = {
    "model": {"hidden": [], "representation": 2},
    "encoder": {"noise": 0, "max_update": 1e-9},
    "evaluation": {"noise": 0},
    "privacy": {"mode": "none", "count_noise": 0},
}


def loss(federation):
    """The mean loss of everybody's training records under the shared model."""
    model = federation.models["north"]
    records = [learner.cohort("training") for learner in federation.learners.values()]
    p = [model.predict(r.inputs, r.domains)[np.arange(len(r)), r.labels] for r in records]
    return -np.log(np.maximum(np.concatenate(p), 1e-300)).mean()


def test_without_noise_heads_come_back_from_predictions_that_are_sure_and_wrong(tmp_path):
    """As if the encoder had moved under them. There is hardly any curvature there, so Newton's step is far too long."""
    rng = np.random.default_rng(4)
    files = {silo: write_patients(tmp_path / f"{silo}.csv", rng, SLOPES, patients=120) for silo in SILOS}
    heads = {"solver": "hierarchical", "pooled_rounds": 1, "domain_rounds": 9, "pooled_noise": 0, "domain_noise": 0}
    study = tiny_study(**OPEN, heads=heads)
    federation = LocalFederation.gather(study, files, tmp_path / "silos")
    for number in (0, 1):
        federation.run_round(number)
    for silo, model in federation.models.items():
        federation.models[silo] = model.with_heads(-12.0 * model.heads, 1)
    losses = [loss(federation)]
    for number in range(2, study.rounds + 1):
        federation.run_round(number)
        losses.append(loss(federation))
    assert losses[0] > 2.0
    assert losses[-1] < 0.6
    assert np.abs(federation.models["north"].heads).max() < 30.0
