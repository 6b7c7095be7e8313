"""Integers by record from chunks of one shape. A record for which anything fails counts as zero, and alone.

Guarantees that a fault of one record costs no other record its term and leaves nothing behind for the next chunk.
`steady` examines that no record moves another's bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from opacus.grad_sample import GradSampleModule

from silo_agent.learning.dpsgd.batches import Batches
from silo_agent.learning.dpsgd.clipping import StepGrid, add_integers, to_integers
from silo_agent.learning.dpsgd.outer_products import OuterProducts, outer_weights
from silo_agent.learning.terms.term import Batch


def _drop_gradient(parameter: torch.Tensor) -> None:
    parameter.grad = None


Latents = NDArray[np.float64]
"""Standard normals (b, k) of a stochastic encoder's records."""
Losses = Callable[[Batch, Latents | None], torch.Tensor]
"""Loss of every record of a chunk, (rows,)."""


class Gradients:
    """Integers by record, always from a chunk of the same shape."""

    def __init__(self, hooked: GradSampleModule, losses: Losses, grid: StepGrid, rows: int) -> None:
        self._hooked, self._losses, self._grid, self._rows = hooked, losses, grid, rows
        self._outer = outer_weights(hooked) if isinstance(hooked, OuterProducts) else {}
        for parameter in hooked.parameters():
            if parameter.requires_grad:
                # Autograd also makes the gradient of the whole chunk, as large as a record's. Nobody reads it.
                parameter.register_post_accumulate_grad_hook(_drop_gradient)

    def add(
        self,
        totals: Sequence[torch.Tensor],
        batches: Batches,
        drawn: NDArray[np.int64],
        latent: Latents | None,
    ) -> None:
        """Add the integers of at most `rows` drawn records to the totals.

        A record for which anything raises counts as zero, without a word, and costs no other record its term. What
        raises without any record is nobody's, and is raised.
        """
        try:
            integers = self._integers(batches, drawn, latent)
        except Exception:  # noqa: BLE001  # whatever it is, it may have been one record's
            self._integers(batches, drawn[:0], None if latent is None else latent[:0])
            self._one_by_one(totals, batches, drawn, latent)
            return
        add_integers(totals, integers, len(drawn), self._grid, self._outer)

    def _one_by_one(
        self,
        totals: Sequence[torch.Tensor],
        batches: Batches,
        drawn: NDArray[np.int64],
        latent: Latents | None,
    ) -> None:
        for at in range(len(drawn)):
            part = slice(at, at + 1)
            try:
                integers = self._integers(batches, drawn[part], None if latent is None else latent[part])
            except Exception:  # noqa: BLE001, S112  # this record counts as zero; a log would tell of it
                continue
            add_integers(totals, integers, 1, self._grid, self._outer)

    def _integers(self, batches: Batches, drawn: NDArray[np.int64], latent: Latents | None) -> list[torch.Tensor]:
        padded = None
        if latent is not None:
            padded = np.zeros((self._rows, latent.shape[1]))
            padded[: len(latent)] = latent
        return self.to_integers(self.by_record(batches.take(drawn), padded))

    def to_integers(self, parts: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """What `by_record` returned as integers; it is overwritten."""
        return to_integers(parts, self._grid, self._outer)

    def by_record(self, batch: Batch, latent: Latents | None) -> list[torch.Tensor]:
        """Gradients (rows, ...) of every trained tensor, for a whole chunk; of some layers both factors."""
        parameters: Sequence[Any] = [one for one in self._hooked.parameters() if one.requires_grad]
        # The chunk before may have failed while it was forgotten.
        self._forget(parameters)
        try:
            torch.autograd.backward(self._losses(batch, latent).sum())
            # Opacus says None for a tensor that the loss did not read.
            samples = [getattr(parameter, "grad_sample", None) for parameter in parameters]
        finally:
            self._forget(parameters)
        return [
            parameter.new_zeros((self._rows, *self._shape(place, parameter))) if sample is None else sample
            for place, (parameter, sample) in enumerate(zip(parameters, samples, strict=True))
        ]

    def _shape(self, place: int, parameter: torch.Tensor) -> tuple[int, ...]:
        """Of what a record has at a parameter, if the loss does not read it."""
        own, before = self._outer.get(place), self._outer.get(place - 1)
        if own is not None:
            return 1, own.inputs + len(parameter)
        return (0,) if before is not None and before.bias else tuple(parameter.shape)

    def _forget(self, parameters: Sequence[Any]) -> None:
        """Remove what Opacus keeps between a forward and a backward pass, of which one may have been cut short."""
        for parameter in parameters:
            parameter.grad, parameter.grad_sample = None, None
            parameter.__dict__.pop("_current_grad_sample", None)
            parameter.__dict__["_forward_counter"] = 0
        for module in self._hooked.modules():
            module.__dict__.pop("activations", None)
            module.__dict__.pop("max_batch_len", None)
