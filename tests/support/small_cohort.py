"""A small federation's data: made-up patients of two domains at a few sites, and the study that fits them."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from policies.documents.policy import VERSION, Policy

FEATURES = ("age", "pressure", "glucose", "lactate", "rate", "oxygen")
SILOS = ("north", "south", "west")


def write_sites(folder: Path, *, patients: int = 120, seed: int = 1, silos: Iterable[str] = SILOS) -> dict[str, Path]:
    """One CSV file per silo; some patients have two records; `west` has one domain only."""
    rng = np.random.default_rng(seed)
    heads = rng.normal(size=(2, len(FEATURES)))
    folder.mkdir(parents=True, exist_ok=True)
    files = {}
    for silo in silos:
        files[silo] = folder / f"{silo}.csv"
        with files[silo].open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["patient", "group", *FEATURES, "ill"])
            for number in range(patients):
                group = 1 if silo == "west" else int(rng.integers(2))
                for _ in range(1 + int(rng.random() < 0.2)):
                    x = np.clip(rng.normal(size=len(FEATURES)), -3, 3)
                    ill = int(rng.random() < 1 / (1 + np.exp(-2 * x @ heads[group])))
                    writer.writerow([f"{silo}-{number}", "ab"[group], *np.round(x, 3), ill])
    return files


def study_document(**changes: object) -> dict[str, object]:
    """A study of three short rounds that costs little epsilon."""
    document: dict[str, object] = {
        "version": 1,
        "name": "small",
        "purpose": "Show that the parts fit together.",
        "silos": list(SILOS),
        "min_silos": 3,
        "data": {
            "patient": "patient",
            "label": {"column": "ill", "positive": [1], "negative": [0]},
            "domain": [{"column": "group", "values": ["a", "b"], "names": ["a", "b"]}],
            "features": [{"column": name, "kind": "number", "minimum": -3, "maximum": 3} for name in FEATURES],
        },
        "model": {"hidden": [8], "representation": 4, "seed": 7},
        "heads": {"pooled_rounds": 1, "domain_rounds": 2, "pooled_noise": 8.0, "domain_noise": 8.0},
        "encoder": {
            "steps": 3,
            "sampling_rate": 0.5,
            "batch_size": 50,
            "learning_rate": 0.5,
            "noise": 4.0,
            "l2r": 0.001,
            "cmi": 0.001,
        },
        "evaluation": {"bins": 6, "noise": 2.0},
        "personal": {"epochs": 1},
        "privacy": {"delta": 1e-5, "mode": "local", "count_noise": 20.0, "max_patients": 1000},
        "deadlines": dict.fromkeys(("offer", "keys", "train", "open", "solve"), 600),  # longer than any machine is busy
        "max_attempts": 3,
    }
    return {**document, **changes}


def policy_document(data_set: str = "{data_set}", *, public: bool = False, **changes: object) -> dict[str, object]:
    """A policy that allows the study."""
    document: dict[str, object] = {
        "version": 3,
        "contact": "data-protection@hospital.example",
        "data_set": {
            "id": data_set,
            "unit": "patient",
            "identified_by": ["patient"],
            "holdout": 0.2,
            "public": public,
        },
        "budget": {"epsilon": 4.0, "delta": 1e-5, "relation": "add_remove", "expires": "2099-12-31"},
        "min_silos": 3,
        "noise_modes": ["local", "distributed"],
        "colluders": 1,
        "encoder_sealing": "ring",
        "smallest_domain": 0,
        "limits": {
            "study_epsilon": 4.0,
            "round_epsilon": 4.0,
            "rounds": 20,
            "charged_attempts": 3,
            "architectures": ["mlp", "cnn", "resnet18"],
            "encoder_weights": 10_000,
            "representation": 16,
            "sampling_rate": 1.0,
            "clip": 10.0,
        },
        "split": {"encoder": 1.0, "heads": 1.0, "counts": 1.0, "metrics": 1.0},
        "publish": ["auc", "accuracy", "balanced_accuracy", "calibration", "patients", "mae", "r2", "mean_error"],
        "retention_days": 365,
        "studies": None,
        "approvers": None,
    }
    return {**document, **changes}


def policy_of_today(data_set: str, **changes: object) -> Policy:
    """The same policy in the newest version, which has fields of its own."""
    document: Any = policy_document(data_set)
    document["version"] = VERSION
    document["data_set"]["file"] = {"delimiter": ",", "columns": []}
    document["limits"]["memory_mib"] = 16_384
    return Policy.model_validate({**document, **changes})


def write_yaml(path: Path, document: dict[str, object]) -> Path:
    """Write a document."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return path
