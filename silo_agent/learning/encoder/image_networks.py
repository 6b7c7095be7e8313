"""The image networks that a study may name: a small cnn, and ResNet-18 (He et al. 2016). No other can be asked for.

Guarantees networks that per-sample gradients can be taken of (GroupNorm, since BatchNorm mixes patients; nothing in
place), of the public sizes that `policies.plan.architectures` names, and a start that is the same bits on every
platform. What follows the features is `encoder`'s.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import torch
from torch import nn

from policies.documents.study import Image, Model
from policies.plan.architectures import RESNET_CHANNELS

_MOST_GROUPS = 32
_CHANNELS_PER_GROUP = 4
_STEM_STRIDE = 2


def build_image_network(model: Model, image: Image) -> nn.Module:
    """The network of `model.encoder`: images (b, c, h, w) in [-1, 1] to (b, architectures.features). All zeros.

    Raises ValueError for an encoder that reads no images.
    """
    # Without storage first: torch's own random start would be drawn for nothing.
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

    Convolutions are drawn uniformly with variance 2 / fan-in (He et al. 2015); norms start as scale 1 and shift 0, and
    biases at 0. Only elementwise float64 operations, so that every silo starts from the same digest.
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


def widest(model: Model, image: Image) -> int:
    """Values of the largest map that one image becomes on its way: what the memory of a batch grows with."""
    if model.encoder == "resnet18":
        return RESNET_CHANNELS[0] * math.ceil(image.height / _STEM_STRIDE) * math.ceil(image.width / _STEM_STRIDE)
    maps = (width * (image.height >> i) * (image.width >> i) for i, width in enumerate(model.channels))
    return max(image.channels * image.height * image.width, *maps)


def _cnn(channels: int, widths: tuple[int, ...]) -> nn.Sequential:
    """Per width: convolution 3x3, GroupNorm, Tanh, and a halving of the map by its maxima; flattened at the end.

    Tanh bounds what a patient's gradient can be made of, and is known to learn better than ReLU under DP-SGD
    (Papernot et al. 2021); it also gives the records' inputs, in [-1, 1], neighbours of their own size.
    """
    layers: list[nn.Module] = []
    for before, width in pairwise((channels, *widths)):
        layers += [nn.Conv2d(before, width, 3, padding=1), _norm(width), nn.Tanh(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten())


def _resnet18(channels: int) -> nn.Sequential:
    first = RESNET_CHANNELS[0]
    layers: list[nn.Module] = [
        nn.Conv2d(channels, first, 7, stride=_STEM_STRIDE, padding=3, bias=False),
        _norm(first),
        nn.ReLU(),
        nn.MaxPool2d(3, stride=2, padding=1),
    ]
    for before, width in pairwise((first, *RESNET_CHANNELS)):
        layers += [_Block(before, width), _Block(width, width)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())


class _Block(nn.Module):
    """A basic block: two convolutions 3x3 beside a shortcut, which is projected where the width changes."""

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
    """GroupNorm of as many groups as divide the channels, at most 32, and of at least four channels each.

    In a group of one channel the norm takes a convolution's bias away again, and with it how strongly the channel
    answers to the whole image: a weight that learns nothing and is noised all the same.
    """
    most = min(_MOST_GROUPS, channels // _CHANNELS_PER_GROUP)
    return nn.GroupNorm(max(groups for groups in range(1, most + 1) if channels % groups == 0), channels)
