"""Models with random weights, one study for every kind that there is, and patients to predict.

Nothing is trained: what an export or a prediction computes does not depend on how good the weights are.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image as Pillow

from policies.documents.study import Label, Study
from policies.plan.families import form_of
from silo_agent.learning.alone.model import AloneModel
from silo_agent.learning.alone.regression import Regression
from silo_agent.learning.model.shared import SharedModel
from silo_agent.learning.personal.model import PersonalModel
from support.studies import tiny_study

GRAY = {"column": "scan", "channels": 1, "height": 16, "width": 20, "minimum": -100.0, "maximum": 3000.0}
COLOUR = {"column": "scan", "channels": 3, "height": 24, "width": 24}
THREE = {"column": "ill", "positive": [], "negative": [], "classes": [["well", 0], ["ill"], ["worse", "dead"]]}
DAYS = {"column": "ill", "positive": [], "negative": [], "minimum": -1, "maximum": 2.5}
DOSE = DAYS | {"minimum": 0.5, "maximum": 2.0, "scale": "log"}
VISITS = DAYS | {"minimum": 0, "maximum": 5, "scale": "log1p"}
MIXED = [
    {"kind": "number", "column": "age", "minimum": 18, "maximum": 90},
    {
        "kind": "number",
        "column": "lactate",
        "minimum": 0.1,
        "maximum": 20,
        "scale": "log",
        "missing": [-9],
        "fill": 1.5,
    },
    {"kind": "category", "column": "sex", "values": ["f", "m"], "missing": ["u"], "optional": True},
    {"kind": "category", "column": "grade", "values": [1, 2, 3]},
    {"kind": "number", "column": "visits", "minimum": 0, "maximum": 40, "scale": "log1p", "outside": "clip"},
]
WARDS = [
    {"column": "group", "values": ["a", 7], "names": ["a", "seven"]},
    {"column": "age", "edges": [40.0, 65.0], "names": ["young", "middle", "old"]},
]
STUDIES: Mapping[str, Mapping[str, Any]] = {
    "binary mlp": {"data": {"features": MIXED, "domain": WARDS, "missing": ["", "NA"]}},
    "stochastic mlp of three classes": {"data": {"label": THREE}, "encoder": {"cmi": 0.1}},
    "linear mlp": {"model": {"hidden": []}},
    "one matrix": {
        "model": {"encoder": "linear", "hidden": []},
        "heads": {"pooled_noise": 0.0, "domain_noise": 0.0},
        "encoder": {"noise": 0.0},
        "evaluation": {"noise": 0.0},
        "privacy": {"mode": "none", "count_noise": 0.0},
    },
    "raw inputs": {
        "data": {"features": MIXED},
        "model": {"encoder": "raw", "hidden": [], "representation": 10},
        "encoder": {"rounds": 0},
    },
    "raw inputs and random features": {
        "model": {"encoder": "raw", "hidden": [], "representation": 2, "random_features": 5, "bias": False},
        "encoder": {"rounds": 0},
    },
    "stochastic mlp beside its inputs and random features": {
        "data": {"label": THREE, "features": MIXED},
        "model": {"skip": True, "random_features": 3},
        "encoder": {"cmi": 0.1},
    },
    "stochastic cnn with features": {
        "data": {"label": THREE, "features": MIXED, "image": GRAY},
        "model": {"encoder": "cnn", "channels": [4, 6]},
        "encoder": {"cmi": 0.1},
    },
    "mlp of a number": {"data": {"label": VISITS, "features": MIXED, "domain": WARDS}, "evaluation": {"bins": 10}},
    "cnn": {"data": {"features": [], "image": COLOUR}, "model": {"encoder": "cnn", "channels": [4], "hidden": []}},
    "resnet18": {"data": {"features": [], "image": COLOUR}, "model": {"encoder": "resnet18"}},
}


def study_of(kind: str, **changes: Any) -> Study:
    """The study of a kind; its rounds are tiny_study's."""
    fields: dict[str, Any] = {**STUDIES[kind]}
    for name, change in changes.items():
        fields[name] = {**fields.get(name, {}), **change} if isinstance(change, dict) else change
    return tiny_study(**fields)


def random_model(study: Study, *, round_number: int = 2, seed: int = 1) -> SharedModel:
    """Weights near the public start and heads of clearly different domains."""
    rng, model = np.random.default_rng(seed), SharedModel.fresh(study)
    moved = model.encoder + rng.normal(0.0, 0.05, model.encoder.shape)
    heads = rng.normal(0.0, 3.0, model.heads.shape)
    return replace(model, encoder=moved.astype(np.float32), heads=heads, round=round_number)


def random_alone(study: Study, *, seed: int = 3) -> AloneModel:
    """A regression of random weights, as if of a hospital's records alone."""
    rng, rows = np.random.default_rng(seed), form_of(study.data.label.count).logits
    width = study.data.inputs + len(study.data.domains)
    part = Regression(np.zeros(width), np.ones(width), rng.normal(size=(rows, width)), rng.normal(size=rows))
    return AloneModel(study, study.rounds, part)


def random_personal(study: Study, *, seed: int = 2) -> PersonalModel:
    """Another model of random weights."""
    return PersonalModel.start(random_model(study, seed=seed))


def write_records(path: Path, study: Study, *, records: int = 24, seed: int = 3, label: bool = False) -> Path:
    """A CSV file in the study's schema, with its images beside it: every domain, absent cells, two codes unlisted."""
    rng, schema = np.random.default_rng(seed), study.data
    rows: list[dict[str, object]] = []
    for number in range(records):
        row: dict[str, object] = {"patient": f"p{number // 2}"}
        row |= {f.column: f.values[number % len(f.values)] for f in schema.domain if f.values}
        row |= {f.column: _cell(f, rng) for f in schema.features}
        if schema.image is not None:
            row[schema.image.column] = _write_image(path.parent / "scans" / f"{number}.png", schema.image.channels, rng)
        rows.append(row)
    rows[-1]["group"] = "elsewhere"
    rows[-2]["group"] = ""
    if label:
        for number, row in enumerate(rows):
            row[schema.label.column] = _outcome(schema.label, number)
    return write_rows(path, rows)


def write_rows(path: Path, rows: Sequence[Mapping[str, object]]) -> Path:
    """Write rows that all have the same columns."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def _outcome(label: Label, number: int) -> object:
    if label.number is not None:
        return label.number[number % 2]
    return label.codes[number % label.count][0]


def _cell(feature: Any, rng: np.random.Generator) -> object:
    if feature.kind == "category":
        choices = [*feature.values, *(feature.missing if feature.optional else ())]
        return choices[rng.integers(len(choices))]
    if feature.fill is not None and rng.random() < 0.3:
        return ["", *feature.missing][rng.integers(1 + len(feature.missing))]
    return round(float(rng.uniform(feature.minimum, feature.maximum)), 3)


def _write_image(path: Path, channels: int, rng: np.random.Generator) -> str:
    """Smooth noise of another size than the model's: 16-bit gray that leaves the public range, or RGB."""
    path.parent.mkdir(exist_ok=True)
    if channels == 1:
        pixels = rng.integers(0, 4000, (23, 31)).astype(np.uint16)
    else:
        pixels = rng.integers(0, 256, (30, 28, 3)).astype(np.uint8)
    Pillow.fromarray(pixels).save(path)
    return f"scans/{path.name}"
