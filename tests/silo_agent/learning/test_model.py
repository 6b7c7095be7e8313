import numpy as np
import pytest
import torch
from scipy.special import expit

from policies import shapes
from silo_agent.learning import files
from silo_agent.learning.encoder import build_encoder, flatten
from silo_agent.learning.errors import ModelFileError
from silo_agent.learning.model import SharedModel


@pytest.mark.parametrize(("cmi", "prior"), [(0.0, "averaged"), (0.1, "averaged"), (0.1, "local")])
def test_the_start_is_common_and_a_step_is_the_uniform_mean(make_study, cmi, prior):
    study = make_study(cmi=cmi, prior=prior)
    start = SharedModel.start(study)
    assert start.digest == SharedModel.start(study).digest
    assert not start.heads.any()
    size = shapes.values(study, 1, "encoder")
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


def test_prediction_is_the_own_domains_logistic_head_on_the_feature(make_study, make_records):
    study, records = make_study(), make_records(12)
    heads = np.random.default_rng(1).normal(size=(3, 5))
    model = SharedModel.start(study).with_heads(heads, 2)
    with torch.no_grad():
        phi = build_encoder(study.model, 5, stochastic=False)(torch.tensor(records.inputs)).numpy()
    own = heads[records.domains]
    expected = expit((phi * own[:, :4]).sum(1) + own[:, 4])
    np.testing.assert_allclose(model.predict(records.inputs, records.domains), expected, atol=1e-6)
    assert model.predict(records.inputs[:0], records.domains[:0]).shape == (0,)
    assert model.features(records.inputs).shape == (12, 4)


@pytest.mark.parametrize("cmi", [0.0, 0.1])
def test_a_saved_model_comes_back_in_equal_bits(make_study, tmp_path, cmi):
    study = make_study(cmi=cmi)
    model = SharedModel.start(study).with_heads(np.random.default_rng(1).normal(size=(3, 5)), 3)
    model.save(tmp_path / "model.safetensors")
    again = SharedModel.load(tmp_path / "model.safetensors")
    assert (again.digest, again.round, again.study) == (model.digest, 3, study)
    assert again.to_bytes() == model.to_bytes()
    np.testing.assert_array_equal(again.heads, model.heads)


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
