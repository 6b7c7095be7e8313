"""Predicts records of unknown domain. Such a record has no head of its own, so all heads predict, or one pooled head.

Guarantees: each way uses only the model and public numbers (the noised domain counts), so it costs no budget. A
record's domain is never guessed. The shared and the personal model are treated alike.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from silo_agent.data.images import Images
from silo_agent.learning.alone.mixing import MixedModel
from silo_agent.learning.alone.model import AloneModel
from silo_agent.learning.encoder.encoder import Encoder, feature_parts
from silo_agent.learning.errors import ModelFileError
from silo_agent.learning.model.shared import SharedModel
from silo_agent.learning.outcomes.family import Family
from silo_agent.learning.outcomes.links import logits_of
from silo_agent.learning.personal.model import PersonalModel
from silo_agent.storage.checked import read_checked
from silo_agent.storage.errors import LocalFileError
from silo_agent.storage.folders import StudyFolder

Networked = SharedModel | PersonalModel
"""A model that is an encoder and heads."""
Model = Networked | AloneModel | MixedModel


class Way(StrEnum):
    """How records of unknown domain are predicted."""

    ENSEMBLE = "ensemble"
    """Mean of the heads' probabilities, weighted by the domains' shares."""
    POOLED = "pooled"
    """Prediction of one head: the heads' mean, weighted by the domains' shares. In a pooled model all are equal.

    A model without heads has the mean of its logits for all domains in its place.
    """


def network_of(model: Networked) -> tuple[Encoder, NDArray[np.float64]]:
    """A copy of the encoder, and the heads (M, W) in float64."""
    if isinstance(model, SharedModel):
        return model.build_encoder(), model.heads
    return copy.deepcopy(model.network.encoder), model.network.heads.detach().cpu().numpy().astype(np.float64)


def domain_shares(folder: Path, domains: int) -> tuple[NDArray[np.float64], bool]:
    """Shares (M,) of the domains in all silos' patients, and whether they are known.

    They follow from the noised sizes in `counts.json`; a size below 0 counts as 0. Without the file, or if no size is
    above 0, the shares are equal. Raises `ModelFileError` if the file does not fit `domains` = M.
    """
    path = StudyFolder(folder).counts
    even = np.full(domains, 1.0 / domains)
    if not path.exists():
        return even, False
    try:
        counts = np.array(json.loads(read_checked(path)), np.float64)
    except (LocalFileError, ValueError, TypeError):
        counts = np.zeros(0)
    if counts.shape != (domains,) or not np.isfinite(counts).all():
        msg = (
            f"{path.name} is damaged or belongs to another study; restore it from a backup, or remove it to use equal"
            " shares"
        )
        raise ModelFileError(msg)
    counts = np.maximum(counts, 0.0)
    return (counts / counts.sum(), True) if counts.sum() > 0.0 else (even, False)


def predict_ensemble(
    model: Model,
    shares: NDArray[np.float64],
    inputs: NDArray[np.float32],
    images: Images | None = None,
    device: torch.device | str = "cpu",
) -> NDArray[np.float64]:
    """Mean of all heads' probabilities, weighted by `shares` (M,): float64 (n, C). The encoder runs once."""
    if not isinstance(model, Networked):
        return _mean(shares, _in_all_domains(model, len(shares), inputs, images, device))
    encoder, heads = network_of(model)

    def mixed(phi: NDArray[np.float64]) -> NDArray[np.float64]:
        pairs = zip(shares, heads, strict=True)
        parts = [share * _under(model.family, phi, head) for share, head in pairs if share > 0.0]
        return np.asarray(np.sum(parts, axis=0), np.float64)

    return _over_parts(mixed, encoder, inputs, images, device, drawn=isinstance(model, SharedModel))


def predict_pooled(
    model: Model,
    shares: NDArray[np.float64],
    inputs: NDArray[np.float32],
    images: Images | None = None,
    device: torch.device | str = "cpu",
) -> NDArray[np.float64]:
    """Probabilities (n, C) under the mean of the heads, weighted by `shares` (M,). In a pooled model all are equal."""
    if not isinstance(model, Networked):
        said = [logits_of(own, model.family) for own in _in_all_domains(model, len(shares), inputs, images, device)]
        return model.family.probabilities(_mean(shares, said))
    encoder, heads = network_of(model)
    pooled = shares @ heads
    return _over_parts(
        lambda phi: _under(model.family, phi, pooled),
        encoder,
        inputs,
        images,
        device,
        drawn=isinstance(model, SharedModel),
    )


def _in_all_domains(
    model: AloneModel | MixedModel,
    count: int,
    inputs: NDArray[np.float32],
    images: Images | None,
    device: torch.device | str,
) -> list[NDArray[np.float64]]:
    """Predictions (n, C) of the records as if all were of one domain, for each of `count` domains."""
    return [model.predict(inputs, np.full(len(inputs), m, np.int64), images, device) for m in range(count)]


def _mean(shares: NDArray[np.float64], parts: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    return np.asarray(np.tensordot(shares, np.stack(parts), 1), np.float64)


def _over_parts(
    predict: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    encoder: Encoder,
    inputs: NDArray[np.float32],
    images: Images | None,
    device: torch.device | str,
    *,
    drawn: bool,
) -> NDArray[np.float64]:
    """`predict` of the features of all rows, part by part. If predictions are `drawn`, the mean over the draws."""
    parts = []
    for part in feature_parts(encoder, inputs, images, device, to_predict=drawn):
        phi = part.cpu().numpy().astype(np.float64)
        draws = phi.shape[1:-1]  # of features of one row for each record there are none
        own = predict(phi.reshape(math.prod(phi.shape[:-1]), phi.shape[-1]))
        parts.append(own.reshape(len(phi), *(draws or (1,)), own.shape[1]).mean(axis=1))
    return np.concatenate(parts)


def _under(family: Family, phi: NDArray[np.float64], head: NDArray[np.float64]) -> NDArray[np.float64]:
    """Probabilities (n, C) of features (n, k) under one head (W,)."""
    k = phi.shape[1]
    rows = head.reshape(family.form.logits, -1)
    logits = phi @ rows[:, :k].T
    return family.probabilities(logits if rows.shape[1] == k else logits + rows[:, k])
