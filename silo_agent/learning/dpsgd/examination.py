"""Examines, before any record is read, whether a training for an upload can be accounted for. Refuses by name if not.

If nothing is raised, these hold. No layer normalises by a batch, or keeps state that no noise covers. Every trained
tensor belongs to a layer for which Opacus takes gradients by record, and goes through the one optimizer that clips and
noises. On a few made-up public records, each record's loss and gradient are the same alone and among others. The loss
reads no tensor that is trained elsewhere. So a batch statistic is found under any name.
Left to others: the audit (tests/audit, one_patient_less) checks that the constants in the loss (heads, the start) were
released or charged before. `dpsgd` sets how large the noise is.

Sources: docs/design/noise.md, "What may feed an upload"; Opacus' own validator looks at layers alone, and passes MMD.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from opacus.grad_sample import GradSampleModule
from torch import nn

from policies.refusals import Reason, Refused
from silo_agent.learning.dpsgd.outer_products import whole_gradients

Losses = Callable[[slice], torch.Tensor]
"""Losses (b,) of a part of the made-up records, by the code that training calls."""
_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
_INSTANCE_NORMS = (nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)
_CLOSE = 1e-6
"""Allowed difference in float64, relative to the largest value. Another order of additions gives about 1e-12."""


def require_layers(trained: nn.Module) -> None:
    """Check that no layer mixes records. Raises `Refused`, naming the layer."""
    for name, layer in trained.named_modules():
        kind = f"layer {name or '(whole)'} is {type(layer).__name__}"
        if isinstance(layer, _BATCH_NORMS) or (isinstance(layer, _INSTANCE_NORMS) and layer.track_running_stats):
            raise Refused(
                Reason.BATCH_NORM,
                f"{kind}, which mixes records or keeps their means without noise; use GroupNorm",
            )
        state = [own for own, _ in layer.named_buffers(recurse=False)]
        if state:
            raise Refused(
                Reason.UNNOISED_PART,
                f"{kind} and keeps {', '.join(state)}, which is not trained and which no noise covers; remove it",
            )
        weights = [own for own, parameter in layer.named_parameters(recurse=False) if parameter.requires_grad]
        if weights and type(layer) not in GradSampleModule.GRAD_SAMPLERS:
            raise Refused(
                Reason.NO_PER_SAMPLE_GRADIENT,
                f"{kind}, and Opacus takes no gradient by record of its {', '.join(weights)}; put the weights into a"
                " layer that Opacus supports (Linear, Conv2d, GroupNorm, Embedding)",
            )


def require_noised(trained: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Check that the one clipped, noised step trains every trained tensor, and no other. Raises `Refused`."""
    stepped = _stepped(optimizer)
    for name, parameter in trained.named_parameters():
        if parameter.requires_grad and id(parameter) not in stepped:
            raise Refused(
                Reason.UNNOISED_PART,
                f"{name} is trained, but not in the step that is clipped and noised; give it to that optimizer",
            )
    if stepped - {id(parameter) for parameter in trained.parameters()}:
        raise Refused(
            Reason.UNNOISED_PART,
            "the noised step trains a tensor that is not examined; make it part of the trained module",
        )


def require_apart(hooked: GradSampleModule, optimizer: torch.optim.Optimizer, losses: Losses, count: int) -> None:
    """Check that each of `count` made-up records has the same loss and gradient alone and among the others.

    `hooked` holds float64 parameters without gradients; it cannot be used afterwards. Raises `Refused`.
    """
    together = losses(slice(0, count))
    if not {id(leaf) for leaf in _leaves(together)} <= _stepped(optimizer):
        raise Refused(
            Reason.UNNOISED_PART,
            "the loss reads a tensor that is trained outside the noised step; train it in the step, or detach it if it"
            " was released before",
        )
    if together.shape != (count,):
        _refuse_batch("the loss is one number for a batch")
    torch.autograd.backward(together.sum())
    parts = {name: parameter for name, parameter in hooked.named_parameters() if parameter.requires_grad}
    sampled = dict(whole_gradients(hooked))
    hooked.disable_hooks()
    for record in range(count):
        alone = losses(slice(record, record + 1))
        if not _close(together[record], alone[0], together):
            _refuse_batch("the loss of a record changes with the other records of its batch")
        gradients = torch.autograd.grad(alone.sum(), list(parts.values()), materialize_grads=True)
        largest = torch.stack([gradient.abs().max() for gradient in gradients])
        for (name, sample), gradient in zip(sampled.items(), gradients, strict=True):
            own = torch.zeros_like(gradient) if sample is None else sample[record]
            if not _close(own, gradient, largest):
                raise Refused(
                    Reason.NO_PER_SAMPLE_GRADIENT,
                    f"{name.removeprefix('_module.')} has another gradient by record than the record has alone: the"
                    " code reads it without calling its layer, or its gradient mixes records; call the layer, once for"
                    " each record",
                )


def _refuse_batch(what: str) -> None:
    raise Refused(
        Reason.BATCH_STATISTICS,
        f"{what}, so clipping a patient's gradient does not bound what the patient adds; remove the batch statistic"
        " from the upload's loss",
    )


def _stepped(optimizer: torch.optim.Optimizer) -> set[int]:
    return {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}


def _close(computed: torch.Tensor, expected: torch.Tensor, scale: torch.Tensor) -> bool:
    # The comparison is False if a value is not a number.
    return bool((computed - expected).abs().max() <= _CLOSE * scale.detach().abs().max())


def _leaves(result: torch.Tensor) -> Iterator[torch.Tensor]:
    """Every tensor for which a result has a gradient."""
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
