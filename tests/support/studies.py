"""The smallest study that has every kind of sum: round 0, one pooled round with the encoder, one last round."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from policies.documents.study import Study

TINY: dict[str, Any] = {
    "version": 1,
    "name": "tiny",
    "purpose": "Test that the parts fit together.",
    "silos": ["north", "south", "west"],
    "min_silos": 3,
    "data": {
        "patient": "patient",
        "label": {"column": "ill", "positive": [1], "negative": [0]},
        "domain": [{"column": "group", "values": ["a", "b"], "names": ["a", "b"]}],
        "features": [
            {"kind": "number", "column": "age", "minimum": 0, "maximum": 120},
            {"kind": "number", "column": "lactate", "minimum": 0, "maximum": 10},
        ],
    },
    "model": {"hidden": [3], "representation": 2, "seed": 1},
    "heads": {"pooled_rounds": 1, "domain_rounds": 1, "pooled_noise": 15.0, "domain_noise": 20.0},
    "encoder": {"steps": 2, "sampling_rate": 0.1, "batch_size": 8, "learning_rate": 0.1, "noise": 4.0},
    "evaluation": {"bins": 4, "noise": 8.0},
    "privacy": {"delta": 1e-5, "mode": "local", "colluders": 1, "count_noise": 30.0, "max_patients": 1000},
    "deadlines": dict.fromkeys(("offer", "keys", "train", "open", "solve"), 600.0),  # longer than any machine is busy
    "max_attempts": 3,
}


def tiny_study(**changes: Any) -> Study:
    """The tiny study with fields replaced; a mapping changes only the fields it names."""
    return Study.model_validate(tiny_document(**changes))


def tiny_document(**changes: Any) -> dict[str, Any]:
    """The same as plain data, to be written as YAML or bent further."""
    return _merged(TINY, changes)


def with_label(label: Mapping[str, Any]) -> Study:
    """The tiny study with another outcome: several classes, or a number, which has no bins."""
    document = tiny_document()
    document["data"]["label"] = dict(label)
    if "minimum" in label:
        del document["evaluation"]["bins"]
    return Study.model_validate(document)


def _merged(document: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    merged = deepcopy(dict(document))
    for field, value in changes.items():
        old = merged.get(field)
        merged[field] = _merged(old, value) if isinstance(old, dict) and isinstance(value, Mapping) else value
    return merged
