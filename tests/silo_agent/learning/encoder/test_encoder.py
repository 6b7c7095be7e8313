import hashlib
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from opacus.grad_sample import GradSampleModule

from policies.documents.study import DataSchema, DomainColumn, Image, Label, Model, NumericFeature
from policies.plan import shapes
from silo_agent.data.images import Images
from silo_agent.learning.encoder.encoder import Encoder, build_encoder, features, flatten, unflatten


def model(**changes):
    return Model(**({"hidden": (8,), "representation": 4, "seed": 7} | changes))


def data(inputs=5, image=None):
    return DataSchema(
        label=Label(column="y", positive=(1,), negative=(0,)),
        domain=(DomainColumn(column="d", values=(0,), names=("all",)),),
        features=tuple(NumericFeature(column=f"x{i}", kind="number", minimum=-1, maximum=1) for i in range(inputs)),
        image=image,
    )


SCAN = Image(column="scan", channels=3, height=16, width=16)
NETWORKS = {"cnn": {"encoder": "cnn", "channels": (4, 8)}, "resnet18": {"encoder": "resnet18"}}


def batch(count, inputs=2, seed=0):
    """Inputs and images of a few records, as data files give them."""
    r = np.random.default_rng(seed)
    levels = r.integers(0, 256, (count, SCAN.channels, SCAN.height, SCAN.width), np.uint8)
    return r.uniform(-1, 1, (count, inputs)).astype(np.float32), Images(levels)


def tensors(x, images):
    return torch.from_numpy(x), torch.from_numpy(images.take(slice(None)))


@given(st.integers(0, 2**32 - 1), st.floats(0.01, 1e6), st.booleans())
@settings(max_examples=40)
def test_no_input_and_no_weights_give_a_feature_longer_than_one(seed, scale, stochastic):
    encoder = build_encoder(model(), data(), stochastic=stochastic)
    # Noise may enlarge weights beyond any gain that a study may ask for.
    unflatten(encoder, flatten(encoder) * np.float32(scale))
    x = torch.randn(20, 5, generator=torch.Generator().manual_seed(seed)) * scale
    with torch.no_grad():
        norms = encoder(x).norm(dim=1)
    assert norms.max() <= 1 + 1e-6


def test_the_start_is_orthogonal_and_scaled_by_the_gain():
    encoder = build_encoder(model(gain=3.0, hidden=(6, 10)), data(), stochastic=False)
    weights = [layer.weight.detach().double() for layer in encoder.layers if hasattr(layer, "weight")]
    assert [tuple(w.shape) for w in weights] == [(6, 5), (10, 6), (4, 10)]
    for w, gain in zip(weights, (1, 1, 3), strict=True):
        gram = w.T @ w if w.shape[0] > w.shape[1] else w @ w.T
        torch.testing.assert_close(gram, gain**2 * torch.eye(len(gram), dtype=torch.float64), atol=1e-5, rtol=0)
    assert all(not layer.bias.any() for layer in encoder.layers if hasattr(layer, "bias"))


@pytest.mark.parametrize(("start", "digest"), [("gram-schmidt", "e9dd93435973a8a6"), ("hadamard", "7bc3f00bc881b724")])
def test_the_start_is_a_pure_function_of_the_public_seed(start, digest):
    torch.manual_seed(1)
    first = flatten(build_encoder(model(start=start), data(22), stochastic=True))
    torch.manual_seed(2)
    assert np.array_equal(first, flatten(build_encoder(model(start=start), data(22), stochastic=True)))
    assert not np.array_equal(first, flatten(build_encoder(model(start=start, seed=8), data(22), stochastic=True)))
    found = hashlib.sha256(first.astype("<f4").tobytes()).hexdigest()
    assert found.startswith(digest), "every silo of every platform must start from these bits"


@pytest.mark.parametrize("cmi", [0.0, 0.1])
def test_flatten_and_unflatten_are_inverse_and_have_the_public_size(make_study, cmi):
    study = make_study(cmi=cmi)
    encoder = Encoder(study.model, study.data, stochastic=cmi > 0)
    assert not flatten(encoder).any()
    vector = np.random.default_rng(0).normal(size=shapes.encoder_values(study)).astype(np.float32)
    unflatten(encoder, vector)
    assert np.array_equal(flatten(encoder), vector)
    assert flatten(encoder).dtype == np.float32
    with pytest.raises(ValueError, match="weights were expected"):
        unflatten(encoder, vector[1:])


def test_a_stochastic_encoder_has_a_mean_and_a_positive_deviation_and_is_used_at_its_mean():
    encoder = build_encoder(model(), data(), stochastic=True)
    with torch.no_grad():
        encoder.layers[-1].bias[4:] = -1e4
    x = torch.randn(9, 5)
    mean, deviation = encoder.moments(x)
    assert mean.shape == deviation.shape == (9, 4)
    assert deviation.min() > 0
    torch.testing.assert_close(encoder(x), torch.tanh(mean) / 2)


@pytest.mark.parametrize("beside", [{}, {"skip": True}, {"skip": True, "random_features": 3}])
def test_heads_read_the_representation_and_then_what_stands_beside_it(beside):
    """Also of each draw that a prediction is averaged over."""
    encoder = build_encoder(model(samples=4, **beside), data(), stochastic=True)
    x = torch.rand(6, 5, generator=torch.Generator().manual_seed(0)) * 2 - 1
    with torch.no_grad():
        mean, deviation = encoder.moments(x)
        own, read, drawn = encoder.beside(x), encoder(x), encoder.to_predict(x)
        assert own.shape == (6, encoder.width - 4)
        torch.testing.assert_close(read, torch.cat([torch.tanh(mean) / 2, own], dim=1))
        torch.testing.assert_close(encoder.layered(x)[0], read)
        assert drawn.shape == (6, 4, encoder.width)
        for number, normal in enumerate(encoder.draws):
            torch.testing.assert_close(drawn[:, number, :4], torch.tanh(mean + deviation * normal) / 2)
            torch.testing.assert_close(drawn[:, number, 4:], own)


def test_features_of_many_rows_and_of_none(monkeypatch):
    encoder = build_encoder(model(), data(), stochastic=False)
    inputs = np.random.default_rng(0).normal(size=(7, 5)).astype(np.float32)
    whole = features(encoder, inputs)
    monkeypatch.setattr("silo_agent.learning.encoder.encoder._ROWS", 3)
    torch.testing.assert_close(features(encoder, inputs), whole)
    assert features(encoder, inputs[:0]).shape == (0, 4)
    assert not whole.requires_grad


def test_first_biases_are_those_of_hidden_layers_and_leave_the_weights_as_they_are_in_the_first():
    plain, biased = (build_encoder(model(first_biases=b), data(), stochastic=False) for b in (0.0, 2.0))
    assert torch.equal(plain.layers[0].weight, biased.layers[0].weight)
    assert not plain.layers[0].bias.any()
    assert 1.0 < biased.layers[0].bias.abs().max() <= 2.0
    assert not biased.layers[2].bias.any()


def test_an_encoder_without_hidden_layers_is_linear_before_the_squashing():
    encoder = build_encoder(model(hidden=()), data(), stochastic=False)
    x = torch.randn(3, 5)
    torch.testing.assert_close(encoder(x), torch.tanh(x @ encoder.layers[0].weight.T) / 2)


@pytest.mark.parametrize("network", sorted(NETWORKS))
@pytest.mark.parametrize("inputs", [0, 2])
@pytest.mark.parametrize("cmi", [0.0, 0.1])
def test_with_images_the_size_is_the_public_one_and_flatten_is_invertible(make_study, network, inputs, cmi):
    study = make_study(cmi=cmi)
    study = study.model_copy(update={"data": data(inputs, SCAN), "model": model(**NETWORKS[network])})
    encoder = Encoder(study.model, study.data, stochastic=cmi > 0)
    assert not flatten(encoder).any()
    assert len(flatten(encoder)) == shapes.encoder_values(study)
    start = flatten(build_encoder(study.model, study.data, stochastic=cmi > 0))
    unflatten(encoder, start)
    assert np.array_equal(flatten(encoder), start)
    x, images = tensors(*batch(3, inputs))
    assert encoder(x, images).shape == (3, 4)


@pytest.mark.parametrize(("network", "digest"), [("cnn", "c77f82579e1b8a8d"), ("resnet18", "8ed3aa92193c1133")])
def test_the_start_with_images_is_a_pure_function_of_the_public_seed(network, digest):
    torch.manual_seed(1)
    first = flatten(build_encoder(model(**NETWORKS[network]), data(2, SCAN), stochastic=True))
    torch.manual_seed(2)
    again = flatten(build_encoder(model(**NETWORKS[network]), data(2, SCAN), stochastic=True))
    other = flatten(build_encoder(model(seed=8, **NETWORKS[network]), data(2, SCAN), stochastic=True))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    found = hashlib.sha256(first.astype("<f4").tobytes()).hexdigest()
    assert found.startswith(digest), "every silo of every platform must start from these bits"


@pytest.mark.parametrize("hidden", [(8,), ()])
def test_image_and_record_start_with_orthogonal_weights_of_their_own(hidden):
    encoder = build_encoder(model(hidden=hidden, gain=2.0, **NETWORKS["cnn"]), data(2, SCAN), stochastic=False)
    gain = (2.0 if hidden == () else 1.0) / math.sqrt(2)
    record, image = encoder.layers[0].weight.detach().double().split([2, 8 * 4 * 4], dim=1)
    for gram in (record.T @ record, image @ image.T):
        torch.testing.assert_close(gram, gain**2 * torch.eye(len(gram), dtype=torch.float64), atol=1e-5, rtol=0)
    alone = build_encoder(model(hidden=hidden, gain=2.0, **NETWORKS["cnn"]), data(0, SCAN), stochastic=False)
    weight = alone.layers[0].weight.detach().double()
    torch.testing.assert_close(
        weight @ weight.T, 2 * gain**2 * torch.eye(len(weight), dtype=torch.float64), atol=1e-5, rtol=0
    )


@pytest.mark.parametrize("network", sorted(NETWORKS))
def test_both_the_image_and_the_record_reach_the_features(network):
    encoder = build_encoder(model(**NETWORKS[network]), data(2, SCAN), stochastic=False)
    x, images = tensors(*batch(2))
    with torch.no_grad():
        whole = encoder(x, images)
        assert (encoder(-x, images) - whole).abs().max() > 1e-2
        assert (encoder(x, -images) - whole).abs().max() > 1e-2
        assert whole.norm(dim=1).max() <= 1 + 1e-6


def test_images_are_given_where_the_study_has_them_and_only_there():
    x, images = tensors(*batch(2))
    with pytest.raises(ValueError, match="have images"):
        build_encoder(model(**NETWORKS["cnn"]), data(2, SCAN), stochastic=False)(x)
    with pytest.raises(ValueError, match="reads no images"):
        build_encoder(model(), data(2), stochastic=False)(x, images)


@pytest.mark.parametrize(("network", "count"), [("mlp", 6), ("cnn", 6), ("resnet18", 3)])
@pytest.mark.parametrize("inputs", [0, 2])
def test_opacus_gives_the_gradient_of_every_record_by_itself(network, count, inputs):
    """Oracle: one record at a time through torch's own gradients."""
    if network == "mlp":
        inputs, image, changes = inputs + 3, None, {}
    else:
        image, changes = SCAN, NETWORKS[network]
    encoder = build_encoder(model(**changes), data(inputs, image), stochastic=False).train()
    x, images = tensors(*batch(count, inputs))
    direction = torch.tensor([1.0, -2.0, 0.5, 3.0])

    def loss(rows):
        return (encoder(x[rows], images[rows] if image is not None else None) @ direction).square().sum()

    alone = []
    for i in range(count):
        encoder.zero_grad()
        loss(slice(i, i + 1)).backward()
        alone.append([parameter.grad.clone() for parameter in encoder.parameters()])
    encoder.zero_grad()
    hooked = GradSampleModule(encoder, loss_reduction="sum", strict=True)
    loss(slice(None)).backward()
    for place, (name, parameter) in enumerate(encoder.named_parameters()):
        expected = torch.stack([gradients[place] for gradients in alone])
        assert expected.flatten(1).norm(dim=1).min() > 0, name
        scale = expected.abs().max()
        torch.testing.assert_close(parameter.grad_sample / scale, expected / scale, atol=2e-4, rtol=0, msg=name)
    hooked.remove_hooks()


@pytest.mark.parametrize("network", sorted(NETWORKS))
def test_features_of_images_pass_in_chunks_that_bound_memory(network, monkeypatch):
    encoder = build_encoder(model(**NETWORKS[network]), data(2, SCAN), stochastic=False)
    x, images = batch(7)
    whole = features(encoder, x, images)
    with torch.no_grad():
        torch.testing.assert_close(whole, encoder(*tensors(x, images)))
    taken = []
    monkeypatch.setattr(Images, "take", lambda self, rows, take=Images.take: taken.append(rows) or take(self, rows))
    monkeypatch.setattr("silo_agent.learning.encoder.encoder._MAP_VALUES", 3 * encoder.largest_map + 1)
    torch.testing.assert_close(features(encoder, x, images), whole)
    assert [(rows.start, rows.stop) for rows in taken] == [(0, 3), (3, 6), (6, 9)]
    monkeypatch.setattr("silo_agent.learning.encoder.encoder._MAP_VALUES", 1)
    torch.testing.assert_close(features(encoder, x, images), whole)
    assert len(taken) == 3 + 7
    nobody = np.zeros(7, bool)
    assert features(encoder, x[nobody], images.subset(nobody)).shape == (0, 4)
