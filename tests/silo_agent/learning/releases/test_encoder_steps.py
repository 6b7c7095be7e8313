"""Sealed steps: what an opened sum moves, and that a sum holds as many patients as a study may have."""

import json

import numpy as np
import pytest

from crypto.rings.rings import ring_of
from deploy.local.simulate.variants import without_noise
from policies.documents.study import Study
from policies.plan.release import plan
from protos.messages import Place
from silo_agent.learning.device import choose_device
from silo_agent.learning.dpsgd.training import SEALED_NORM, Training, sum_gradients
from silo_agent.learning.model.shared import SharedModel
from silo_agent.learning.releases.contribution import Setting
from silo_agent.learning.releases.encoder_steps import EncoderSteps
from silo_agent.logs import TrainingLog
from support.entropy import SeededEntropy

SILOS = 3
SEALED = {"sealed_steps": True, "sampling_rate": 1.0, "sealing": "ring64", "steps": 2, "batch_size": 10, "clip": 0.5}


def sealed(study, privacy=None, **changes):
    document = study.model_dump(mode="json")
    document["encoder"] |= {**SEALED, **changes}
    document["privacy"] |= privacy or {}
    return Study.model_validate(document, strict=False)


def steps_of(study, folder, seed=1):
    (folder / "counts.json").write_text(json.dumps([20.0, 20.0, 20.0]))
    log = TrainingLog(folder / "training.jsonl")
    return EncoderSteps(Setting(study, folder, SeededEntropy(seed), choose_device("cpu"), log))


def moved_by(before, after):
    return np.concatenate([after.encoder - before.encoder, after.prior - before.prior])


@pytest.mark.parametrize("cmi", [0.0, 0.1])
def test_an_opened_sum_moves_every_silo_by_the_mean_gradient_with_momentum_and_rate(make_study, tmp_path, cmi):
    study = sealed(make_study(cmi=cmi), momentum=0.5, schedule="cosine", learning_rate=0.1)
    steps, start, release = steps_of(study, tmp_path), SharedModel.start(study), plan(study).release(2, "encoder")
    gradient = np.random.default_rng(1).normal(size=release.values)
    total = np.rint(gradient * SEALED_NORM * 10 * SILOS / 0.5).astype(np.int64)
    first = steps.open(release, total, Place(study.digest, 2, 1), start, SILOS).model
    second = steps.open(release, total, Place(study.digest, 3, 1), first, SILOS).model
    np.testing.assert_allclose(moved_by(start, first), -0.1 * gradient, atol=1e-6)
    rate = 0.1 * (1 + np.cos(np.pi / study.encoder_steps)) / 2
    np.testing.assert_allclose(moved_by(first, second), -rate * 1.5 * gradient, atol=1e-6)
    np.testing.assert_allclose(second.momentum, 1.5 * gradient, atol=1e-5)
    assert (first.round, second.round) == (2, 3)
    again = SharedModel.from_bytes(second.to_bytes())
    assert again.digest == second.digest != first.digest
    np.testing.assert_array_equal(again.momentum, second.momentum)
    second.require_reachable()


def test_without_momentum_the_model_keeps_none_and_a_weight_moves_by_the_bound_at_most(make_study, tmp_path):
    study = sealed(make_study(), max_update=0.01)
    steps, start, release = steps_of(study, tmp_path), SharedModel.start(study), plan(study).release(2, "encoder")
    total = np.full(release.values, steps.limit, np.int64)
    moved = steps.open(release, total, Place(study.digest, 2, 1), start, 1).model
    np.testing.assert_allclose(moved_by(start, moved), -0.01, atol=1e-6)
    assert len(moved.momentum) == 0
    assert b"momentum" not in moved.to_bytes().partition(b"sealed_steps")[0]
    with pytest.raises(ValueError, match="round 1 is no step"):
        steps.open(release, total, Place(study.digest, 1, 1), start, 1)


@pytest.mark.parametrize(("mode", "share"), [("local", 1.0), ("distributed", 1.0), ("none", 0.0)])
def test_a_contribution_is_the_sum_with_its_share_of_the_noise(make_study, make_records, tmp_path, mode, share):
    """Of three silos, one a colluder, one carries the noise. Without noise the sum is exact."""
    study = make_study().model_copy(update={"min_silos": 3})
    study = sealed(without_noise(study) if mode == "none" else study, {"mode": mode})
    steps, model, release = steps_of(study, tmp_path), SharedModel.start(study), plan(study).release(2, "encoder")
    records, place = make_records(50), Place(study.digest, 2, 1)
    steep = model.with_heads(np.full_like(model.heads, 3.0), 1)
    integers = steps.contribute(release, records, place, steep, SILOS)
    clean = sum_gradients(
        Training(
            encoder=steep.build_encoder(),
            heads=steep.heads,
            records=records,
            plan=study.encoder,
            family=steep.family,
            domain_weights=np.ones(3),
            release=release,
        ),
        entropy=SeededEntropy(2),
    )
    assert np.abs(integers).max() <= steps.limit
    assert np.std(integers - clean) / SEALED_NORM == pytest.approx(share, rel=0.3)
    assert (tmp_path / "training.jsonl").read_text().count("encoder") == 1


def test_half_a_sum_holds_as_many_patients_as_a_study_may_have(make_study):
    """`_MOST_SUMMED` of the study is this ring's and this norm's."""
    study = make_study().model_copy(update={"silos": tuple("abcdefgh")})
    silos = len(study.silos)
    most = sealed(study, {"max_patients": 2**25 // silos}).privacy.max_patients
    assert 2 * most * SEALED_NORM <= ring_of("ring64").limit(silos)
    with pytest.raises(ValueError, match="lower it"):
        sealed(study, {"max_patients": 2**25 // silos + 1})
