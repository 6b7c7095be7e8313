"""Studies, policies and ledgers that the tests of this package bend one field at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from policies.accounting import accountant
from policies.documents.policy import Policy
from policies.documents.study import Study
from policies.ledger.chain import Genesis
from policies.ledger.ledger import Ledger

DELTA = 1e-5
STUDY: dict[str, Any] = {
    "version": 1,
    "name": "heart",
    "purpose": "Predict disease per ethnic group.",
    "silos": ["site-1", "site-2", "site-3", "site-4"],
    "min_silos": 3,
    "data": {
        "patient": "pid",
        "label": {"column": "y", "positive": [1], "negative": [0]},
        "domain": [{"column": "group", "values": ["a", "b"], "names": ["group a", "group b"]}],
        "features": [
            {"kind": "number", "column": "age", "minimum": 0, "maximum": 120, "fill": 50},
            {"kind": "category", "column": "sex", "values": ["f", "m"], "optional": True},
        ],
    },
    "model": {"hidden": [8], "representation": 4, "seed": 1},
    "heads": {"pooled_rounds": 2, "domain_rounds": 3, "pooled_noise": 15, "domain_noise": 20},
    "encoder": {"steps": 20, "sampling_rate": 0.02, "batch_size": 32, "learning_rate": 0.1, "noise": 1.5},
    "evaluation": {"noise": 8},
    "privacy": {"delta": DELTA, "mode": "distributed", "colluders": 1, "count_noise": 30},
}
POLICY: dict[str, Any] = {
    "version": 4,
    "contact": "dpo@hospital.example",
    "data_set": {
        "id": "cardiology",
        "unit": "patient",
        "identified_by": ["pid"],
        "holdout": 0.2,
        "file": {"delimiter": ",", "columns": []},
    },
    "budget": {"epsilon": 4.0, "delta": DELTA, "relation": "add_remove", "expires": "2099-12-31"},
    "min_silos": 3,
    "noise_modes": ["local", "distributed"],
    "colluders": 1,
    "encoder_sealing": "ring",
    "smallest_domain": 0,
    "limits": {
        "study_epsilon": 2.0,
        "round_epsilon": 2.0,
        "rounds": 10,
        "charged_attempts": 2,
        "architectures": ["mlp", "cnn", "resnet18"],
        "encoder_weights": 1000,
        "representation": 16,
        "sampling_rate": 0.1,
        "clip": 1.0,
        "memory_mib": 512,
    },
    "split": {"encoder": 1.0, "heads": 1.0, "counts": 1.0, "metrics": 1.0},
    "spelling": {"missing": None, "codes": {}},
    "publish": ["auc", "accuracy", "balanced_accuracy", "calibration", "patients"],
    "retention_days": 365,
    "studies": None,
    "approvers": None,
}
CARDIOLOGY = Genesis("cardiology", 0.2, DELTA, unit="patient", identified_by=("pid",), delimiter=",", columns=())


def bent(document: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """The document with `a.b` style fields replaced."""
    copy = deepcopy(document)
    for field, value in changes.items():
        *way, last = field.split(".")
        at = copy
        for step in way:
            at = at[step]
        at[last] = value
    return copy


@pytest.fixture(scope="session")
def make_study() -> Callable[..., Study]:
    return lambda changes=None: Study.model_validate(bent(STUDY, changes or {}))


@pytest.fixture(scope="session")
def make_policy() -> Callable[..., Policy]:
    return lambda changes=None: Policy.model_validate(bent(POLICY, changes or {}))


@pytest.fixture
def composed() -> Callable[[], tuple[int, int]]:
    """Counts what the accountant has computed since the test began: kinds of release, and their compositions."""
    caches = (accountant._single, accountant._composed)
    for cache in (accountant._cohort_epsilon, *caches):
        cache.cache_clear()
    return lambda: (caches[0].cache_info().misses, caches[1].cache_info().misses)


@pytest.fixture
def ledger_path(tmp_path: Path) -> Path:
    path = tmp_path / "ledger.db"
    Ledger.create(path, CARDIOLOGY)
    return path


@pytest.fixture
def open_ledger(ledger_path: Path) -> Iterator[Callable[..., Ledger]]:
    """Opens the test's ledger; what is still open at the end is closed."""
    opened: list[Ledger] = []

    def opener(*, budget_epsilon: float = 4.0, **changes: Any) -> Ledger:
        ledger = Ledger.open(ledger_path, replace(CARDIOLOGY, **changes), budget_epsilon=budget_epsilon)
        opened.append(ledger)
        return ledger

    yield opener
    for ledger in opened:
        ledger.close()
