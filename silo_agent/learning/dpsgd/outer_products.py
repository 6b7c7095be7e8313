"""Gradients by record as two factors: the gradients at a layer's output, and its inputs.

A record's gradient of a linear layer's weights (o, i) is the outer product of the two. That of a convolution is the sum
of T outer products, one for each position. So a record costs T (o + i) values in place of o x i: its norm follows from
products of vectors, and a sum over records is one matrix product (`clipping`). Goodfellow, "Efficient per-example
gradient computations" (2015), has the norm of a linear layer; Bu et al., "Scalable and efficient training of large
convolutional neural networks with differential privacy" (2022), that of a convolution, and the choice by layer.

Where the factors would take more memory than the whole, and in all other layers, gradients are whole, as Opacus makes
them. `examination` compares both with a record's gradient alone, so a layer that is called twice is refused.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import torch
from opacus.grad_sample import GradSampleModule
from torch import nn
from torch.nn import functional
from torch.nn.grad import conv2d_weight

Samples = dict[torch.Tensor, torch.Tensor]
_MEMORY: Final = 3
"""Factors are kept as float32, and for a while as float64."""
_POSITIONS: Final = 256
"""Most positions of a convolution whose norm is bounded by `clipping`."""


@dataclass(frozen=True)
class Factors:
    """How a layer's factors lie at its weights (rows, T, i + o): first the inputs. Its bias follows, with nothing."""

    inputs: int
    bias: bool


def mark_positions(network: nn.Module, image: tuple[int, int, int]) -> None:
    """Note at every convolution of an image network to how many positions it is applied in one image (c, h, w)."""
    shapes = copy.deepcopy(network).to("meta")
    found: dict[nn.Module, int] = {}
    for layer in shapes.modules():
        if isinstance(layer, nn.Conv2d):
            layer.register_forward_hook(lambda own, _, out: found.__setitem__(own, out.shape[2] * out.shape[3]))
    shapes(torch.zeros((1, *image), dtype=next(shapes.parameters()).dtype, device="meta"))
    for layer, shape in zip(network.modules(), shapes.modules(), strict=True):
        if shape in found:
            layer.__dict__["positions"] = found[shape]


def positions(layer: nn.Module) -> int:
    """How often a record applies a layer's weights; 0 if it is not known."""
    return 1 if isinstance(layer, nn.Linear) else int(layer.__dict__.get("positions", 0))


def factors_of(layer: nn.Module) -> Factors | None:
    """How the layer's gradients by record are kept; None if they are whole."""
    if not isinstance(layer, nn.Linear | nn.Conv2d) or not layer.weight.requires_grad:
        return None
    outputs, inputs, count = len(layer.weight), layer.weight[0].numel(), positions(layer)
    if not _usual(layer) or not 0 < count <= _POSITIONS or (layer.bias is not None and not layer.bias.requires_grad):
        return None
    if count > 1 and _MEMORY * count * (inputs + outputs) > inputs * outputs:
        return None
    return Factors(inputs, layer.bias is not None)


def _usual(layer: nn.Linear | nn.Conv2d) -> bool:
    return isinstance(layer, nn.Linear) or (
        layer.groups == 1 and layer.padding_mode == "zeros" and isinstance(layer.padding, tuple)
    )


def _factors(layer: nn.Module, activations: list[torch.Tensor], outputs: torch.Tensor) -> Samples:
    factors = factors_of(layer)
    if factors is None:
        return _whole(layer, activations, outputs)
    (inputs,) = activations
    inputs = inputs.to(outputs.dtype)
    if isinstance(layer, nn.Conv2d):
        columns = functional.unfold(inputs, layer.kernel_size, layer.dilation, layer.padding, layer.stride)  # type: ignore[arg-type]  # a tuple
        inputs, outputs = columns.transpose(1, 2), outputs.flatten(2).transpose(1, 2)
    else:
        inputs, outputs = inputs[:, None], outputs[:, None]
    samples = {layer.weight: torch.cat([inputs, outputs], dim=2)}
    if factors.bias:
        samples[layer.bias] = outputs.new_zeros((len(outputs), 0))
    return samples  # type: ignore[return-value]  # parameters are tensors


def _whole(layer: nn.Module, activations: list[torch.Tensor], outputs: torch.Tensor) -> Samples:
    """Whole gradients by record: as Opacus makes them, or where a convolution has many positions by torch's own kernel.

    Opacus copies every position's inputs. The kernel does not, but lays the weights out anew for each record.
    """
    if not isinstance(layer, nn.Conv2d) or not _usual(layer) or positions(layer) <= len(layer.weight):
        samples: Samples = GradSampleModule.GRAD_SAMPLERS[type(layer)](layer, activations, outputs)
        return samples
    (inputs,) = activations
    rows, shape = len(inputs), layer.weight.shape
    # One convolution whose groups are the records: the gradient of its weights is that of each record.
    whole = conv2d_weight(  # type: ignore[no-untyped-call]  # torch has no types here
        inputs.to(outputs.dtype).reshape(1, -1, *inputs.shape[2:]),
        (rows * shape[0], *shape[1:]),
        outputs.reshape(1, -1, *outputs.shape[2:]),
        layer.stride,
        layer.padding,
        layer.dilation,
        rows,
    )
    samples = {}
    if layer.weight.requires_grad:
        samples[layer.weight] = whole.view(rows, *shape)
    if layer.bias is not None and layer.bias.requires_grad:
        samples[layer.bias] = outputs.sum(dim=(2, 3))
    return samples


class OuterProducts(GradSampleModule):  # type: ignore[misc]  # Opacus has no types
    """Opacus' module, which keeps factors of gradients where that takes less memory."""

    GRAD_SAMPLERS: ClassVar[Mapping[Any, Any]] = {
        **GradSampleModule.GRAD_SAMPLERS,
        nn.Linear: _factors,
        nn.Conv2d: _factors,
    }


def outer_weights(trained: nn.Module) -> dict[int, Factors]:
    """Places of such layers' weights among the trained parameters, and how their factors lie."""
    weights = {id(layer.weight): own for layer in trained.modules() if (own := factors_of(layer)) is not None}
    moved = [parameter for parameter in trained.parameters() if parameter.requires_grad]
    return {place: weights[id(parameter)] for place, parameter in enumerate(moved) if id(parameter) in weights}


def whole_gradients(hooked: GradSampleModule) -> Iterator[tuple[str, torch.Tensor | None]]:
    """Gradients (rows, ...) of every trained parameter by name, with the factors multiplied; None if none was made."""
    parts = [(name, parameter) for name, parameter in hooked.named_parameters() if parameter.requires_grad]
    samples = [getattr(parameter, "grad_sample", None) for _, parameter in parts]
    outer = outer_weights(hooked) if isinstance(hooked, OuterProducts) else {}
    for place, (name, parameter) in enumerate(parts):
        own, before = samples[place], outer.get(place - 1)
        if own is not None and place in outer:
            inputs, outputs = own.split([outer[place].inputs, own.shape[2] - outer[place].inputs], dim=2)
            own = torch.einsum("nto,nti->noi", outputs, inputs).reshape(len(own), *parameter.shape)
        elif own is not None and before is not None and before.bias:
            layer: Any = samples[place - 1]
            own = layer[:, :, before.inputs :].sum(dim=1)
        yield name, own
