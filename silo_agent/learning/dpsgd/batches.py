"""Records as chunks of one public shape, and made-up records in their place for examinations."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from policies.documents.study import DataSchema
from silo_agent.data.records import Records
from silo_agent.learning.encoder.encoder import Encoder
from silo_agent.learning.outcomes.family import Family
from silo_agent.learning.outcomes.registry import family_of
from silo_agent.learning.terms.term import Batch

_DOMAINS, _LABELS = (0, 0, 0, 1), (0, 0, 1, 1)
"""Domains and labels (the first or the last) of the made-up records. Some pairs of records share both, some share one,
some share neither."""


@dataclass(frozen=True)
class InputKind:
    """What a network reads: numbers of a record, an image's (channels, height, width), and what it predicts."""

    inputs: int
    image: tuple[int, int, int] | None
    family: Family

    @classmethod
    def of(cls, data: DataSchema) -> InputKind:
        """Of a study's records."""
        image = data.image
        shape = None if image is None else (image.channels, image.height, image.width)
        return cls(data.inputs, shape, family_of(data.label.count))


class Batches:
    """The records. Labels and domains are copied to the device once, inputs and images when a batch needs them."""

    def __init__(
        self,
        records: Records,
        heads: NDArray[np.float64],
        weights: NDArray[np.float64],
        family: Family,
        *,
        device: torch.device,
        rows: int,
    ) -> None:
        self._device, self._family, self._rows = device, family, rows
        self._images = records.images
        self._inputs = records.inputs
        self._y = torch.tensor(records.labels, device=device)
        self._domains = torch.tensor(records.domains, device=device)
        self._weights = torch.tensor(weights, dtype=torch.float32, device=device)
        self._heads = torch.tensor(heads, dtype=torch.float32, device=device)

    def expect(self, drawn: NDArray[np.int64]) -> None:
        """Say which records will be taken, in this order, so that images are decoded by then."""
        if self._images is not None:
            self._images.expect(drawn)

    def take(self, drawn: NDArray[np.int64]) -> Batch:
        """The drawn records, filled up to a whole chunk with made-up rows: zeros of the first class and domain."""
        rows = torch.from_numpy(drawn).to(self._device)
        domains = self._filled(self._domains[rows])
        images = None
        if self._images is not None:
            images = self._filled(torch.tensor(self._images.take(drawn), device=self._device))
        x = self._filled(torch.tensor(self._inputs[drawn], device=self._device))
        y = self._filled(self._y[rows])
        return Batch(x, images, y, domains, self._weights[domains], self._heads, self._family)

    def _filled(self, values: torch.Tensor) -> torch.Tensor:
        whole = values.new_zeros((self._rows, *values.shape[1:]))
        whole[: len(values)] = values
        return whole


def made_up(
    encoder: Encoder, like: torch.Tensor, kind: InputKind, rng: np.random.Generator
) -> tuple[Batch, NDArray[np.float64]]:
    """Four made-up records of a kind, public, all different, heads for an encoder, and its normals (4, k).

    They have the type and the device of `like`.
    """
    count = len(_LABELS)

    def tensor(values: NDArray[np.float64]) -> torch.Tensor:
        return torch.from_numpy(values).to(like)

    batch = Batch(
        tensor(rng.uniform(-1, 1, (count, kind.inputs))),
        None if kind.image is None else tensor(rng.uniform(-1, 1, (count, *kind.image))),
        torch.tensor(_LABELS, device=like.device) * (kind.family.form.labels - 1),
        torch.tensor(_DOMAINS, device=like.device),
        tensor(rng.uniform(0.5, 2.0, count)),
        tensor(rng.normal(size=(max(_DOMAINS) + 1, kind.family.form.logits * encoder.row))),
        kind.family,
    )
    return batch, rng.normal(size=(count, encoder.representation))


def picked(batch: Batch, rows: slice | NDArray[np.int64]) -> Batch:
    """The records in these rows of a batch."""
    return replace(
        batch,
        x=batch.x[rows],
        images=None if batch.images is None else batch.images[rows],
        y=batch.y[rows],
        domains=batch.domains[rows],
        weights=None if batch.weights is None else batch.weights[rows],
    )


def make_up_weights(network: nn.Module, rng: np.random.Generator) -> None:
    """Fill a network with made-up weights, small enough that its values stay in range."""
    with torch.no_grad():
        for parameter in network.parameters():
            spread = parameter[0].numel() ** -0.5
            parameter.copy_(torch.from_numpy(rng.uniform(-spread, spread, tuple(parameter.shape)) + 0.1))
