"""A linear layer's gradients by record as two factors each: the gradient at its output, and its input.

A record's gradient of the weights (o, i) is the outer product of the two, and that of the bias is the first. So a
record costs o + i values in place of o x i: its norm is a product of two norms, and a sum over records is one matrix
product (`clipping`). Goodfellow, "Efficient per-example gradient computations" (2015), has the norm.

The factors lie where Opacus keeps gradients by record: the input (rows, i) at the weights, the gradient at the output
(rows, o) at the bias. Layers without a bias, and all other layers, have whole gradients, as Opacus makes them.
`examination` compares both with a record's gradient alone, so a layer that is called twice is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import torch
from opacus.grad_sample import GradSampleModule
from torch import nn

Samples = dict[torch.Tensor, torch.Tensor]


def _factors(layer: nn.Linear, activations: list[torch.Tensor], outputs: torch.Tensor) -> Samples:
    if not is_outer(layer):
        whole: Samples = GradSampleModule.GRAD_SAMPLERS[nn.Linear](layer, activations, outputs)
        return whole
    (inputs,) = activations
    return {layer.weight: inputs.to(outputs.dtype), layer.bias: outputs}


class OuterProducts(GradSampleModule):  # type: ignore[misc]  # Opacus has no types
    """Opacus' module, which keeps the two factors of a linear layer's gradients."""

    GRAD_SAMPLERS: ClassVar[Mapping[Any, Any]] = {**GradSampleModule.GRAD_SAMPLERS, nn.Linear: _factors}


def is_outer(layer: nn.Module) -> bool:
    """Whether the layer's gradients by record are kept as factors: linear, with a bias, both trained."""
    return (
        type(layer) is nn.Linear and layer.bias is not None and layer.weight.requires_grad and layer.bias.requires_grad
    )


def outer_weights(trained: nn.Module) -> frozenset[int]:
    """Places of such layers' weights among the trained parameters. The layer's bias follows each."""
    weights = {id(layer.weight) for layer in trained.modules() if is_outer(layer)}
    moved = [parameter for parameter in trained.parameters() if parameter.requires_grad]
    return frozenset(place for place, parameter in enumerate(moved) if id(parameter) in weights)


def whole_gradients(hooked: GradSampleModule) -> Iterator[tuple[str, torch.Tensor | None]]:
    """Gradients (rows, ...) of every trained parameter by name, with the factors multiplied; None if none was made."""
    parts = [(name, parameter) for name, parameter in hooked.named_parameters() if parameter.requires_grad]
    samples = [getattr(parameter, "grad_sample", None) for _, parameter in parts]
    outer = outer_weights(hooked) if isinstance(hooked, OuterProducts) else frozenset[int]()
    for place, (name, _) in enumerate(parts):
        own = samples[place]
        if place in outer and own is not None:
            own = torch.einsum("no,ni->noi", samples[place + 1], own)
        yield name, own
