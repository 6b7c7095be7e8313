"""Whether what is about to be trained for an upload can be accounted for: found out by name, before any record is read.

Guarantees, where nothing is raised: no layer normalises by a batch or keeps state that no noise covers; every trained
tensor belongs to a layer whose gradient by record Opacus takes, and goes through the one optimizer that clips and
noises; and, on a few made-up public records, each record's loss and gradient are the same alone and among others, and
no tensor is trained elsewhere that the loss reads. So a batch statistic is found whatever it is called.
Left to others: that what the loss reads as a constant (heads, the start) was released or charged before, which the
audit judges (tests/audit, one_patient_less), and how large the noise is (dpsgd).

Sources: docs/design/noise.md, "What may feed an upload"; Opacus' own validator looks at layers alone, and passes MMD.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from opacus.grad_sample import GradSampleModule
from torch import nn

from policies.refusals import Reason, Refused

Losses = Callable[[slice], torch.Tensor]
"""Loss of every record of a part of the made-up records, (b,), by the code that training calls."""
_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
_INSTANCE_NORMS = (nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)
_CLOSE = 1e-6
"""Of the largest value, in float64: another order of additions gives 1e-12."""


def require_layers(trained: nn.Module) -> None:
    """Every layer is one whose records stay apart. Raises `Refused`, naming the layer."""
    for name, layer in trained.named_modules():
        kind = f"layer {name or '(whole)'} is {type(layer).__name__}"
        if isinstance(layer, _BATCH_NORMS) or (isinstance(layer, _INSTANCE_NORMS) and layer.track_running_stats):
            raise Refused(
                Reason.BATCH_NORM,
                f"{kind}, which mixes records, or keeps means of them that no noise covers; use GroupNorm",
            )
        state = [own for own, _ in layer.named_buffers(recurse=False)]
        if state:
            raise Refused(
                Reason.UNNOISED_PART,
                f"{kind} and keeps {', '.join(state)} beside what is trained; no noise covers that, so take it out",
            )
        weights = [own for own, parameter in layer.named_parameters(recurse=False) if parameter.requires_grad]
        if weights and type(layer) not in GradSampleModule.GRAD_SAMPLERS:
            raise Refused(
                Reason.NO_PER_SAMPLE_GRADIENT,
                f"{kind}, and of its {', '.join(weights)} no gradient by record is taken; hold it in a layer that"
                " Opacus samples (Linear, Conv2d, GroupNorm, Embedding)",
            )


def require_noised(trained: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """All that is trained goes through the one clipped, noised step, and nothing else does. Raises `Refused`."""
    stepped = _stepped(optimizer)
    for name, parameter in trained.named_parameters():
        if parameter.requires_grad and id(parameter) not in stepped:
            raise Refused(
                Reason.UNNOISED_PART,
                f"{name} is trained, and not in the step that is clipped and noised; give it to that optimizer",
            )
    if stepped - {id(parameter) for parameter in trained.parameters()}:
        raise Refused(
            Reason.UNNOISED_PART,
            "the noised step trains a tensor that is no part of what is examined; hold it in the trained module",
        )


def require_apart(hooked: GradSampleModule, optimizer: torch.optim.Optimizer, losses: Losses, count: int) -> None:
    """`count` made-up records have each the loss and the gradient among others that it has alone. Raises `Refused`.

    `hooked` holds float64 parameters without gradients; afterwards it is of no more use.
    """
    together = losses(slice(0, count))
    if not {id(leaf) for leaf in _leaves(together)} <= _stepped(optimizer):
        raise Refused(
            Reason.UNNOISED_PART,
            "the loss reads a tensor that is trained outside the noised step; train it in the step, or detach what was"
            " released before",
        )
    if together.shape != (count,):
        _refuse_batch("the loss is one number for a batch")
    torch.autograd.backward(together.sum())
    parts = {name: parameter for name, parameter in hooked.named_parameters() if parameter.requires_grad}
    sampled = {name: getattr(parameter, "grad_sample", None) for name, parameter in parts.items()}
    hooked.disable_hooks()
    for record in range(count):
        alone = losses(slice(record, record + 1))
        if not _close(together[record], alone[0], together):
            _refuse_batch("the loss of a record is another one among other records")
        gradients = torch.autograd.grad(alone.sum(), list(parts.values()), materialize_grads=True)
        largest = torch.stack([gradient.abs().max() for gradient in gradients])
        for (name, found), gradient in zip(sampled.items(), gradients, strict=True):
            own = torch.zeros_like(gradient) if found is None else found[record]
            if not _close(own, gradient, largest):
                raise Refused(
                    Reason.NO_PER_SAMPLE_GRADIENT,
                    f"{name.removeprefix('_module.')} has another gradient by record than the record's own: it is read"
                    " past its layer, or records meet in its gradient; call the layer, once for every record",
                )


def _refuse_batch(what: str) -> None:
    raise Refused(
        Reason.BATCH_STATISTICS,
        f"{what}, so clipping a patient's gradient does not bound what the patient adds; take the batch statistic out"
        " of what is uploaded",
    )


def _stepped(optimizer: torch.optim.Optimizer) -> set[int]:
    return {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}


def _close(found: torch.Tensor, expected: torch.Tensor, scale: torch.Tensor) -> bool:
    # What is not a number is close to nothing.
    return bool((found - expected).abs().max() <= _CLOSE * scale.detach().abs().max())


def _leaves(result: torch.Tensor) -> Iterator[torch.Tensor]:
    """Every tensor that a result has a gradient for."""
    seen = set()
    rest = [result.grad_fn]
    while rest:
        node = rest.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        leaf = getattr(node, "variable", None)
        if leaf is not None:
            yield leaf
        rest += [following for following, _ in node.next_functions]
