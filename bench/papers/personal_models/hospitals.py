"""The same terms on heart disease by hospital and on diabetes by specialty, through `fedward simulate`'s engine.

A study without noise trains a shared encoder and heads. Each hospital then trains its personal models from it
(`silo_agent.learning.personal.model`), and both are measured on its held-out patients. Coefficients were set before
any run: .1 for Ditto, which is the default, and 1 for a term that holds features.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any, Final

import numpy as np

from bench.accuracy.real import data_sets
from deploy.local.simulate.engine import simulate
from deploy.local.simulate.entropy import RepeatableEntropy
from deploy.local.simulate.silos import Cohorts
from deploy.local.simulate.variants import without_noise
from policies.documents.study import Personal, Study
from silo_agent.data.records import Records
from silo_agent.learning.figures.evaluation import auc
from silo_agent.learning.model.shared import SharedModel
from silo_agent.learning.personal.model import PersonalModel

SHARED: Final = "shared"
LEAST: Final = 5
"""A hospital counts if so many held-out patients have its rarer outcome, in every split."""
_DITTO: Final = 0.1
_HELD: Final = {"": {}, "cosine": {"cosine": 1.0}, "mk-mmd": {"mmd": 1.0}, "mmd-d": {"mmd_d": 1.0}}
_NOTHING: Final = {"ditto": 0.0, "mmd": 0.0, "cosine": 0.0, "mmd_d": 0.0}
METHODS: Final[dict[str, dict[str, float]]] = {
    " + ".join(filter(None, (with_ditto, held))) or "alone": _NOTHING
    | terms
    | ({"ditto": _DITTO} if with_ditto else {})
    for with_ditto in ("", "ditto")
    for held, terms in _HELD.items()
}
"""Coefficients of the personal model's terms."""
TRAINING: Final[dict[str, dict[str, Any]]] = {
    "heart": {"epochs": 20, "batch_size": 32, "learning_rate": 0.05},
    "diabetes": {"epochs": 1, "batch_size": 128, "learning_rate": 0.05},
}
"""Of the personal models."""
NAMES: Final = tuple(TRAINING)
_MODEL: Final = {"hidden": [16], "representation": 16, "gain": 2.0, "seed": 1}
_ENCODER: Final = {
    "steps": 50,
    "sampling_rate": 0.2,
    "learning_rate": 1.0,
    "momentum": 0.9,
    "clip": 4.0,
    "noise": 1.0,
    "max_update": 20.0,
}
_HEADS: Final = {
    "solver": "hierarchical",
    "pooled_rounds": 4,
    "domain_rounds": 3,
    "pooled_noise": 1.0,
    "domain_noise": 1.0,
    "max_step": 30.0,
}
_BATCH: Final = {"heart": 40, "diabetes": 1600}
"""About what a hospital draws for a step of the encoder: its gradients are divided by it."""


def study_of(name: str, study: Study) -> Study:
    """The bench's study with a small encoder, trained without noise."""
    document = study.model_dump(mode="json", exclude={"personal", "publish"})
    changed = {"model": _MODEL, "heads": _HEADS, "encoder": {**_ENCODER, "batch_size": _BATCH[name]}}
    return without_noise(Study.model_validate(document | changed))


def measure(name: str, splits: int, data: Path, first: int = 0) -> dict[str, Any]:
    """By method, the mean over hospitals of the AUC on held-out patients, one value for each split from `first` on."""
    began = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        loaded = data_sets.load(name, data, Path(folder))
        study = study_of(name, loaded.study)
        by_hospital = []
        for seed in range(first, first + splits):
            cohorts = loaded.source.draw(study, seed)
            by_hospital.append(of_split(name, simulate(study, cohorts, seed=seed).model, cohorts, seed))
            print(f"{name}, split {seed}, {time.process_time() - began:.0f} s", flush=True)
    hospitals = [silo for silo in by_hospital[0] if all(silo in split for split in by_hospital)]
    return {
        "hospitals": hospitals,
        "aucs": {
            method: [float(np.mean([split[silo][method] for silo in hospitals])) for split in by_hospital]
            for method in (SHARED, *METHODS)
        },
        "by_hospital": by_hospital,
        "seconds": time.process_time() - began,
    }


def of_split(name: str, shared: SharedModel, cohorts: Cohorts, seed: int) -> dict[str, dict[str, float]]:
    """AUC by hospital and method on the hospital's held-out patients."""
    by_method = {}
    for hospital, silo in cohorts.silos.items():
        test = silo.held_out
        if min(np.bincount(test.labels, minlength=2)) < LEAST:
            continue
        by_method[hospital] = {SHARED: _auc(shared, test)}
        for method, terms in METHODS.items():
            plan = Personal.model_validate({**TRAINING[name], **terms})
            own = PersonalModel.start(shared).train(
                shared, silo.training, plan, entropy=RepeatableEntropy("personal", seed, hospital)
            )
            by_method[hospital][method] = _auc(own, test)
    return by_method


def _auc(model: SharedModel | PersonalModel, test: Records) -> float:
    value = auc(model.predict(test.inputs, test.domains, test.images)[:, 1], test.labels)
    if value is None:
        msg = "a hospital has held-out patients of one outcome alone; raise LEAST"
        raise ValueError(msg)
    return value
