"""The shared model, which every silo of the roster holds bit for bit, and which has all that inference needs.

Everything in it is public or differentially private. Guarantees that its shapes are the study's. An opened sum is
applied by elementwise float64 arithmetic, so all silos get the same `digest` from the same integers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray

from policies.documents.study import DataSchema, Model, Study
from policies.plan import shapes, terms
from silo_agent.data.images import Images
from silo_agent.data.inputs import Inputs
from silo_agent.learning.encoder.encoder import (
    Encoder,
    build_encoder,
    feature_parts,
    features,
    flatten,
    unflatten,
    view,
)
from silo_agent.learning.errors import ModelFileError
from silo_agent.learning.heads.evidence import Evidence
from silo_agent.learning.model import files
from silo_agent.learning.outcomes.family import Family
from silo_agent.learning.outcomes.registry import family_of_study
from silo_agent.learning.terms.losses.cmi import FixedPrior, Prior, fixed_prior, prior_of

HEAD_BOUND = 2.0**10
"""Largest weight of a solved head. The solver clamps to it, at every silo."""
_KIND = "shared"
_ONE_FOR_EACH = 2
"""Dimensions of features that hold one row for each record."""
_ROUNDING = float(np.finfo(np.float32).eps)
_PART = 1 << 16
"""Weights that are moved at once: the sum of a large encoder is turned into floats part by part."""
_CHUNK = 1 << 22
"""Most values of one intermediate matrix of a prediction (32 MiB of float64)."""


@dataclass(frozen=True, repr=False, eq=False)
class SharedModel:
    """The model after a round.

    `encoder` float32 (shapes.encoder_values,). `prior` float32 (shapes.prior_values,): r(z|y) if it is averaged, else
    empty. `heads` float64 (M, W), W = shapes.head_width, rows of weights for what a head reads, and a bias if it has
    one. `evidence` float64 (shapes.evidence_values,): what the hierarchical solver keeps from round to round
    (`heads.evidence`); empty for the other solver. `momentum` float32 (shapes.momentum_values,): that of the sealed
    steps, of the encoder and then of the averaged prior; empty if there is none. `round` is the last round that the
    model contains; 0 is the public start.
    """

    study: Study
    round: int
    encoder: NDArray[np.float32]
    prior: NDArray[np.float32]
    heads: NDArray[np.float64]
    evidence: NDArray[np.float64]
    momentum: NDArray[np.float32]

    def __post_init__(self) -> None:
        shape = (len(self.study.data.domains), shapes.head_width(self.study))
        wanted: list[tuple[NDArray[np.float32] | NDArray[np.float64], tuple[int, ...], type[np.floating[Any]]]] = [
            (self.encoder, (shapes.encoder_values(self.study),), np.float32),
            (self.prior, (shapes.prior_values(self.study),), np.float32),
            (self.heads, shape, np.float64),
            (self.evidence, (shapes.evidence_values(self.study),), np.float64),
            (self.momentum, (shapes.momentum_values(self.study),), np.float32),
        ]
        for array, size, kind in wanted:
            if array.shape != size or array.dtype != kind or not _is_finite(array):
                msg = "the model's tensors are not those of its study, or hold a value that is not finite"
                raise ModelFileError(msg)
            array.setflags(write=False)

    def require_reachable(self, begun: SharedModel | None = None) -> None:
        """Raise `ModelFileError`, naming the part, if `round` rounds of its study cannot give this model.

        `begun` is where a study that continues another one began (`learning.beginning`). Heads lie within `HEAD_BOUND`.
        One round moves a weight of encoder or prior by at most `encoder.max_update`, so no weight lies further from
        where the study began than `round` times that. The weights of an orthonormal encoder lie
        within 1, so they may move by 2. A part that the recipe keeps at the silos stays at the start.
        """
        if len(self.evidence) and np.abs(self.gathered.frame).max() > HEAD_BOUND:
            msg = "the evidence of the heads has a frame that no solver gives"
            raise ModelFileError(msg)
        start = begun or SharedModel.start(self.study)
        reach, kept = self.round * self.study.encoder.max_update, self.study.composition.kept
        wanted: dict[str, tuple[NDArray[np.floating[Any]], NDArray[np.floating[Any]], float]] = {
            # The solver clamps the heads themselves, wherever they began.
            "heads": (self.heads, start.heads if "heads" in kept else np.zeros_like(self.heads), HEAD_BOUND),
            "encoder": (self.encoder, start.encoder, max(reach, 2.0) if self.study.composition.linear else reach),
            "prior": (self.prior, start.prior, reach),
        }
        for name, (held, first, bound) in wanted.items():
            most = 0.0 if name in kept else bound
            # Each round rounds the weights to float32 once.
            slack = self.round * _ROUNDING * (np.abs(first.astype(np.float64)) + most)
            if (np.abs(held.astype(np.float64) - first) > most + slack).any():
                msg = f"the model's {name} hold a weight that {self.round} rounds of its study cannot give"
                raise ModelFileError(msg)

    def __repr__(self) -> str:
        return f"SharedModel(round={self.round}, digest={self.digest[:12]})"

    @classmethod
    def start(cls, study: Study) -> Self:
        """The common start: the encoder from the public seed, all heads zero.

        Raises `ModelFileError` for a study that continues another one: `learning.beginning` knows where it starts.
        """
        if study.continues is not None:
            msg = f"study {study.name} continues the model {study.continues}, and that model was not given"
            raise ModelFileError(msg)
        return cls.fresh(study)

    @classmethod
    def fresh(cls, study: Study) -> Self:
        """The same, whether or not the study continues another one. Its shapes are the study's in both cases."""
        encoder = _first_weights(study.model, study.data, stochastic=terms.is_stochastic(study.encoder))
        averaged = shapes.prior_values(study) > 0
        prior = np.zeros(0, np.float32)
        if averaged:
            prior = flatten(prior_of(study.model, study.data, study.encoder))
        heads = np.zeros((len(study.data.domains), shapes.head_width(study)))
        evidence = np.zeros(0)
        if shapes.evidence_values(study):
            evidence = Evidence.start(*_evidence_shape(study), study.heads.pooled_share).to_array()
        momentum = np.zeros(shapes.momentum_values(study), np.float32)
        return cls(study, 0, encoder, prior, heads, evidence, momentum)

    @property
    def gathered(self) -> Evidence:
        """The evidence of a study that keeps some. Raises `ModelFileError` if no rounds give it."""
        try:
            return Evidence.from_array(self.evidence, *_evidence_shape(self.study))
        except ValueError as error:
            raise ModelFileError(str(error)) from None

    def build_encoder(self) -> Encoder:
        """The encoder as a module on the CPU. It is a copy that the caller may train."""
        encoder = Encoder(self.study.model, self.study.data, stochastic=terms.is_stochastic(self.study.encoder))
        unflatten(encoder, self.encoder)
        return encoder

    def view_encoder(self) -> Encoder:
        """The same on this model's own memory, which nobody may write to: for whoever copies it before training."""
        encoder = Encoder(self.study.model, self.study.data, stochastic=terms.is_stochastic(self.study.encoder))
        view(encoder, self.encoder)
        return encoder

    def build_prior(self) -> Prior | FixedPrior | None:
        """The averaged r(z|y) as a module, its start if the study keeps it local, or the fixed one. None without."""
        if self.study.encoder.prior == "fixed" and terms.is_stochastic(self.study.encoder):
            return fixed_prior(self.study.model, self.study.data)
        if not terms.table_values(self.study):
            return None
        prior = prior_of(self.study.model, self.study.data, self.study.encoder)
        if len(self.prior):
            unflatten(prior, self.prior)
        return prior

    def with_heads(self, heads: NDArray[np.float64], round_number: int, evidence: Evidence | None = None) -> Self:
        """The model with the solved heads (M, W) of a round, and with the evidence after it if the study keeps any."""
        kept = self.evidence if evidence is None else evidence.to_array()
        return replace(self, heads=np.array(heads, np.float64), round=round_number, evidence=kept)

    def with_update(self, total: NDArray[np.float64] | NDArray[np.int64], silos: int, unit: float = 1.0) -> Self:
        """Add the uniform mean of the silos' updates: `total` x `unit` / `silos`.

        `total` is the opened sum: the encoder, then the averaged prior. Raises ValueError for another length.
        """
        return self._moved(len(total), lambda part: total[part].astype(np.float64) * unit / silos)

    def with_step(self, gradient: NDArray[np.float64], rate: float, round_number: int) -> Self:
        """The model after a round that was a sealed step, with this learning rate.

        `gradient` is the opened mean gradient, of the encoder and then of the averaged prior. A weight moves by at most
        `encoder.max_update`. Raises ValueError for another length.
        """
        plan, going = self.study.encoder, gradient
        momentum = self.momentum
        if len(momentum):
            going = plan.momentum * momentum.astype(np.float64) + gradient
            momentum = going.astype(np.float32)
        change = np.clip(-rate * going, -plan.max_update, plan.max_update)
        return replace(self._moved(len(change), change.__getitem__), momentum=momentum, round=round_number)

    def _moved(self, length: int, change: Callable[[slice], NDArray[np.float64]]) -> Self:
        """The model with encoder and averaged prior moved, part by part. Raises ValueError for another length."""
        if length != len(self.encoder) + len(self.prior):
            msg = f"an update of {len(self.encoder) + len(self.prior)} values was expected, {length} came"
            raise ValueError(msg)
        moved, first = [], 0
        for held in (self.encoder, self.prior):
            after = np.empty_like(held)
            for begin in range(0, len(held), _PART):
                part = slice(begin, min(begin + _PART, len(held)))
                after[part] = held[part].astype(np.float64) + change(slice(first + part.start, first + part.stop))
            moved.append(after)
            first += len(held)
        return replace(self, encoder=moved[0], prior=moved[1])

    def features(
        self,
        inputs: NDArray[np.float32] | Inputs,
        images: Images | None = None,
        device: torch.device | str = "cpu",
    ) -> torch.Tensor:
        """Return phi of all rows, (n, k) on `device`, the input of `heads.sums.second_order_sums`."""
        return features(self.build_encoder(), inputs, images, device)

    def predict(
        self,
        inputs: NDArray[np.float32] | Inputs,
        domains: NDArray[np.int64],
        images: Images | None = None,
        device: torch.device | str = "cpu",
    ) -> NDArray[np.float64]:
        """Probabilities of the classes, float64 (n, C), for inputs (n, d) and images as `data.reader` gives them.

        They are the mean over `model.samples` public draws, if the study has any.
        """
        parts, start = [], 0
        for part in feature_parts(self.build_encoder(), inputs, images, device, to_predict=True):
            parts.append(self.probabilities(part, domains[start : start + len(part)]))
            start += len(part)
        return np.concatenate(parts)

    def probabilities(self, features: torch.Tensor, domains: NDArray[np.int64]) -> NDArray[np.float64]:
        """The same for features (n, k) of this model's encoder. A row's bits follow from this row alone.

        Of features (n, S, k) it is the mean over the S draws.
        """
        if features.dim() > _ONE_FOR_EACH:
            rows, samples, values = features.shape
            own = self.probabilities(features.reshape(rows * samples, values), np.repeat(domains, samples))
            return np.asarray(own.reshape(rows, samples, own.shape[1]).mean(axis=1), np.float64)
        phi = features.cpu().numpy().astype(np.float64)
        rows = max(_CHUNK // self.heads.shape[1], 1)
        parts = [
            self.family.probabilities(
                _logits(phi[start : start + rows], self.heads[domains[start : start + rows]], self.family.form.logits)
            )
            for start in range(0, max(len(phi), 1), rows)
        ]
        return np.concatenate(parts)

    @property
    def family(self) -> Family:
        """The family of the study's outcomes."""
        return family_of_study(self.study)

    @property
    def digest(self) -> str:
        """SHA-256 over study, round and tensors (little-endian), lowercase hex."""
        content = hashlib.sha256(bytes.fromhex(self.study.digest))
        content.update(self.round.to_bytes(8, "little"))
        for array in (self.encoder, self.prior, self.heads, self.evidence, self.momentum):
            content.update(np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(-1).data)
        return content.hexdigest()

    def to_bytes(self) -> bytes:
        """The model as safetensors, with its study."""
        tensors: files.Tensors = {
            "encoder": self.encoder,
            "prior": self.prior,
            "heads": self.heads,
            "evidence": self.evidence,
            "momentum": self.momentum,
        }
        return files.encode(_KIND, self.study, self.round, {name: tensors[name] for name in _tensors(self.study)})

    @classmethod
    def from_bytes(cls, blob: bytes) -> Self:
        """Inverse of `to_bytes`. Raises `ModelFileError`."""
        study, round_number, tensors = files.decode(_KIND, blob)
        if set(tensors) != set(_tensors(study)):
            msg = "the model file lacks a tensor; export it again"
            raise ModelFileError(msg)
        encoder, prior, heads = (np.array(tensors[name]) for name in ("encoder", "prior", "heads"))
        evidence = np.array(tensors.get("evidence", np.zeros(0)))
        momentum = np.array(tensors.get("momentum", np.zeros(0, np.float32)))
        return cls(study, round_number, encoder, prior, heads, evidence, momentum)

    def save(self, path: Path) -> None:
        """Write the model durably."""
        files.write(path, self.to_bytes())

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a model. Raises `ModelFileError`, also if there is no file, and if it is not the one that was kept."""
        with files.naming(path):
            model = cls.from_bytes(files.read(path))
        files.require_kept(path, model.digest)
        return model


@lru_cache(maxsize=1)
def _first_weights(model: Model, data: DataSchema, *, stochastic: bool) -> NDArray[np.float32]:
    """The encoder's weights at the common start. It is asked for again: models from elsewhere are held against it."""
    first = flatten(build_encoder(model, data, stochastic=stochastic))
    first.setflags(write=False)
    return first


def _is_finite(array: NDArray[np.floating[Any]]) -> bool:
    flat = array.reshape(-1)
    return all(np.isfinite(flat[begin : begin + _PART]).all() for begin in range(0, len(flat), _PART))


def _tensors(study: Study) -> tuple[str, ...]:
    """Names of the tensors in a model's file. A study without evidence and momentum has the file of version 0.5."""
    kept = {"evidence": shapes.evidence_values(study), "momentum": shapes.momentum_values(study)}
    return ("encoder", "prior", "heads", *(name for name, values in kept.items() if values))


def _evidence_shape(study: Study) -> tuple[int, int, int]:
    """M, R, K of a study's heads."""
    return len(study.data.domains), shapes.head_width(study) // study.head_row, study.head_row


def _logits(phi: NDArray[np.float64], own: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """Logits (n, R) of features (n, k) under the heads (n, W) of their domains; `count` = R rows of k or k + 1."""
    k = phi.shape[1]
    rows = own.reshape(len(phi), count, own.shape[1] // count)
    logits = (phi[:, None, :] * rows[:, :, :k]).sum(axis=2)
    return np.asarray(logits if rows.shape[2] == k else logits + rows[:, :, k], np.float64)
