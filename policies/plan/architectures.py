"""Sizes of the image networks that a study may name: how many weights each has, how many features it gives.

The sizes are public and follow from the study, so the coordinator can check them without building a network. The
networks themselves are in `silo_agent.learning.encoder.image_networks`; its tests compare them with these sizes.
"""

from __future__ import annotations

import math
from itertools import pairwise

from policies.documents.study import Image, Model

RESNET_CHANNELS = (64, 128, 256, 512)
"""Channels of the four stages, which have two basic blocks each (He et al. 2016, Table 1, 18 layers)."""
STEM_STRIDE = 2
"""The ResNet's first convolution halves the image."""


def features(model: Model, image: Image) -> int:
    """Number of features of the image network: the last map, flattened for the cnn and averaged for the ResNet."""
    if model.encoder == "resnet18":
        return RESNET_CHANNELS[-1]
    halvings = len(model.channels)
    return model.channels[-1] * (image.height >> halvings) * (image.width >> halvings)


def weights(model: Model, image: Image) -> int:
    """Number of weights of the image network: convolutions (with biases in the cnn), GroupNorm's scales and shifts."""
    if model.encoder == "resnet18":
        return _resnet18(image.channels)
    widths = (image.channels, *model.channels)
    return sum(_convolution(a, b, 3) + b + _norm(b) for a, b in pairwise(widths))


def widest(model: Model, image: Image) -> int:
    """Values of the largest map that one image becomes in the network. A batch's memory grows with this number."""
    if model.encoder == "resnet18":
        return RESNET_CHANNELS[0] * math.ceil(image.height / STEM_STRIDE) * math.ceil(image.width / STEM_STRIDE)
    maps = (width * (image.height >> i) * (image.width >> i) for i, width in enumerate(model.channels))
    return max(image.channels * image.height * image.width, *maps)


def _resnet18(channels: int) -> int:
    first = RESNET_CHANNELS[0]
    total = _convolution(channels, first, 7) + _norm(first)
    for before, width in pairwise((first, *RESNET_CHANNELS)):
        total += _convolution(before, width, 3) + 3 * _convolution(width, width, 3) + 4 * _norm(width)
        if before != width:
            total += _convolution(before, width, 1) + _norm(width)
    return total


def _convolution(inputs: int, outputs: int, size: int) -> int:
    return inputs * outputs * size * size


def _norm(channels: int) -> int:
    return 2 * channels
