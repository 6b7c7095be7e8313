import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from policies.documents.study import Study
from policies.plan.families import form_of
from silo_agent.data.images import Images
from silo_agent.learning.alone.mixing import Mix, MixedModel
from silo_agent.learning.errors import ModelFileError
from silo_agent.learning.outcomes.links import logits_of
from silo_agent.learning.personal.unknown_domain import domain_shares, network_of, predict_ensemble, predict_pooled
from support.models import random_alone, random_model, random_personal, study_of

KINDS = ("linear mlp", "stochastic mlp of three classes", "binary mlp")


def drawn():
    """A study whose predictions are averaged over draws."""
    study = study_of("stochastic mlp of three classes")
    return Study.model_validate(study.model_dump() | {"model": study.model.model_dump() | {"samples": 6}})


def records(study, count=9):
    return np.random.default_rng(5).uniform(-1, 1, (count, study.data.inputs)).astype(np.float32)


def random_mix(study):
    mix = Mix(np.linspace(0.1, 0.9, len(study.data.domains)), np.zeros(form_of(study.data.label.count).logits))
    return MixedModel(random_model(study), random_alone(study), mix)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("make", [random_model, random_personal, random_alone, random_mix])
def test_the_ensemble_is_the_weighted_mean_of_what_every_head_says(kind, make):
    study = study_of(kind)
    model, x = make(study), records(study)
    count = len(study.data.domains)
    shares = np.arange(count) / np.arange(count).sum()
    by_head = [model.predict(x, np.full(len(x), m)) for m in range(count)]
    wanted = np.einsum("m,mnc->nc", shares, by_head)
    np.testing.assert_allclose(predict_ensemble(model, shares, x), wanted, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("make", [random_alone, random_mix])
def test_a_model_without_heads_has_the_mean_of_its_logits_in_place_of_one_head(kind, make):
    study = study_of(kind)
    model, x = make(study), records(study)
    count = len(study.data.domains)
    shares = np.arange(1, count + 1) / np.arange(1, count + 1).sum()
    logits = [logits_of(model.predict(x, np.full(len(x), m)), model.family) for m in range(count)]
    wanted = model.family.probabilities(np.einsum("m,mnr->nr", shares, logits))
    np.testing.assert_allclose(predict_pooled(model, shares, x), wanted, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("make", [random_model, random_personal, random_alone, random_mix])
def test_with_one_share_of_1_all_ways_are_that_head(kind, make):
    study = study_of(kind)
    model, x = make(study), records(study)
    shares = np.zeros(len(study.data.domains))
    shares[1] = 1.0
    own = model.predict(x, np.ones(len(x), np.int64))
    for way in (predict_ensemble, predict_pooled):
        np.testing.assert_allclose(way(model, shares, x), own, atol=1e-6)


@pytest.mark.parametrize("make", [random_model, random_personal])
def test_every_way_averages_over_the_draws_as_the_model_does(make):
    study = drawn()
    model, x = make(study), records(study)
    shares = np.zeros(len(study.data.domains))
    shares[1] = 1.0
    own = model.predict(x, np.ones(len(x), np.int64))
    for way in (predict_ensemble, predict_pooled):
        np.testing.assert_allclose(way(model, shares, x), own, atol=1e-6)


def test_the_pooled_head_is_the_mean_of_the_heads_and_not_of_their_predictions():
    study = study_of("linear mlp")
    model, x, shares = random_model(study), records(study), np.array([0.25, 0.75])
    head = 0.25 * model.heads[0] + 0.75 * model.heads[1]
    logits = model.features(x).numpy().astype(np.float64) @ head[:-1] + head[-1]
    found = predict_pooled(model, shares, x)
    np.testing.assert_allclose(found[:, 1], 1 / (1 + np.exp(-logits)), atol=1e-12)
    assert np.abs(found - predict_ensemble(model, shares, x)).max() > 1e-3


def test_images_pass_through_the_encoder():
    study = study_of("cnn")
    model = random_model(study)
    images = Images(np.random.default_rng(1).integers(0, 256, (3, 3, 24, 24)).astype(np.uint8))
    x = np.zeros((3, 0), np.float32)
    own = model.predict(x, np.zeros(3, np.int64), images)
    np.testing.assert_allclose(predict_ensemble(model, np.array([1.0, 0.0]), x, images), own, atol=1e-12)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=6))
def test_shares_are_shares(tmp_path_factory, counts):
    folder = tmp_path_factory.getbasetemp()
    (folder / "counts.json").write_text(json.dumps(counts))
    shares, counted = domain_shares(folder, len(counts))
    assert shares.min() >= 0
    assert shares.sum() == pytest.approx(1)
    assert counted == (max(counts) > 0)
    if counted:
        assert all(share == 0 for share, count in zip(shares, counts, strict=True) if count <= 0)
    else:
        assert len(set(shares)) == 1


def test_without_counts_all_domains_count_alike(tmp_path):
    shares, counted = domain_shares(tmp_path, 4)
    assert shares.tolist() == [0.25] * 4
    assert not counted


@pytest.mark.parametrize("content", ["", "[1, 2, 3]", "[1, null]", '["a", "b"]', "[1, NaN]", "{}", "[[1, 2]]"])
def test_counts_of_another_study_are_refused(tmp_path, content):
    (tmp_path / "counts.json").write_text(content)
    with pytest.raises(ModelFileError, match=r"counts\.json is damaged or belongs to another study"):
        domain_shares(tmp_path, 2)


def test_the_heads_of_both_kinds_of_model_are_given_alike():
    study = study_of("linear mlp")
    for model in (random_model(study), random_personal(study)):
        encoder, heads = network_of(model)
        assert heads.shape == (2, 3)
        assert heads.dtype == np.float64
        assert encoder.representation == 2


@pytest.mark.parametrize("make", [random_model, random_personal])
def test_what_is_done_to_the_encoder_does_not_reach_the_model(make):
    study = study_of("linear mlp")
    model, x = make(study), records(study)
    before = model.predict(x, np.zeros(len(x), np.int64))
    encoder, _ = network_of(model)
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.zero_()
    np.testing.assert_array_equal(model.predict(x, np.zeros(len(x), np.int64)), before)
