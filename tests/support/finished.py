"""A hospital that took part in a study, which is over."""

from __future__ import annotations

import json

import numpy as np

from policies.ledger.ledger import Debit, Ledger
from policies.plan.release import plan
from protos.messages import Place, Tensor
from silo_agent.storage.state import State
from support.ledgers import NORTH
from support.local_federation import write_patients
from support.models import random_alone, random_model, random_personal
from support.small_cohort import policy_document, write_yaml

IN_THE_LAST_SUM = ("north", "south")
ESTIMATE = {"value": 0.8125, "low": 0.7, "high": 0.9}


def finished_hospital(folder, home, study):
    """Return its configuration's path. It has models of all kinds, results, a ledger, and records of 60 patients."""
    write_yaml(folder / "policy.yaml", policy_document("north-ward"))
    write_patients(folder / "north.csv", np.random.default_rng(1), np.array([[3.0, 0.0], [0.0, 3.0]]), patients=60)
    credential = {name: str(home / f"{name}.pem") for name in ("certificate", "key", "authority")}
    more = {"policy": "policy.yaml", "state": "state", "data": {"tiny": "north.csv"}}
    config = write_yaml(folder / "agent.yaml", {"coordinator": "localhost:1", **credential, **more})
    state = State(folder / "state")
    state.add_study(study.digest, study.canonical())
    state.commit(study.digest, study.rounds)
    state.promises.sign(Place(study.digest, study.rounds + 1, 1), Tensor.METRICS, IN_THE_LAST_SUM)
    kept = state.study_folder(study.digest)
    state.close()
    random_model(study).save(kept / f"model-{study.rounds}.safetensors")
    random_personal(study).save(kept / "personal.safetensors")
    random_alone(study).save(kept / "alone.safetensors")
    metrics = {"auc": ESTIMATE, "patients": {"value": 40.0, "low": 30.0, "high": 50.0}, "sizes": [20.0, 20.0]}
    results = {"study": study.digest, "domains": ["a", "b"], "by_domain": [metrics, metrics], "together": None}
    (kept / "results.json").write_text(json.dumps(results))
    Ledger.create(folder / "state" / "ledger.sqlite3", NORTH)
    with Ledger.open(folder / "state" / "ledger.sqlite3", NORTH, budget_epsilon=4.0) as ledger:
        for number in range(study.rounds + 2):
            ledger.charge(Debit(study.digest, "p" * 64, number, 1, plan(study).round_costs(number)))
    return config
