"""The model card: everything that a stranger must know to use and judge an exported model, as plain JSON values.

Guarantees: the card and the tensors are enough to prepare inputs and compute predictions. The card has only facts that
are public in the federation: no name, no file and no count of the exporting hospital. `model_card_text` makes the text
for people.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from policies.documents.study import (
    BINARY,
    CategoryFeature,
    Code,
    DataSchema,
    DomainColumn,
    Image,
    Label,
    NumericFeature,
    Study,
)
from policies.ledger.chain import UNBOUNDED
from policies.ledger.exports import finite_or_word
from policies.plan.cost import Cost
from policies.plan.release import plan
from policies.reports.guarantee import guarantee
from silo_agent.data.cells import text
from silo_agent.data.images import PixelScale
from silo_agent.learning.encoder.layers import OPERATIONS, Network

Json = Mapping[str, object]
PERSONAL_WARNING = (
    "NOT PRIVATE. This model was trained on one hospital's own records without noise. Like those records it must not"
    " leave the hospital."
)
_READING = (
    "Cells are trimmed. A cell that is one of `missing`, or of its column's own missing codes, is absent; that is an"
    " error where the column has neither a fill nor a coordinate for absence. So is a value outside its range or list,"
    " except where the coordinate's formula clips it: nothing is guessed. Whole numbers equal themselves with a"
    " fraction of zero."
)
_ERRORS = {
    "linear": "in the column's unit",
    "log": "of the column's natural logarithm",
    "log1p": "of the natural logarithm of 1 + the column",
}
"""What errors of a number are measured in."""
_LIMITS = (
    "Not a medical device: a research result. A use in care needs its own evaluation, approval and supervision.",
    "Valid for records prepared exactly as this card says. Another laboratory, device or coding may need a new study.",
    "A record of unknown domain gets a mean of the known domains' predictions, whose quality was not measured.",
    "Noise can shift the probabilities of rare outcomes: look at the calibration on own data before using a threshold.",
)
_NUMBER_LIMITS = (
    *_LIMITS[:-1],
    "No value beyond the label's range is ever predicted. Noise can shift all values: look at the mean error first.",
)


@dataclass(frozen=True)
class ModelFacts:
    """What a card needs to know about a model beside its study and network. `digest`: SHA-256, lowercase hex."""

    digest: str
    round: int
    personal: bool


@dataclass(frozen=True)
class Shares:
    """Weights (M,) of the domains for a record of unknown domain. `counted`: they are the noised domain counts."""

    values: NDArray[np.float64]
    counted: bool


def model_card(
    study: Study,
    model: ModelFacts,
    network: Network,
    shares: Shares,
    *,
    version: str,
    files: Mapping[str, str],
    quality: Sequence[Json] | None,
    charged: Iterable[Cost] | None,
) -> dict[str, object]:
    """Put a card together.

    `files` names the exported files by kind. `quality` has the opened metrics by domain. `charged` has the study's
    costs in this hospital's ledger, and is None if they are unknown.
    """
    personal = model.personal
    card: dict[str, object] = {
        "format": "fedward model card 1",
        "fedward": version,
        "kind": "personal-private" if personal else "shared",
    }
    if personal:
        card["warning"] = PERSONAL_WARNING
    card |= {
        "study": {
            "name": study.name,
            "purpose": study.purpose,
            "digest": study.digest,
            **({} if study.continues is None else {"continues": study.continues}),
            "hospitals": {"listed": len(study.silos), "at_least": study.min_silos},
        },
        "model": {"sha256": model.digest, "round": model.round, "rounds": study.rounds},
        "files": dict(files),
        "data": _data(study.data),
        "classes": [{"index": c, "codes": list(codes)} for c, codes in enumerate(study.data.label.codes)],
        "label": study.data.label.column,
        **_number(study.data.label),
        "domains": _domains(study.data),
        "unknown_domain": {
            "weights": [float(share) for share in shares.values],
            "from": "noised domain counts" if shares.counted else "equal shares",
            "how": "mean of the domains' probabilities with these weights"
            if study.data.label.number is None
            else "mean of the domains' values with these weights, before they get their unit",
        },
        "architecture": _architecture(study, network),
        "privacy": _personal_privacy() if personal else _privacy(study, charged),
        "quality": None if quality is None else [dict(entry) for entry in quality],
        "use": {
            "intended": study.purpose,
            "limits": [
                *(_LIMITS if study.data.label.number is None else _NUMBER_LIMITS),
                *_decided(study),
                *(() if personal else _kept(study)),
            ],
        },
    }
    return card


def _decided(study: Study) -> tuple[str, ...]:
    """From which risk on a patient counts as ill, of two classes."""
    if study.data.label.count != BINARY:
        return ()
    text = (
        f"Accuracy and false negatives count a patient as ill from a risk of {study.threshold:g} on, as the study says."
        " Whoever acts on another risk must measure them anew."
    )
    return (text,)


def _kept(study: Study) -> tuple[str, ...]:
    """What is to be known of the parts of a shared model that this hospital has for itself."""
    if not study.composition.keeps:
        return ()
    parts = " and ".join(sorted(study.composition.kept))
    text = (
        f"By recipe {study.recipe} this hospital trained {parts} for itself, with the noise and price stated here, so"
        " the model fits its own patients. The measured quality is that of all hospitals' own models together."
    )
    return (text,)


def to_json(card: Json) -> bytes:
    """Return the card as JSON without NaN or infinity."""
    return json.dumps(card, indent=1, allow_nan=False, ensure_ascii=False).encode() + b"\n"


# --- data -----------------------------------------------------------------------------------------------------------
def _data(schema: DataSchema) -> Json:
    coordinates: list[Json] = []
    for feature in schema.features:
        made = _numeric(feature) if isinstance(feature, NumericFeature) else _categories(feature)
        coordinates += [
            {"index": len(coordinates) + i, "column": feature.column, **entry} for i, entry in enumerate(made)
        ]
    return {
        "reading": _READING,
        "delimiter": schema.delimiter,
        "columns": list(schema.columns),
        "missing": list(schema.missing),
        "patient": schema.patient,
        "inputs": coordinates,
        "image": None if schema.image is None else _image(schema.image),
    }


_ALONG: Final[dict[str, Callable[[str], str]]] = {"linear": str, "log": "ln {}".format, "log1p": "ln(1 + {})".format}
"""How a value on a feature's scale is written."""


def _numeric(feature: NumericFeature) -> list[Json]:
    low, high = _exact(feature.minimum), _exact(feature.maximum)
    along = _ALONG[feature.scale]
    formula = f"2 ({along('x')} - {along(low)}) / ({along(high)} - {along(low)}) - 1"
    if feature.outside == "clip":
        formula += f"; x clipped to [{low}, {high}]"
    entry: Json = {
        "value": "scaled",
        "minimum": feature.minimum,
        "maximum": feature.maximum,
        "scale": feature.scale,
        "outside": feature.outside,
        "missing": list(feature.missing),
        "fill": feature.fill,
        "formula": formula if feature.fill is None else f"{formula}; x = {_exact(feature.fill)} where absent",
    }
    return [entry] if feature.fill is None else [entry, _absent(feature.missing)]


def _number(label: Label) -> Json:
    """Return how a label that is a number is read; nothing of classes."""
    if label.number is None:
        return {}
    minimum, maximum, scale = label.number
    return {"number": {"minimum": minimum, "maximum": maximum, "scale": scale, "errors": _ERRORS[scale]}}


def _exact(value: float) -> str:
    """Return the shortest text that reads back as the same number."""
    short = f"{value:g}"
    return short if float(short) == value else repr(value)


def _categories(feature: CategoryFeature) -> list[Json]:
    entries: list[Json] = [
        {
            "value": "equals",
            "code": code,
            "missing": list(feature.missing),
            "formula": f"1 where x is {text(code)}, else 0",
        }
        for code in feature.values
    ]
    return [*entries, _absent(feature.missing)] if feature.optional else entries


def _absent(missing: Sequence[Code]) -> Json:
    return {"value": "absent", "missing": list(missing), "formula": "1 where x is absent, else 0"}


def _image(image: Image) -> Json:
    return {
        "column": image.column,
        "channels": image.channels,
        "height": image.height,
        "width": image.width,
        "minimum": image.minimum,
        "maximum": image.maximum,
        "levels": PixelScale.of(image).top,
        "order": "channel, row from the top, column from the left; three channels are red, green, blue",
        "steps": [
            "decode the file that the column names; apply its orientation; of DICOM apply rescale slope and intercept",
            "colour to one channel: luminance by ITU-R 601-2; gray to three channels: three times the same",
            "f = (pixel - minimum) / (maximum - minimum), clipped to [0, 1]; of DICOM MONOCHROME1 then 1 - f",
            "where the size differs: resize f in float32, bilinear with antialiasing (Pillow, Resampling.BILINEAR)",
            "l = f times levels, rounded to the nearest whole number",
            "value = (2 l - levels) / levels, in [-1, 1]",
        ],
    }


def _domains(schema: DataSchema) -> Json:
    """Return the names in order, and how the factors' columns give them. The last factor varies fastest."""
    return {
        "names": list(schema.domains),
        "factors": [
            {"column": factor.column, "places": [_place(factor, i) for i in range(len(factor.names))]}
            for factor in schema.domain
        ],
        "index": "place in the first factor, times the number of places of the second, plus the place in it, and so on",
    }


def _place(factor: DomainColumn, number: int) -> Json:
    if factor.values:
        return {"name": factor.names[number], "code": factor.values[number]}
    bounds = list(pairwise((None, *factor.edges, None)))[number]
    return {"name": factor.names[number], "from": bounds[0], "below": bounds[1]}


# --- architecture ---------------------------------------------------------------------------------------------------
def _architecture(study: Study, network: Network) -> Json:
    used = dict.fromkeys(layer.operation for layer in network.layers)
    inputs: dict[str, object] = {}
    if study.data.inputs:
        inputs["inputs"] = {"type": "float32", "shape": ["n", study.data.inputs]}
    if study.data.image is not None:
        image = study.data.image
        inputs["images"] = {"type": "float32", "shape": ["n", image.channels, image.height, image.width]}
    inputs["domain"] = {"type": "int64", "shape": ["n"], "unknown": -1}
    return {
        "encoder": study.model.encoder,
        "inputs": inputs,
        "output": {network.output: {"type": "float64", "shape": ["n", study.data.label.count]}},
        "layers": [{**asdict(layer), "inputs": list(layer.inputs)} for layer in network.layers],
        "tensors": {
            name: {"type": str(array.dtype), "shape": list(array.shape)} for name, array in network.tensors.items()
        },
        "operations": {name: OPERATIONS[name] for name in used},
    }


# --- privacy --------------------------------------------------------------------------------------------------------
def _privacy(study: Study, charged: Iterable[Cost] | None) -> Json:
    found = guarantee(study, charged)
    return {
        "private": found.private,
        "epsilon": finite_or_word(found.epsilon),
        "epsilon_of_the_plan": finite_or_word(found.planned),
        "epsilon_charged_here": None if found.charged is None else finite_or_word(found.charged),
        "epsilon_at_several_hospitals": {str(many): finite_or_word(bound) for many, bound in found.several.items()},
        "delta": found.delta,
        "unit": found.unit,
        "relation": found.relation,
        "noise": study.privacy.mode,
        "noise_means": found.noise_means,
        "plan": _plan(study),
        "protects": list(found.protects),
        "does_not_protect": list(found.does_not_protect),
    }


def _personal_privacy() -> Json:
    return {
        "private": False,
        "epsilon": UNBOUNDED,
        "noise": "none",
        "protects": [],
        "does_not_protect": [PERSONAL_WARNING],
    }


def _plan(study: Study) -> list[Json]:
    """Return the releases of a run without repeated attempts. Equal releases of successive rounds are merged."""
    found: list[dict[str, object]] = []
    planned = plan(study)
    for number in range(planned.last + 1):
        for tensor, cost in planned.round_costs(number).items():
            entry = {"tensor": tensor, **asdict(cost)}
            same = [old for old in found if {key: old[key] for key in entry} == entry]
            if same:
                same[0]["last_round"] = number
            else:
                found.append(entry | {"first_round": number, "last_round": number})
    return list(found)
