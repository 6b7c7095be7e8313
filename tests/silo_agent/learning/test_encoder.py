import hashlib

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from policies import shapes
from policies.study import Model
from silo_agent.learning.encoder import Encoder, _orthogonal, build_encoder, features, flatten, unflatten


def model(**changes):
    return Model(**({"hidden": (8,), "representation": 4, "seed": 7} | changes))


@given(st.integers(0, 2**32 - 1), st.floats(0.01, 1e6), st.booleans())
@settings(max_examples=40)
def test_no_input_and_no_weights_give_a_feature_longer_than_one(seed, scale, stochastic):
    encoder = build_encoder(model(gain=scale), 5, stochastic=stochastic)
    x = torch.randn(20, 5, generator=torch.Generator().manual_seed(seed)) * scale
    with torch.no_grad():
        norms = encoder(x).norm(dim=1)
    assert norms.max() <= 1 + 1e-6


def test_the_start_is_orthogonal_and_scaled_by_the_gain():
    encoder = build_encoder(model(gain=3.0, hidden=(6, 10)), 5, stochastic=False)
    weights = [layer.weight.detach().double() for layer in encoder.layers if hasattr(layer, "weight")]
    assert [tuple(w.shape) for w in weights] == [(6, 5), (10, 6), (4, 10)]
    for w, gain in zip(weights, (1, 1, 3), strict=True):
        gram = w.T @ w if w.shape[0] > w.shape[1] else w @ w.T
        torch.testing.assert_close(gram, gain**2 * torch.eye(len(gram), dtype=torch.float64), atol=1e-5, rtol=0)
    assert all(not layer.bias.any() for layer in encoder.layers if hasattr(layer, "bias"))


def test_the_start_is_a_pure_function_of_the_public_seed():
    torch.manual_seed(1)
    first = flatten(build_encoder(model(), 22, stochastic=True))
    torch.manual_seed(2)
    assert np.array_equal(first, flatten(build_encoder(model(), 22, stochastic=True)))
    assert not np.array_equal(first, flatten(build_encoder(model(seed=8), 22, stochastic=True)))
    digest = hashlib.sha256(first.astype("<f4").tobytes()).hexdigest()
    assert digest.startswith("e9dd93435973a8a6"), "every silo of every platform must start from these bits"


@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (7, 1), (33, 20), (20, 33)])
def test_gram_schmidt_is_orthogonal_for_every_shape(shape):
    q = _orthogonal(np.random.PCG64(3), *shape)
    gram = q @ q.T if shape[0] <= shape[1] else q.T @ q
    np.testing.assert_allclose(gram, np.eye(len(gram)), atol=1e-10)


@pytest.mark.parametrize("cmi", [0.0, 0.1])
def test_flatten_and_unflatten_are_inverse_and_have_the_public_size(make_study, cmi):
    study = make_study(cmi=cmi)
    encoder = Encoder(study.model, study.data.inputs, stochastic=cmi > 0)
    assert not flatten(encoder).any()
    vector = np.random.default_rng(0).normal(size=shapes.encoder_values(study)).astype(np.float32)
    unflatten(encoder, vector)
    assert np.array_equal(flatten(encoder), vector)
    assert flatten(encoder).dtype == np.float32
    with pytest.raises(ValueError, match="weights were expected"):
        unflatten(encoder, vector[1:])


def test_a_stochastic_encoder_has_a_mean_and_a_positive_deviation_and_is_used_at_its_mean():
    encoder = build_encoder(model(), 5, stochastic=True)
    with torch.no_grad():
        encoder.layers[-1].bias[4:] = -1e4
    x = torch.randn(9, 5)
    mean, deviation = encoder.moments(x)
    assert mean.shape == deviation.shape == (9, 4)
    assert deviation.min() > 0
    torch.testing.assert_close(encoder(x), torch.tanh(mean) / 2)


def test_features_of_many_rows_and_of_none(monkeypatch):
    encoder = build_encoder(model(), 5, stochastic=False)
    inputs = np.random.default_rng(0).normal(size=(7, 5)).astype(np.float32)
    whole = features(encoder, inputs)
    monkeypatch.setattr("silo_agent.learning.encoder._CHUNK", 3)
    torch.testing.assert_close(features(encoder, inputs), whole)
    assert features(encoder, inputs[:0]).shape == (0, 4)
    assert not whole.requires_grad


def test_an_encoder_without_hidden_layers_is_linear_before_the_squashing():
    encoder = build_encoder(model(hidden=()), 5, stochastic=False)
    x = torch.randn(3, 5)
    torch.testing.assert_close(encoder(x), torch.tanh(x @ encoder.layers[0].weight.T) / 2)
