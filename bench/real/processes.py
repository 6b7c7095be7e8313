"""One seed of a data set through real processes: a coordinator and an agent for each silo, TLS, sealed sums."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import yaml
from rich.console import Console

from bench.real import central
from bench.real.data_sets import DataSet, Split
from bench.real.judging import Floats, Judged, Runs
from bench.real.methods import HIERARCHICAL, Key
from bench.table import Figure
from deploy.demo import gather
from deploy.local.federation import Federation
from deploy.local.folders import empty
from deploy.local.processes import FederationError
from deploy.local.silo_policies import DATA_SET
from deploy.local.watching import bars, watch
from policies.accounting import accountant
from policies.documents.study import Study
from silo_agent.learning.model import SharedModel

EPSILON: Final = 4.0
SECONDS: Final = 900.0
NEAR: Final = 0.03
"""How far one draw's mean domain AUC may lie from the mean of the simulated ones."""
_POLICY: Final = Path(__file__).parents[2] / "deploy" / "demo" / "heart-disease" / "policy.yaml"


@dataclass(frozen=True)
class Run:
    """What a federation left: the model that all silos hold, and epsilon by ledger and as counted again."""

    model: SharedModel
    spent: float
    recomputed: float
    seconds: float


def through_processes(name: str, data: DataSet, runs: Mapping[Key, Runs], folder: Path) -> list[Figure]:
    """Run the study of the first split at epsilon 4, and compare. Raises `FederationError`."""
    study = accountant.calibrate(data.study, EPSILON)
    run = federated(data, study, folder, Console())
    cohorts = data.source.draw(study, 0)
    risks = [run.model.predict(test.inputs, test.domains)[:, 1] for test in cohorts.measured]
    found = Judged.of(central.measured(study, cohorts, 0, risks), cohorts, risks)
    start, mean = f"{name}, epsilon {EPSILON:g}, processes and sealed sums", float(np.nanmean(found.areas))
    beside = simulated(data, runs[HIERARCHICAL, EPSILON]) if (HIERARCHICAL, EPSILON) in runs else np.array([mean])
    return [
        Figure(
            f"{start}: mean domain AUC beside {len(beside)} simulated draws of this split",
            f"within {NEAR:g}",
            f"{mean:.4f} ({beside.min():.4f} to {beside.max():.4f}), {run.seconds:.0f} s",
            bool(abs(mean - beside.mean()) <= NEAR),
        ),
        Figure(
            f"{start}: largest epsilon in a ledger / counted again",
            f"<= {EPSILON:g}",
            f"{run.spent:.3f} / {run.recomputed:.3f}",
            max(run.spent, run.recomputed) <= EPSILON,
        ),
    ]


def simulated(data: DataSet, runs: Runs) -> Floats:
    """Mean domain AUC of the simulated draws on the split of the run with processes, (draws,)."""
    here = runs.groups == 0 if isinstance(data.source, Split) else np.ones(len(runs.groups), np.bool_)
    return np.asarray(np.nanmean(runs.areas[here], axis=1))


def federated(data: DataSet, study: Study, folder: Path, console: Console) -> Run:
    """Run a study with a coordinator and one agent for each silo. Raises `FederationError`."""
    empty(folder)
    study_file = folder / "study.yaml"
    study_file.write_text(yaml.safe_dump(study.model_dump(mode="json", exclude_defaults=True)), encoding="utf-8")
    federation = Federation(folder / "federation", study_file, data.files, policy_text(data, study))
    federation.prepare()
    with bars(console) as progress, federation:
        began = time.monotonic()
        federation.begin()
        watch(federation, progress, limit=SECONDS)
        federation.wait_for_silos()
        seconds = time.monotonic() - began
        models = [SharedModel.load(federation.state(silo) / f"model-{study.rounds}.safetensors") for silo in data.files]
        if len({model.digest for model in models}) != 1:
            msg = f"{study.name}: the hospitals do not hold the same model"
            raise FederationError(msg)
        budgets = gather.budgets(federation)
    spent, recomputed = max(own.spent for own in budgets), max(own.recomputed for own in budgets)
    return Run(models[0], spent, recomputed, seconds)


def policy_text(data: DataSet, study: Study) -> str:
    """A policy for every silo, made from the demo's: its unit, its split, its budget."""
    policy = yaml.safe_load(_POLICY.read_text(encoding="utf-8"))
    unit = "record" if study.data.patient is None else "patient"
    identified_by = list(data.identified_by or (study.data.patient,))
    name = data.source.key(DATA_SET, 0) if isinstance(data.source, Split) else f"{DATA_SET}-official"
    policy["data_set"] |= {"id": name, "unit": unit, "identified_by": identified_by, "holdout": data.holdout}
    policy["data_set"]["file"] = {"delimiter": ",", "columns": list(study.data.columns)}
    policy["budget"] |= {"epsilon": EPSILON, "delta": study.privacy.delta}
    policy["limits"] |= {
        "study_epsilon": EPSILON,
        "round_epsilon": EPSILON,
        "representation": study.model.representation,
    }
    policy |= {"min_silos": study.min_silos, "publish": list(study.publish)}
    return yaml.safe_dump(policy)
