"""A model as files for others: safetensors, ONNX and the card that explains both.

Guarantees: a folder appears whole or not at all. The ONNX graph was run on random records and gives the same results as
the model within `TOLERANCE`. A personal model is never exported by mistake: it needs a second confirmation, and every
file says what it is. People decide which files leave the hospital.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from common.durable import write_folder
from policies.documents.study import Label, Study
from policies.plan.cost import Cost
from policies.reports.published import quality_of
from silo_agent.data.images import Images, PixelScale
from silo_agent.data.outcome import scaled_back
from silo_agent.errors import SiloError
from silo_agent.learning.encoder.layers import Network, describe
from silo_agent.learning.model.shared import SharedModel
from silo_agent.learning.personal.model import PersonalModel
from silo_agent.learning.personal.unknown_domain import Networked, domain_shares, network_of, predict_ensemble
from silo_agent.models.model_card import PERSONAL_WARNING, ModelFacts, Shares, model_card, to_json
from silo_agent.models.model_card_text import to_markdown
from silo_agent.storage.folders import StudyFolder

TOLERANCE = 1e-5
"""Largest difference between a probability of the ONNX graph and the model's own, and between a number's values on
the scale of [-1, 1]."""
_CHECKED_RECORDS = 8
_PRIVATE_PREFIX = "personal-private-"
_SUMS = "SHA256SUMS"


class ModelExportError(SiloError):
    """The model cannot be exported in this way. The message names the fix. No file was left."""


class Format(StrEnum):
    """Which model files are written. The card is always written."""

    SAFETENSORS = "safetensors"
    ONNX = "onnx"
    BOTH = "both"


@dataclass(frozen=True, repr=False, eq=False)
class _Export:
    """A model prepared for export, with everything that the files say about it."""

    model: Networked
    network: Network
    shares: NDArray[np.float64]
    metadata: dict[str, object]

    @property
    def study(self) -> Study:
        return self.model.study


def export(
    model: Networked,
    out: Path,
    *,
    folder: Path,
    files: Format = Format.BOTH,
    charged: Iterable[Cost] | None = None,
    inside_hospital: bool = False,
) -> tuple[Path, ...]:
    """Write a model into the new folder `out` and return its files.

    `folder` is the study's, with the noised domain counts and the results. `charged` has the study's costs in this
    hospital's ledger. A personal model needs `inside_hospital`. Raises `ModelExportError`, `ModelFileError`.
    """
    personal = isinstance(model, PersonalModel)
    if personal and not inside_hospital:
        msg = f"a personal model: {PERSONAL_WARNING} To export it for use in here, add --inside-hospital"
        raise ModelExportError(msg)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        msg = f"{out} exists already and is never overwritten; give a new folder"
        raise ModelExportError(msg)
    study, prefix = model.study, _PRIVATE_PREFIX if personal else ""
    if study.model.samples and not personal:
        msg = (
            f"model.samples is {study.model.samples}: a prediction is a mean over draws, and an exported network"
            " predicts at the mean of the representation, with other results; use `fedward-silo predict`, or have a"
            " study without model.samples"
        )
        raise ModelExportError(msg)
    kinds = [kind for kind in (Format.SAFETENSORS, Format.ONNX) if files in (kind, Format.BOTH)]
    names = {str(kind): f"{prefix}model.{kind}" for kind in kinds}
    network, shares = _described(model, folder)
    card = card_of(model, folder=folder, files=names, charged=charged)
    card_json = to_json(card)
    ready = _Export(model, network, shares.values, _metadata(card, card_json))
    contents = {f"{prefix}model-card.json": card_json, f"{prefix}model-card.md": to_markdown(card).encode()}
    makers = {Format.SAFETENSORS: _safetensors, Format.ONNX: _onnx}
    contents |= {names[kind]: makers[kind](ready) for kind in kinds}
    sums = "".join(f"{hashlib.sha256(contents[name]).hexdigest()}  {name}\n" for name in sorted(contents))
    return write_folder(out, contents | {f"{prefix}{_SUMS}": sums.encode()})


def card_of(
    model: Networked, *, folder: Path, files: Mapping[str, str], charged: Iterable[Cost] | None
) -> dict[str, Any]:
    """The card of a model whose files have these names; the arguments are those of `export`.

    Raises `ModelExportError` if the study's results are damaged.
    """
    personal, study = isinstance(model, PersonalModel), model.study
    network, shares = _described(model, folder)
    digest = model.digest if isinstance(model, SharedModel) else hashlib.sha256(model.to_bytes()).hexdigest()
    return model_card(
        study,
        ModelFacts(digest, model.round, personal),
        network,
        shares,
        version=version("fedward"),
        files=files,
        quality=None if personal else _quality(folder, study, model.round),
        charged=charged,
    )


def _described(model: Networked, folder: Path) -> tuple[Network, Shares]:
    data = model.study.data
    shares, counted = domain_shares(folder, len(data.domains))
    encoder, heads = network_of(model)
    network = describe(encoder, heads, shares, model.family, inputs=data.inputs, label=data.label)
    return network, Shares(shares, counted)


def _metadata(card: Mapping[str, Any], card_json: bytes) -> dict[str, object]:
    """Return what is written into the model files themselves, in case they are separated from their card."""
    privacy = card["privacy"]
    outcome: dict[str, object] = {"fedward.classes": [entry["codes"] for entry in card["classes"]]}
    if "number" in card:
        outcome = {"fedward.number": card["number"]}
    found: dict[str, object] = {
        "fedward.version": card["fedward"],
        "fedward.kind": card["kind"],
        "fedward.study": card["study"]["digest"],
        "fedward.model": card["model"]["sha256"],
        "fedward.card": hashlib.sha256(card_json).hexdigest(),
        "fedward.domains": card["domains"]["names"],
        **outcome,
        "fedward.epsilon": privacy["epsilon"],
        "fedward.delta": privacy.get("delta"),
    }
    return found | ({"fedward.warning": card["warning"]} if "warning" in card else {})


def _safetensors(ready: _Export) -> bytes:
    # One metadata entry: safetensors writes several in no fixed order.
    blob: bytes = save(dict(ready.network.tensors), {"fedward": json.dumps(ready.metadata)})
    return blob


def _onnx(ready: _Export) -> bytes:
    try:
        from silo_agent.models import onnx_graph  # noqa: PLC0415  # an optional extra
    except ImportError as error:
        msg = f"ONNX needs the extra export ({error.name} is missing); install requirements-silo.txt of the release"
        raise ModelExportError(msg) from None
    data = ready.study.data
    blob = onnx_graph.build(
        ready.network, inputs=data.inputs, image=data.image, classes=data.label.count, metadata=ready.metadata
    )
    for records in (1, _CHECKED_RECORDS):
        values, images = _random_records(ready.study, records)
        difference = _difference(data.label, onnx_graph.run(blob, values), _own_answer(ready, values, images))
        if not difference <= TOLERANCE:
            msg = f"the ONNX graph differs from the model by {difference:.2g}, above {TOLERANCE:g}; nothing was written"
            raise ModelExportError(msg)
    return blob


def _difference(label: Label, given: NDArray[np.float64], own: NDArray[np.float64]) -> float:
    """The largest difference of two answers, the second as the model gives it."""
    if label.number is None:
        return float(np.abs(given - own).max())
    return float(np.abs(scaled_back(label, given) - own).max())


def _random_records(study: Study, records: int) -> tuple[dict[str, NDArray[np.generic]], Images | None]:
    """Return inputs of the graph by name, for every domain and for none, and the same images for the model."""
    data, rng = study.data, np.random.default_rng(records)
    domains = rng.integers(-1, len(data.domains), records)
    values: dict[str, NDArray[np.generic]] = {"domain": domains.astype(np.int64)}
    if data.inputs:
        values["inputs"] = rng.uniform(-1.0, 1.0, (records, data.inputs)).astype(np.float32)
    images = None
    if data.image is not None:
        scale = PixelScale.of(data.image)
        size = (records, data.image.channels, data.image.height, data.image.width)
        images = Images(rng.integers(0, scale.top + 1, size).astype(scale.kind), scale.top)
        values["images"] = images.take(slice(None))
    return values, images


def _own_answer(
    ready: _Export, values: Mapping[str, NDArray[np.generic]], images: Images | None
) -> NDArray[np.float64]:
    domains = np.asarray(values["domain"], np.int64)
    inputs = np.asarray(values.get("inputs", np.zeros((len(domains), 0))), np.float32)
    known = ready.model.predict(inputs, np.maximum(domains, 0), images)
    unknown = predict_ensemble(ready.model, ready.shares, inputs, images)
    return np.where((domains < 0)[:, None], unknown, known)


def _quality(folder: Path, study: Study, round_number: int) -> list[Mapping[str, object]] | None:
    """Return the opened metrics by domain, or None if this model was not measured. They come after the last round."""
    path = StudyFolder(folder).results
    if round_number != study.rounds or not path.exists():
        return None
    try:
        results = json.loads(path.read_bytes())
        if results["study"] != study.digest:
            msg = f"{path} belongs to another study; restore it from a backup"
            raise ModelExportError(msg)
        found: list[Mapping[str, object]] = [*quality_of(results)]
    except (KeyError, TypeError, ValueError):
        msg = f"{path} is damaged; restore it from a backup, or move it away to export without measured quality"
        raise ModelExportError(msg) from None
    return found
