"""The image networks that a study may name: a small cnn, and ResNet-18 (He et al. 2016). No other can be asked for.

Guarantees: per-sample gradients can be taken of the networks. For that they use GroupNorm, since BatchNorm mixes
patients, and no operation in place. Their sizes are the public ones of `policies.plan.architectures`. Their start is
the same bit for bit on every platform. `encoder` has the layers after the features.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import torch
from torch import nn

from policies.documents.study import Image, Model
from policies.plan.architectures import RESNET_CHANNELS, STEM_STRIDE

_MOST_GROUPS = 32
_CHANNELS_PER_GROUP = 4


def build_image_network(model: Model, image: Image) -> nn.Module:
    """The network of `model.encoder`: images (b, c, h, w) in [-1, 1] to (b, architectures.features). All weights are 0.

    Raises ValueError for an encoder that reads no images.
    """
    # The meta device has no storage, so torch does not draw a random start that nobody uses.
    with torch.device("meta"):
        if model.encoder == "cnn":
            network: nn.Module = _cnn(image.channels, model.channels)
        elif model.encoder == "resnet18":
            network = _resnet18(image.channels)
        else:
            msg = f"encoder {model.encoder} reads no images"
            raise ValueError(msg)
    network = network.to_empty(device="cpu")
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.zero_()
    return network


def start(network: nn.Module, generator: np.random.PCG64) -> None:
    """Give an image network its public start, in place.

    Convolutions are drawn uniformly with variance 2 / fan-in (He et al. 2015). Norms start at scale 1 and shift 0,
    biases at 0. All operations are elementwise in float64, so that every silo starts from the same digest.
    """
    with torch.no_grad():
        for layer in network.modules():
            if isinstance(layer, nn.Conv2d):
                bound = math.sqrt(6.0 / layer.weight[0].numel())
                raw = generator.random_raw(layer.weight.numel()).reshape(tuple(layer.weight.shape))
                drawn = ((raw >> np.uint64(11)).astype(np.float64) * 2.0**-52 - 1.0) * bound
                layer.weight.copy_(torch.from_numpy(drawn.astype(np.float32)))
            elif isinstance(layer, nn.GroupNorm):
                layer.weight.fill_(1.0)


def _cnn(channels: int, widths: tuple[int, ...]) -> nn.Sequential:
    """For each width: convolution 3x3, GroupNorm, Tanh, and a max pooling that halves the map. Flattened at the end.

    Tanh bounds the values that enter a patient's gradient, and is known to learn better than ReLU under DP-SGD
    (Papernot et al. 2021). Its features also have the size of the records' inputs, which lie in [-1, 1].
    """
    layers: list[nn.Module] = []
    for before, width in pairwise((channels, *widths)):
        layers += [nn.Conv2d(before, width, 3, padding=1), _norm(width), nn.Tanh(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten())


def _resnet18(channels: int) -> nn.Sequential:
    first = RESNET_CHANNELS[0]
    layers: list[nn.Module] = [
        nn.Conv2d(channels, first, 7, stride=STEM_STRIDE, padding=3, bias=False),
        _norm(first),
        nn.ReLU(),
        nn.MaxPool2d(3, stride=2, padding=1),
    ]
    for before, width in pairwise((first, *RESNET_CHANNELS)):
        layers += [_Block(before, width), _Block(width, width)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())


class _Block(nn.Module):
    """A basic block: two convolutions 3x3 beside a shortcut. If the width changes, the shortcut is projected."""

    def __init__(self, before: int, width: int) -> None:
        super().__init__()
        stride = 1 if before == width else 2
        self.path = nn.Sequential(
            nn.Conv2d(before, width, 3, stride=stride, padding=1, bias=False),
            _norm(width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            _norm(width),
        )
        self.shortcut: nn.Module = nn.Identity()
        if before != width:
            self.shortcut = nn.Sequential(nn.Conv2d(before, width, 1, stride=stride, bias=False), _norm(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.path(x) + self.shortcut(x))


def _norm(channels: int) -> nn.GroupNorm:
    """GroupNorm with the most groups that divide the channels: at most 32 groups, of at least four channels each.

    In a group of one channel, the norm removes the convolution's bias, and with it how strongly the channel answers to
    the whole image. Such a bias would learn nothing, and would still be noised.
    """
    most = min(_MOST_GROUPS, channels // _CHANNELS_PER_GROUP)
    return nn.GroupNorm(max(groups for groups in range(1, most + 1) if channels % groups == 0), channels)
