import hashlib

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from policies.documents.study import Image, Model
from policies.plan import architectures
from silo_agent.learning.encoder.image_networks import build_image_network, start


def image(channels=1, height=16, width=16):
    return Image(column="scan", channels=channels, height=height, width=width)


def model(encoder="cnn", channels=(4, 8), seed=7):
    return Model(encoder=encoder, channels=channels, seed=seed)


def started(model_, image_):
    network = build_image_network(model_, image_)
    start(network, np.random.PCG64(model_.seed))
    return network


def flat(network):
    return np.concatenate([p.detach().numpy().ravel() for p in network.parameters()])


def pixels(image_, count=3, seed=0):
    r = np.random.default_rng(seed)
    return torch.tensor(r.uniform(-1, 1, (count, image_.channels, image_.height, image_.width)), dtype=torch.float32)


def assert_public_size(model_, image_):
    network = build_image_network(model_, image_)
    assert sum(p.numel() for p in network.parameters()) == architectures.weights(model_, image_)
    assert not flat(network).any()
    with torch.no_grad():
        for count in (0, 1, 2):
            out = network(pixels(image_, count))
            assert out.shape == (count, architectures.features(model_, image_))


@given(
    st.lists(st.integers(4, 70), min_size=1, max_size=3).map(tuple),
    st.sampled_from([1, 3]),
    st.integers(8, 40),
    st.integers(8, 40),
)
@settings(max_examples=30, deadline=None)
def test_a_cnn_has_its_public_size(channels, depth, height, width):
    assert_public_size(model(channels=channels), image(depth, height, width))


@pytest.mark.parametrize(("depth", "height", "width"), [(1, 8, 8), (3, 16, 16), (1, 33, 17), (3, 64, 48)])
def test_resnet18_has_its_public_size(depth, height, width):
    assert_public_size(model("resnet18"), image(depth, height, width))


def test_no_other_network_can_be_asked_for():
    with pytest.raises(ValueError, match="mlp reads no images"):
        build_image_network(Model(seed=1), image())


@pytest.mark.parametrize(("encoder", "digest"), [("cnn", "410ce12540a9c8f7"), ("resnet18", "08b74dd6f51c8e00")])
def test_the_start_is_a_pure_function_of_the_public_seed(encoder, digest):
    torch.manual_seed(1)
    first = flat(started(model(encoder), image()))
    torch.manual_seed(2)
    assert np.array_equal(first, flat(started(model(encoder), image())))
    assert not np.array_equal(first, flat(started(model(encoder, seed=8), image())))
    found = hashlib.sha256(first.astype("<f4").tobytes()).hexdigest()
    assert found.startswith(digest), "every silo of every platform must start from these bits"


@pytest.mark.parametrize("encoder", ["cnn", "resnet18"])
def test_convolutions_start_with_variance_two_by_fan_in_and_norms_as_nothing(encoder):
    network = started(model(encoder, channels=(32, 64)), image())
    for layer in network.modules():
        if isinstance(layer, nn.GroupNorm):
            assert layer.weight.eq(1).all()
            assert layer.bias.eq(0).all()
        if isinstance(layer, nn.Conv2d):
            weight = layer.weight.detach().double()
            fan_in = weight[0].numel()
            assert layer.bias is None or layer.bias.eq(0).all()
            assert weight.abs().max() <= np.sqrt(6 / fan_in)
            few = 6 / np.sqrt(weight.numel())
            assert abs(weight.mean()) <= few / np.sqrt(fan_in)
            assert abs(weight.var() * fan_in / 2 - 1) <= few


@pytest.mark.parametrize("encoder", ["cnn", "resnet18"])
def test_features_at_the_start_are_of_the_size_of_a_records_inputs_and_tell_images_apart(encoder):
    shape = image(height=32, width=32)
    network = started(model(encoder, channels=(16, 32)), shape)
    with torch.no_grad():
        out = network(pixels(shape, 8))
    assert 0.3 < out.square().mean().sqrt() < 2
    assert (out - out.mean(dim=0)).square().mean().sqrt() > 0.1
    if encoder == "cnn":
        assert out.abs().max() <= 1


def test_an_image_goes_through_whoever_else_is_in_the_batch():
    shape = image(3)
    for encoder in ("cnn", "resnet18"):
        network = started(model(encoder), shape)
        batch = pixels(shape, 5)
        with torch.no_grad():
            torch.testing.assert_close(network(batch)[2:3], network(batch[2:3]), atol=1e-5, rtol=1e-4)


def test_resnet18_is_the_papers_network_layer_by_layer():
    network = build_image_network(model("resnet18"), image(3))
    shapes = [tuple(layer.weight.shape) for layer in network.modules() if isinstance(layer, nn.Conv2d)]
    assert shapes[0] == (64, 3, 7, 7)
    assert [s for s in shapes if s[2] == 1] == [(128, 64, 1, 1), (256, 128, 1, 1), (512, 256, 1, 1)]
    assert sum(s[2] == 3 for s in shapes) == 16
    sizes = []
    for layer in network:
        layer.register_forward_hook(lambda _, __, out: sizes.append(tuple(out.shape[1:])))
    with torch.no_grad():
        network(pixels(image(3, 64, 64), 1))
    stages = [(64, 16, 16)] * 2 + [(128, 8, 8)] * 2 + [(256, 4, 4)] * 2 + [(512, 2, 2)] * 2
    assert sizes == [(64, 32, 32)] * 3 + [(64, 16, 16), *stages, (512, 1, 1), (512,)]


@pytest.mark.parametrize(("encoder", "height", "width"), [("cnn", 17, 31), ("resnet18", 17, 31), ("resnet18", 40, 8)])
def test_the_widest_map_is_the_widest_map(encoder, height, width):
    shape = image(3, height, width)
    model_ = model(encoder, channels=(4, 40, 8))
    network = build_image_network(model_, shape)
    sizes = [3 * height * width]
    for layer in network.modules():
        if not list(layer.children()):
            layer.register_forward_hook(lambda _, __, out: sizes.append(out[0].numel()))
    with torch.no_grad():
        network(pixels(shape, 1))
    assert architectures.widest(model_, shape) == max(sizes)


@pytest.mark.parametrize(
    ("channels", "groups"), [(4, 1), (7, 1), (16, 4), (17, 1), (20, 5), (64, 16), (128, 32), (512, 32)]
)
def test_groups_divide_the_channels_and_have_four_of_them_at_least(channels, groups):
    norm = next(
        layer for layer in build_image_network(model(channels=(channels,)), image()) if isinstance(layer, nn.GroupNorm)
    )
    assert norm.num_groups == groups
