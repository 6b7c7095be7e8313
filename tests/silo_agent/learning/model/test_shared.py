import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.special import expit, softmax

from policies.plan import shapes
from policies.plan.release import plan
from silo_agent.learning.encoder import encoder as encoders
from silo_agent.learning.encoder.draws import public_draws
from silo_agent.learning.encoder.encoder import build_encoder, flatten, view
from silo_agent.learning.errors import ModelFileError
from silo_agent.learning.model import files
from silo_agent.learning.model import shared as module
from silo_agent.learning.model.shared import SharedModel


@pytest.mark.parametrize(("cmi", "prior"), [(0.0, "averaged"), (0.1, "averaged"), (0.1, "local")])
def test_the_start_is_common_and_a_step_is_the_uniform_mean(make_study, cmi, prior):
    study = make_study(cmi=cmi, prior=prior)
    start = SharedModel.start(study)
    assert start.digest == SharedModel.start(study).digest
    assert not start.heads.any()
    size = plan(study).release(1, "encoder").values
    total = np.random.default_rng(0).normal(size=size)
    moved = start.with_update(total, 4)
    before = np.concatenate([start.encoder, start.prior])
    np.testing.assert_allclose(np.concatenate([moved.encoder, moved.prior]), before + total / 4, atol=1e-6)
    assert moved.digest != start.digest
    np.testing.assert_array_equal(flatten(moved.build_encoder()), moved.encoder)
    assert (moved.build_prior() is None) == (cmi == 0)
    if cmi > 0 and prior == "averaged":
        np.testing.assert_array_equal(flatten(moved.build_prior()), moved.prior)
    with pytest.raises(ValueError, match="values was expected"):
        start.with_update(total[1:], 4)


def test_an_opened_sum_of_integers_moves_the_model_as_its_values_do(make_study, monkeypatch):
    start = SharedModel.start(make_study(cmi=0.1))
    integers = np.random.default_rng(0).integers(-(2**40), 2**40, len(start.encoder) + len(start.prior))
    moved = start.with_update(integers * 2.0**-41, 3)
    monkeypatch.setattr(module, "_PART", 7)
    assert start.with_update(integers, 3, 2.0**-41).digest == moved.digest


def test_the_start_is_computed_once(make_study, monkeypatch):
    study = make_study(seed=4)
    first = SharedModel.start(study).encoder
    monkeypatch.setattr(module, "build_encoder", None)
    assert SharedModel.fresh(study).encoder is first


def test_a_model_s_own_memory_is_lent_for_reading(make_study):
    model = SharedModel.start(make_study())
    lent = model.view_encoder()
    assert all(np.shares_memory(one.detach().numpy(), model.encoder) for one in lent.parameters())
    assert not any(one.requires_grad for one in lent.parameters())
    np.testing.assert_array_equal(flatten(lent), model.encoder)
    before, copied = model.digest, copy.deepcopy(lent)
    with torch.no_grad():
        for one in copied.parameters():
            one.add_(1.0)
    assert model.digest == before
    with pytest.raises(ValueError, match="weights were expected"):
        view(lent, model.encoder[1:])


@pytest.mark.parametrize("at", [0, 6, 7, -1])
def test_a_value_that_is_not_finite_is_found_in_every_part(make_study, monkeypatch, at):
    start = SharedModel.start(make_study())
    monkeypatch.setattr(module, "_PART", 7)
    encoder = start.encoder.copy()
    encoder[at] = np.inf
    with pytest.raises(ModelFileError, match="not finite"):
        replace(start, encoder=encoder)


def test_a_sealed_step_goes_against_the_gradient_and_no_weight_further_than_it_may(make_study):
    study = make_study()
    start, most = SharedModel.start(study), study.encoder.max_update
    gradient = np.zeros(plan(study).release(1, "encoder").values)
    gradient[:4] = [9.0, -9.0, 0.25, -0.25]
    moved = start.with_step(gradient * most, 0.5, 1)
    change = (moved.encoder.astype(np.float64) - start.encoder)[:4] / most
    np.testing.assert_allclose(change, [-1.0, 1.0, -0.125, 0.125], atol=1e-3)


def test_prediction_is_the_own_domains_logistic_head_on_the_feature(make_study, make_records):
    study, records = make_study(), make_records(12)
    heads = np.random.default_rng(1).normal(size=(3, 5))
    model = SharedModel.start(study).with_heads(heads, 2)
    with torch.no_grad():
        phi = build_encoder(study.model, study.data, stochastic=False)(torch.tensor(records.inputs)).numpy()
    own = heads[records.domains]
    expected = expit((phi * own[:, :4]).sum(1) + own[:, 4])
    found = model.predict(records.inputs, records.domains)
    np.testing.assert_allclose(found[:, 1], expected, atol=1e-6)
    np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-15)
    assert model.predict(records.inputs[:0], records.domains[:0]).shape == (0, 2)
    assert model.features(records.inputs).shape == (12, 4)


def test_prediction_of_many_classes_is_the_softmax_of_their_rows(make_study, make_records, monkeypatch):
    study, records = make_study(classes=3), make_records(12, classes=3)
    heads = np.random.default_rng(1).normal(size=(3, 15))
    model = SharedModel.start(study).with_heads(heads, 2)
    phi = model.features(records.inputs).numpy().astype(float)
    found = model.predict(records.inputs, records.domains)
    for i, row in enumerate(heads[records.domains].reshape(12, 3, 5)):
        np.testing.assert_allclose(found[i], softmax(row[:, :4] @ phi[i] + row[:, 4]), atol=1e-12)
    monkeypatch.setattr(module, "_CHUNK", 60)
    np.testing.assert_array_equal(model.predict(records.inputs, records.domains), found)
    assert model.predict(records.inputs[:0], records.domains[:0]).shape == (0, 3)
    again = SharedModel.from_bytes(model.to_bytes())
    assert again.digest == model.digest
    with pytest.raises(ModelFileError, match="not those of its study"):
        model.with_heads(heads[:, :5], 3)


@pytest.mark.parametrize("classes", [2, 3])
def test_a_prediction_is_the_mean_over_the_draws_of_the_study(make_study, make_records, monkeypatch, classes):
    study = make_study(cmi=0.1, samples=5, skip=True, classes=classes)
    records, rng = make_records(12, classes=classes), np.random.default_rng(1)
    model = SharedModel.start(study).with_heads(rng.normal(0, 3, (3, shapes.head_width(study))), 2)
    encoder = model.build_encoder()
    with torch.no_grad():
        x = torch.tensor(records.inputs)
        mean, deviation = encoder.moments(x)
        read = [encoder.read(mean + deviation * torch.from_numpy(one), x) for one in public_draws(7, 5, 4)]
    expected = np.mean([model.probabilities(one, records.domains) for one in read], axis=0)
    found = model.predict(records.inputs, records.domains)
    np.testing.assert_allclose(found, expected, atol=1e-7)
    at_the_mean = model.probabilities(model.features(records.inputs), records.domains)
    assert np.abs(found - at_the_mean).max() > 1e-3
    monkeypatch.setattr(encoders, "_MAP_VALUES", 5 * encoder.width * 2)
    assert encoders.most_rows(encoder) == 2
    np.testing.assert_allclose(model.predict(records.inputs, records.domains), found, atol=1e-7)
    assert model.predict(records.inputs[:0], records.domains[:0]).shape == (0, classes)


@pytest.mark.parametrize("classes", [2, 3])
def test_images_are_read_beside_the_features_or_alone(make_study, make_records, classes):
    for inputs in (0, 5):
        study = make_study(inputs=inputs, image=8, classes=classes, encoder="cnn", channels=(4,))
        records = make_records(12, inputs=max(inputs, 1), image=8, classes=classes)
        x = records.inputs[:, :inputs]
        model = SharedModel.start(study).with_heads(
            np.random.default_rng(1).normal(size=(3, shapes.head_width(study))), 1
        )
        phi = model.features(x, records.images)
        with torch.no_grad():
            own = model.build_encoder()(torch.tensor(x), torch.tensor(records.images.take(slice(None))))
        torch.testing.assert_close(phi, own)
        found = model.predict(x, records.domains, records.images)
        assert found.shape == (12, classes)
        others = make_records(12, seed=1, image=8).images
        assert np.abs(model.predict(x, records.domains, others) - found).max() > 1e-3
        with pytest.raises(ValueError, match="images"):
            model.predict(x, records.domains)


@pytest.mark.parametrize("cmi", [0.0, 0.1])
def test_a_saved_model_comes_back_in_equal_bits(make_study, tmp_path, cmi):
    study = make_study(cmi=cmi)
    model = SharedModel.start(study).with_heads(np.random.default_rng(1).normal(size=(3, 5)), 3)
    model.save(tmp_path / "model.safetensors")
    again = SharedModel.load(tmp_path / "model.safetensors")
    assert (again.digest, again.round, again.study) == (model.digest, 3, study)
    assert again.to_bytes() == model.to_bytes()
    np.testing.assert_array_equal(again.heads, model.heads)


@pytest.mark.parametrize("classes", [2, 4])
def test_the_evidence_of_the_hierarchical_solver_has_the_shape_of_the_heads_and_comes_back(
    make_study, tmp_path, classes
):
    study = make_study(classes=classes)
    study = study.model_copy(update={"heads": study.heads.model_copy(update={"solver": "hierarchical"})})
    start = SharedModel.start(study)
    row = study.head_row
    assert (
        start.gathered.own.heads.shape
        == start.heads.shape
        == (len(study.data.domains), (1 if classes == 2 else classes) * row)
    )
    assert start.gathered.frame.shape == (row, row)
    assert len(start.evidence) == len(start.gathered.to_array())
    start.save(tmp_path / "model.safetensors")
    assert SharedModel.load(tmp_path / "model.safetensors").digest == start.digest


def test_the_digest_binds_study_round_and_every_tensor(make_study):
    base = SharedModel.start(make_study(cmi=0.1))
    heads = base.heads.copy()
    heads[0, 0] = 1e-300
    total = np.zeros(len(base.encoder) + len(base.prior))
    first, last = total.copy(), total.copy()
    first[0], last[-1] = 1, 1
    others = [
        base.with_heads(base.heads, 1),
        base.with_heads(heads, 0),
        base.with_update(first, 1),
        base.with_update(last, 1),
        SharedModel.start(make_study(cmi=0.2)),
    ]
    assert len({base.digest, *(other.digest for other in others)}) == 6


def test_tensors_that_are_not_the_studys_are_refused(make_study, tmp_path):
    model = SharedModel.start(make_study())
    for heads in (np.zeros((2, 5)), np.full((3, 5), np.nan)):
        with pytest.raises(ModelFileError, match="not those of its study"):
            model.with_heads(heads, 1)
    blob = model.to_bytes()
    for damaged in (b"", blob[:-1], blob[:40], b"\xff" * 64, blob.replace(b"shared", b"sharex")):
        with pytest.raises(ModelFileError):
            SharedModel.from_bytes(damaged)
    with pytest.raises(ModelFileError, match="lacks a tensor"):
        SharedModel.from_bytes(files.encode("shared", make_study(), 1, {"heads": np.zeros((3, 5))}))
    with pytest.raises(ModelFileError, match="cannot be read") as caught:
        SharedModel.load(tmp_path / "absent")
    assert str(tmp_path) not in str(caught.value)


def test_it_cannot_be_changed_in_place_and_its_text_holds_no_weights(make_study):
    model = SharedModel.start(make_study())
    with pytest.raises(ValueError, match="read-only"):
        model.encoder[0] = 1
    assert repr(model) == f"SharedModel(round=0, digest={model.digest[:12]})"
    encoder = model.build_encoder()
    with torch.no_grad():
        next(encoder.parameters()).fill_(9)
    assert SharedModel.start(make_study()).digest == model.digest
