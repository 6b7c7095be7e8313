"""What a record adds to a sum does not depend on its neighbours: features to the bit, sums to the stated bound."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from policies.plan.release import plan
from protos.messages import Place, Tensor
from silo_agent.learning.each_record import chunk_rows
from silo_agent.learning.encoder.encoder import Encoder, features
from silo_agent.learning.figures.evaluation import score_histograms
from silo_agent.learning.heads.sums import rounding_slack
from silo_agent.learning.model.shared import SharedModel
from silo_agent.learning.releases import steady_features as steady
from silo_agent.learning.releases.contribution import Setting
from silo_agent.learning.releases.counts import Counts
from silo_agent.learning.releases.heads import Heads
from silo_agent.learning.releases.metrics import MetricSums
from silo_agent.learning.releases.steady_features import steady_features
from silo_agent.logs import TrainingLog
from support.entropy import SeededEntropy

KINDS = [
    {"skip": True, "random_features": 37, "inputs": 5},
    {"hidden": (33, 10), "inputs": 5},
    {"hidden": (), "inputs": 35},
    {"encoder": "cnn", "image": 12, "inputs": 3},
]
DRAWN = {"inputs": 5, "cmi": 0.1, "samples": 3, "skip": True}


def model_of(study, seed=3):
    start, rng = SharedModel.start(study), np.random.default_rng(seed)
    heads = rng.normal(0, 3, start.heads.shape)
    moved = (start.encoder + rng.normal(0, 0.1, start.encoder.shape)).astype(np.float32)
    return replace(start, encoder=moved, heads=heads)


def alone(records, row):
    chosen = np.arange(len(records.identities)) == records.patients[row]
    return records.of_patients(chosen)


@pytest.mark.parametrize("kind", KINDS)
def test_a_records_features_have_the_same_bits_alone_and_among_others(make_study, make_records, kind):
    study = make_study(**kind)
    records = make_records(70, inputs=kind["inputs"], image=kind.get("image"))
    encoder = model_of(study).build_encoder()
    together = steady_features(encoder, records.inputs, records.images)
    assert torch.allclose(together, features(encoder, records.inputs, records.images), atol=1e-6)
    for row in range(70):
        own = alone(records, row)
        assert torch.equal(steady_features(encoder, own.inputs, own.images)[0], together[row])
    order = np.random.default_rng(0).permutation(70)
    images = None if records.images is None else records.images.subset(order)
    assert torch.equal(steady_features(encoder, records.inputs[order], images), together[torch.from_numpy(order)])


def test_what_predictions_read_has_the_same_bits_alone_and_is_examined_too(make_study, make_records, monkeypatch):
    read, seen = Encoder.to_predict, []

    def noted(self, x, images=None):
        seen.append(len(x))
        return read(self, x, images)

    monkeypatch.setattr(Encoder, "to_predict", noted)
    monkeypatch.setattr(steady, "_EXAMINED", {})
    encoder, records = model_of(make_study(**DRAWN)).build_encoder(), make_records(9)
    together = steady_features(encoder, records.inputs, to_predict=True)
    assert len(seen) > 1
    assert set(seen) == {steady._USUAL_ROWS}
    assert together.shape == (9, 3, encoder.width)
    assert torch.allclose(together, features(encoder, records.inputs, to_predict=True), atol=1e-6)
    for row in range(9):
        assert torch.equal(steady_features(encoder, records.inputs[row : row + 1], to_predict=True)[0], together[row])


def test_the_metrics_sums_count_what_the_model_predicts(make_study, make_records, tmp_path):
    study, records = make_study(**DRAWN), make_records(40)
    model = model_of(study)
    setting = Setting(study, tmp_path, SeededEntropy(1), torch.device("cpu"), TrainingLog(tmp_path / "log"))
    found = MetricSums(setting).statistic(plan(study).release(plan(study).last, Tensor.METRICS), records, model)
    said = model.predict(records.inputs, records.domains)
    whole = score_histograms(
        said, records.labels, records.domains, records.weights, model.family, count=3, bins=study.evaluation.bins
    )
    np.testing.assert_allclose(found, whole, atol=1e-6)


def test_an_encoder_whose_rows_move_each_other_reads_one_record_at_a_time(make_study, make_records, monkeypatch):
    forward, seen = Encoder.forward, []

    def placed(self, x, images=None):
        seen.append(len(x))
        return forward(self, x, images) * (1 + 2.0**-20 * torch.arange(len(x)))[:, None]

    monkeypatch.setattr(Encoder, "forward", placed)
    monkeypatch.setattr(steady, "_EXAMINED", {})
    encoder, records = model_of(make_study()).build_encoder(), make_records(5)
    found = steady_features(encoder, records.inputs)
    assert seen[0] == steady._USUAL_ROWS
    assert seen[-5:] == [1] * 5
    assert torch.equal(found[3:4], steady_features(encoder, records.inputs[3:4]))


def test_chunks_are_of_one_shape_and_bounded(make_study):
    def rows(**model):
        study = make_study(**model)
        encoder = SharedModel.start(study).build_encoder()
        return steady._rows(encoder, 5, None if encoder.image_network is None else (1, 12, 12), torch.device("cpu"))

    assert rows() == steady._USUAL_ROWS
    assert rows(encoder="cnn", image=12) == steady._USUAL_ROWS


@pytest.mark.parametrize("classes", [2, 4])
def test_the_sum_of_patients_is_the_sum_of_the_patients_alone(make_study, make_records, tmp_path, classes):
    study = make_study(classes=classes, hidden=(33, 10))
    records = make_records(150, classes=classes, patients=60)
    setting = Setting(study, tmp_path, SeededEntropy(1), torch.device("cpu"), TrainingLog(tmp_path / "log"))
    model, count = model_of(study), len(records.identities)
    patients = [records.of_patients(np.arange(count) == own) for own in range(count)]
    slack = rounding_slack(study.privacy.max_patients, chunk_rows(study), model.heads.shape[1])
    assert slack < 1e-6

    def sums(number, tensor):
        release, place = plan(study).release(number, tensor), Place(study.digest, number, 1)
        asked = {
            Tensor.COUNTS: lambda own: Counts(setting).statistic(release, own),
            Tensor.HEADS: lambda own: Heads(setting).statistic(release, own, place, model),
            Tensor.METRICS: lambda own: MetricSums(setting).statistic(release, own, model),
        }[tensor]
        return asked(records), [asked(own) for own in patients]

    for number, tensor in ((0, Tensor.COUNTS), (plan(study).last, Tensor.METRICS)):
        whole, parts = sums(number, tensor)
        np.testing.assert_array_equal(whole, np.sum(parts, axis=0))
        assert max(np.linalg.norm(part) for part in parts) <= 1.0
    whole, parts = sums(study.rounds, Tensor.HEADS)
    assert np.linalg.norm(whole - np.sum(parts, axis=0)) <= slack / 2
    assert max(np.linalg.norm(part) for part in parts) <= 1.0 / (1.0 + slack / 2)
