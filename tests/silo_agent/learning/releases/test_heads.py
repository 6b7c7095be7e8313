"""Rounds of the heads without noise: from predictions that are sure and wrong, calibrated, and of local heads."""

import json
from dataclasses import replace

import numpy as np
import pytest

from policies.plan.release import plan
from protos.messages import Place
from silo_agent.data.records import Records
from silo_agent.learning.device import choose_device
from silo_agent.learning.model.shared import SharedModel
from silo_agent.learning.releases.contribution import Setting
from silo_agent.learning.releases.heads import HEAD_STEP, Heads
from silo_agent.logs import TrainingLog
from support.entropy import SeededEntropy
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


def setting_of(study, folder, counts):
    (folder / "counts.json").write_text(json.dumps(counts))
    return Setting(study, folder, SeededEntropy(1), choose_device("cpu"), TrainingLog(folder / "log.jsonl"))


@pytest.mark.parametrize("calibration", ["pooled", "domain"])
def test_the_calibration_brings_the_rate_of_all_or_of_each_domain_to_what_was_observed(
    make_records, tmp_path, calibration
):
    study = tiny_study(**OPEN | {"heads": {"pooled_noise": 0, "domain_noise": 0, "calibration": calibration}})
    records = make_records(2000, inputs=2, domains=2)
    labels = (np.random.default_rng(5).random(2000) < np.array([0.6, 0.8])[records.domains]).astype(np.int64)
    records = replace(records, labels=labels)
    start = SharedModel.start(study)
    model = start.with_heads(start.heads + np.array([1.0, -1.0, 0.0]), 2)
    heads = Heads(setting_of(study, tmp_path, [900.0, 900.0]))
    release, place = plan(study).release(study.rounds, "heads"), Place(study.digest, study.rounds, 1)
    sent = heads.contribute(release, records, place, model, 1)
    moved = (heads.solve(release, sent, place, model, 1) * HEAD_STEP).reshape(model.heads.shape) - model.heads
    assert not moved[:, :-1].any()
    assert (abs(moved[0, -1] - moved[1, -1]) < 1e-9) == (calibration == "pooled")
    claimed = model.with_heads(model.heads + moved, study.rounds).predict(records.inputs, records.domains)[:, 1]
    off = [abs((claimed - labels)[records.domains == domain].mean()) for domain in (0, 1)]
    assert abs((claimed - labels).mean()) < 0.03, "before it was 0.2"
    assert (max(off) < 0.05) == (calibration == "domain")


@pytest.mark.parametrize("recipe", ["feddar-sa", "feddar-wa"])
def test_in_a_pooled_round_of_local_heads_each_domain_counts_by_its_weight(make_records, tmp_path, recipe):
    """Weights of 3/2 and 3/4: as if each patient of the first domain were there twice. By domain they say nothing."""
    study = tiny_study(**OPEN | {"recipe": recipe, "heads": {"pooled_noise": 0, "domain_noise": 0}})
    setting = setting_of(study, tmp_path, [50.0, 100.0])
    sizes = np.arange(30) % 3 + 1

    def cohort(times):
        """Patients of one to three records, each of a single domain; those of the first one so many times."""
        everybody = np.concatenate([np.arange(30), *[np.arange(0, 30, 2)] * (times - 1)])
        rows = np.concatenate([np.arange(sizes[:who].sum(), sizes[: who + 1].sum()) for who in everybody])
        whose = np.repeat(np.arange(len(everybody)), sizes[everybody])
        drawn = make_records(sizes.sum(), inputs=2, domains=2)
        names = tuple(f"p{number}" for number in range(len(everybody)))
        return Records(drawn.inputs[rows], drawn.labels[rows], everybody[whose] % 2, whose, names)

    def statistic(number, records, *, strict):
        release, place = plan(study).release(number, "heads"), Place(study.digest, number, 1)
        return Heads(setting).statistic(release, records, place, model, strict=strict)

    start = SharedModel.start(study)
    model = start.with_heads(start.heads + np.array([0.5, -1.0, 0.2]), 1)
    found = statistic(1, cohort(1), strict=False)
    np.testing.assert_allclose(found, 0.75 * statistic(1, cohort(2), strict=True), rtol=1e-6, atol=1e-9)
    assert np.abs(found - statistic(1, cohort(1), strict=True)).max() > 0.01
    np.testing.assert_array_equal(*(statistic(2, cohort(1), strict=strict) for strict in (False, True)))
