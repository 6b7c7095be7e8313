from __future__ import annotations

import pytest

from policies.documents.study import Image, Model
from policies.plan.architectures import features, weights


def image(channels: int, height: int, width: int) -> Image:
    return Image(column="scan", channels=channels, height=height, width=width)


def cnn(*channels: int) -> Model:
    return Model(encoder="cnn", channels=channels, seed=1)


RESNET = Model(encoder="resnet18", seed=1)


def test_a_cnn_by_hand():
    # 3x3 kernels and biases, then a scale and a shift per channel.
    first, second = 1 * 16 * 9 + 16 + 2 * 16, 16 * 32 * 9 + 32 + 2 * 32
    assert weights(cnn(16), image(1, 28, 28)) == first
    assert weights(cnn(16, 32), image(1, 28, 28)) == first + second
    assert weights(cnn(16, 32), image(3, 28, 28)) == first + second + 2 * 16 * 9


@pytest.mark.parametrize(
    ("height", "width", "channels", "expected"),
    [(28, 28, (16, 32), 32 * 7 * 7), (9, 31, (4,), 4 * 4 * 15), (15, 8, (4, 4, 8), 8 * 1 * 1)],
)
def test_every_layer_of_a_cnn_halves_the_map_and_drops_what_is_odd(height, width, channels, expected):
    assert features(cnn(*channels), image(1, height, width)) == expected


def test_a_cnns_weights_do_not_depend_on_the_size_of_the_image():
    assert weights(cnn(8, 8), image(1, 16, 16)) == weights(cnn(8, 8), image(1, 512, 300))


def test_resnet18_has_the_papers_weights_without_its_classifier():
    # 11,689,512 of the network on ImageNet (He et al. 2016), less 512 x 1000 + 1000 of the last layer.
    assert weights(RESNET, image(3, 224, 224)) == 11_689_512 - 513_000
    assert weights(RESNET, image(1, 224, 224)) == 11_689_512 - 513_000 - 2 * 64 * 49
    assert features(RESNET, image(1, 16, 40)) == 512
