"""What heads read beside the encoder's output: the inputs themselves, and public random features of them.

Guarantees: nothing here is trained or depends on a record but the one that is read. The random directions are a pure
function of the public seed, bit-identical on every platform: whole numbers of a generator times public constants, in
elementwise float64. What is read of a record has at most the norm `norm_bound`.

Random features are cosines of random directions (Rahimi and Recht 2007): sqrt(2/n) cos(W'x + b), with b uniform in
[0, 2 pi) and independent entries of W, uniform too, of deviation `SPREAD` / `raw_scale`. So a direction changes by
about `SPREAD` between two records.
"""

from __future__ import annotations

import math
from typing import Final, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from policies.documents.study import CategoryFeature, DataSchema, Feature, Model

SPREAD: Final = 1.0
"""Deviation of W'x, about. Measured: docs/design/heads.md, "What a head
reads"."""
_OF_NUMBER: Final = 0.2
"""About the mean square of a number's input."""
_STREAM: Final = 0x52414E44
"""Keeps these directions apart from the encoder's first weights, which come from the same seed."""


def raw_scale(data: DataSchema, input_scale: Literal["even", "counted"]) -> float:
    """What inputs are divided by: about their norm.

    A category has one input that is 1. A number in [-1, 1] has a mean square of about 1/5: hardly any column fills its
    public range evenly, and a scale that is a little too small costs less than one that is too large. If they are
    "counted", a number from 0 to 1 is a yes or no, whose input is 1 or -1, and an input for absence counts 1/5: one
    cell in five is missing.
    """
    counted = input_scale == "counted"
    return math.sqrt(math.fsum(_square(feature, counted=counted) for feature in data.features))


def _square(feature: Feature, *, counted: bool) -> float:
    """About the square of what a feature adds to the inputs' norm."""
    if isinstance(feature, CategoryFeature):
        return 1.0
    if not counted:
        return _OF_NUMBER
    absence = _OF_NUMBER if feature.fill is not None else 0.0
    return absence + (1.0 if feature.is_yes_or_no else _OF_NUMBER)


def longest(data: DataSchema) -> float:
    """The largest norm of a record's inputs: one input of a category is 1, those of a number lie in [-1, 1]."""
    return math.sqrt(sum(1 if isinstance(feature, CategoryFeature) else feature.width for feature in data.features))


class Beside:
    """From inputs (n, d) to what stands beside the encoder's output, (n, `width`). Nothing, if a study wants nothing.

    First the inputs, if `model.skip`, divided by `scale`; then the random features. No module of torch: there is
    nothing to train, and a state that is not trained would have to be accounted for.
    """

    def __init__(self, model: Model, data: DataSchema) -> None:
        scale = raw_scale(data, model.input_scale)
        self.scale = scale if model.skip else None
        """What the inputs are divided by; None if they do not stand beside the output."""
        self.random = model.random_features
        self.factor = math.sqrt(2.0 / self.random) if self.random else 0.0
        """What cosines are multiplied by."""
        self.width = (data.inputs if model.skip else 0) + self.random
        inputs = 0.0 if self.scale is None else longest(data) / self.scale
        self.norm_bound = math.hypot(inputs, math.sqrt(2.0) if self.random else 0.0)
        weight, bias = _directions(model.seed, data.inputs, self.random, SPREAD / scale if self.random else 0)
        self.weight = torch.from_numpy(weight.astype(np.float32))
        self.bias = torch.from_numpy(bias.astype(np.float32))

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """What stands beside the output for inputs (n, d): (n, `width`), in the type and on the device of `x`."""
        parts = [x[:, :0]]
        if self.scale is not None:
            parts.append(x / self.scale)
        if self.random:
            parts.append(torch.cos(torch.nn.functional.linear(x, self.weight.to(x), self.bias.to(x))) * self.factor)
        return torch.cat(parts, dim=1)

    def __repr__(self) -> str:
        return f"Beside(scale={self.scale}, random={self.random})"


def _directions(seed: int, inputs: int, count: int, spread: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """W (count, inputs), entries of deviation `spread`, and b (count,) in [0, 2 pi)."""
    raw = np.random.PCG64([seed, _STREAM]).random_raw(count * (inputs + 1))
    even = (np.asarray(raw, np.uint64) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    weight = (even[: count * inputs].reshape(count, inputs) * 2.0 - 1.0) * (math.sqrt(3.0) * spread)
    return weight, even[count * inputs :] * (2.0 * math.pi)
