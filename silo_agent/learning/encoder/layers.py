"""A trained network as a plain list of layers and named tensors, from which an export is written and can be rebuilt.

Guarantees: the list is read from the modules that predict (their order, strides, groups) and is never written down a
second time. It holds what prediction needs and nothing else: of a stochastic encoder only the mean, and no prior.
`OPERATIONS` says what each layer computes. In `silo_agent.models`, `onnx_graph` makes the ONNX graph from the list, and
`model_card` the text.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from torch import nn

from policies.documents.study import Label, Scale
from silo_agent.data.outcome import ends
from silo_agent.learning.encoder.encoder import Encoder
from silo_agent.learning.outcomes.family import Family

Array = NDArray[np.float32] | NDArray[np.float64]
PROBABILITIES, VALUE = "probabilities", "value"
_BACK: Mapping[Scale, str | None] = {"linear": None, "log": "exp", "log1p": "expm1"}
"""The operation that brings a number from its scale back to its unit."""
OPERATIONS: Mapping[str, str] = {
    "conv2d": "2-d cross-correlation of a (n, c, h, w) map, zero padding on every side",
    "group_norm": "per record and group of neighbouring channels: (x - mean) / sqrt(variance + epsilon), variance over"
    " all values of the group (divisor: their number), then times weight plus bias of the channel",
    "relu": "max(x, 0)",
    "tanh": "tanh(x)",
    "cos": "cos(x)",
    "max_pool2d": "largest value of every window; padding never wins",
    "global_average": "mean over height and width: (n, c, h, w) to (n, c)",
    "flatten": "(n, c, h, w) to (n, c h w), row-major",
    "concatenate": "columns of the first input, then of the second, and so on",
    "add": "elementwise sum",
    "linear": "x weight' + bias, if there is a bias",
    "scale": "x times factor",
    "linear_by_domain": "in float64: sum over i of weight[m, r, i] x[:, i], plus bias[m, r]: (n, k) to (n, M, R)",
    "two_classes": "p = 1 / (1 + exp(-x)); the probabilities (1 - p, p): (n, M, 1) to (n, M, 2)",
    "softmax": "exp(x_c) / sum over c of exp(x_c), over the last axis",
    "clipped": "min(max(x, -1), 1): (n, M, 1)",
    "choose_domain": "sum over m of weight[d, m] x[:, m, :], d the record's domain; a negative d means unknown and"
    " takes the last row of weight: (n, M, C) to (n, C)",
    "in_unit": "minimum + (maximum - minimum) (x + 1) / 2, in float64",
    "exp": "exp(x)",
    "expm1": "exp(x) - 1",
}


@dataclass(frozen=True)
class Layer:
    """`output` = `operation` of `inputs`. `tensors` names the layer's weights by role, `settings` its numbers."""

    operation: str
    inputs: tuple[str, ...]
    output: str
    tensors: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, int | float] = field(default_factory=dict)


@dataclass(frozen=True, repr=False, eq=False)
class Network:
    """Layers in the order in which they are computed, and the tensors that they name.

    The first values are `inputs` (n, d) if d > 0, `images` (n, c, h, w) if the study has images, and `domain` (n,). The
    last value is `output` (n, C): `PROBABILITIES`, or `VALUE` of a label that is a number.
    """

    layers: tuple[Layer, ...]
    tensors: Mapping[str, Array]

    @property
    def output(self) -> str:
        """Name of the last value."""
        return self.layers[-1].output


def describe(
    encoder: Encoder,
    heads: NDArray[np.float64],
    weights: NDArray[np.float64],
    family: Family,
    *,
    inputs: int,
    label: Label,
) -> Network:
    """List a network. `heads` (M, W) as in the model; `weights` (M,) of the domains, for records of unknown domain.

    `inputs` = d of the records; `label` says whether the outcome is a number, and in which unit. Raises TypeError if no
    operation here stands for a module.
    """
    walk = _Walk(dict[str, Array](), [])
    value = "inputs"
    if encoder.image_network is not None:
        value = walk.through(encoder.image_network, "image_network", "images")
        if inputs:
            value = walk.add("concatenate", ("inputs", value), "joined")
    last = len(encoder.layers) - 1
    for place, layer in enumerate(encoder.layers):
        rows = encoder.representation if place == last else None
        value = walk.through(layer, f"layers.{place}", value, rows)
    factor = 1.0 / math.sqrt(encoder.representation)
    if encoder.scale is None:
        value = walk.add("tanh", (value,), "squashed")
    else:
        factor = 1.0 / encoder.scale
    value = walk.add("scale", (value,), "representation", settings={"factor": factor})
    value = walk.beside(encoder, value)
    by_head = heads.reshape(len(heads), -1, encoder.row).astype(np.float64)
    bias = by_head[:, :, -1].copy() if encoder.row > encoder.width else np.zeros(by_head.shape[:2])
    walk.tensors |= {"heads.weight": by_head[:, :, : encoder.width].copy(), "heads.bias": bias}
    walk.add("linear_by_domain", (value,), "logits", {"weight": "heads.weight", "bias": "heads.bias"})
    walk.add(family.operation, ("logits",), "by_domain")
    walk.tensors["domains.weight"] = np.vstack([np.eye(len(heads)), weights])
    chosen = PROBABILITIES if label.number is None else "scaled"
    walk.add("choose_domain", ("by_domain", "domain"), chosen, {"weight": "domains.weight"})
    if label.number is not None:
        low, high = ends(label)
        back = _BACK[label.scale]
        value = walk.add("in_unit", (chosen,), "along" if back else VALUE, settings={"minimum": low, "maximum": high})
        if back:
            walk.add(back, (value,), VALUE)
    return Network(tuple(walk.layers), walk.tensors)


@dataclass
class _Walk:
    """Goes through modules and lists what they do. A value is named after the module that gives it."""

    tensors: dict[str, Array]
    layers: list[Layer]

    def add(
        self,
        operation: str,
        inputs: tuple[str, ...],
        output: str,
        tensors: Mapping[str, str] | None = None,
        settings: Mapping[str, float] | None = None,
    ) -> str:
        self.layers.append(Layer(operation, inputs, output, tensors or {}, settings or {}))
        return output

    def beside(self, encoder: Encoder, value: str) -> str:
        """List what heads read beside the encoder's output `value`, and return the name of all that they read."""
        own, parts = encoder.beside, [value]
        if own.scale is not None:
            parts.append(self.add("scale", ("inputs",), "beside.inputs", settings={"factor": 1.0 / own.scale}))
        if own.random:
            names = {"weight": "beside.weight", "bias": "beside.bias"}
            self.tensors |= {"beside.weight": own.weight.numpy(), "beside.bias": own.bias.numpy()}
            cosines = self.add("cos", (self.add("linear", ("inputs",), "beside.along", names),), "beside.cosines")
            parts.append(self.add("scale", (cosines,), "beside.random", settings={"factor": own.factor}))
        return value if len(parts) == 1 else self.add("concatenate", tuple(parts), "read")

    def through(self, module: nn.Module, name: str, value: str, rows: int | None = None) -> str:
        """List a module's layers and return its output's name. `rows`: how many outputs of a linear layer to keep."""
        match module:
            case nn.Sequential():
                for number, part in enumerate(module):
                    value = self.through(part, f"{name}.{number}", value)
                return value
            case nn.Identity():
                return value
            case nn.Module(path=nn.Module() as path, shortcut=nn.Module() as shortcut):
                ways = self.through(path, f"{name}.path", value), self.through(shortcut, f"{name}.shortcut", value)
                return self.add("relu", (self.add("add", ways, f"{name}.sum"),), name)
        operation, settings = _operation(module, name)
        if operation == "flatten" and self.layers[-1].operation == "global_average":
            return value  # nothing is left to flatten
        return self.add(operation, (value,), name, self._weights(module, name, rows), settings)

    def _weights(self, module: nn.Module, name: str, rows: int | None) -> dict[str, str]:
        roles = {role: f"{name}.{role}" for role, _ in module.named_parameters(recurse=False)}
        for role, parameter in module.named_parameters(recurse=False):
            self.tensors[roles[role]] = parameter.detach().cpu().numpy()[:rows].astype(np.float32)
        return roles


def _operation(module: nn.Module, name: str) -> tuple[str, dict[str, float]]:
    """What one module computes, and its settings."""
    plain = {nn.Linear: "linear", nn.Tanh: "tanh", nn.ReLU: "relu", nn.Flatten: "flatten"}
    if type(module) in plain:
        return plain[type(module)], {}
    match module:
        case nn.Conv2d():
            return "conv2d", {"stride": _square(module.stride), "padding": _square(module.padding)}
        case nn.GroupNorm():
            return "group_norm", {"groups": module.num_groups, "epsilon": module.eps}
        case nn.MaxPool2d():
            window = {"size": module.kernel_size, "stride": module.stride, "padding": module.padding}
            return "max_pool2d", {key: _square(value) for key, value in window.items()}
        case nn.AdaptiveAvgPool2d(output_size=1):
            return "global_average", {}
    msg = f"{name} is a {type(module).__name__}, and an export has no operation for it"
    raise TypeError(msg)


def _square(size: object) -> int:
    """The one number of a setting that is the same for height and width. Raises TypeError if they differ."""
    numbers = set(size) if isinstance(size, tuple) else {size}
    number = numbers.pop()
    if numbers or not isinstance(number, int):
        msg = f"a setting of {size!r} differs between height and width; an export has one number for both"
        raise TypeError(msg)
    return number
