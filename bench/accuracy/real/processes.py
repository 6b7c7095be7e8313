"""One seed of a data set through real processes: a coordinator and an agent for each silo, TLS, sealed sums."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import numpy as np
import yaml

from bench.accuracy.real import central
from bench.accuracy.real.data_sets import RealDataSet, TenSplits
from bench.accuracy.real.judging import Floats, Judged, Runs
from bench.accuracy.real.methods import HIERARCHICAL, Key
from bench.places import DEMO
from bench.processes import budget_figures, federated
from bench.table import Criterion
from deploy.local.silo_policies import DATA_SET
from policies.accounting import accountant
from policies.documents.study import Study

EPSILON: Final = 4.0
NEAR: Final = 0.03
"""How far one draw's mean domain AUC may lie from the mean of the simulated ones."""
_POLICY: Final = DEMO / "heart-disease" / "policy.yaml"


def through_processes(name: str, data: RealDataSet, runs: Mapping[Key, Runs], folder: Path) -> list[Criterion]:
    """Run the study of the first split at epsilon 4, and compare. Raises `FederationError`."""
    study = accountant.calibrate(data.study, EPSILON)
    folder.mkdir(parents=True, exist_ok=True)
    study_file = folder / "study.yaml"
    study_file.write_text(yaml.safe_dump(study.model_dump(mode="json", exclude_defaults=True)), encoding="utf-8")
    ran = federated(study_file, data.files, policy_text(data, study), folder / "federation")
    cohorts = data.source.draw(study, 0)
    risks = [ran.model.predict(test.inputs, test.domains)[:, 1] for test in cohorts.measured]
    own = Judged.of(central.measured(study, cohorts, 0, risks), cohorts, risks)
    start, mean = f"{name}, epsilon {EPSILON:g}, processes and sealed sums", float(np.nanmean(own.areas))
    beside = simulated(data, runs[HIERARCHICAL, EPSILON]) if (HIERARCHICAL, EPSILON) in runs else np.array([mean])
    return [
        Criterion(
            f"{start}: mean domain AUC beside {len(beside)} simulated draws of this split",
            f"within {NEAR:g}",
            f"{mean:.4f} ({beside.min():.4f} to {beside.max():.4f}), {ran.seconds:.0f} s",
            bool(abs(mean - beside.mean()) <= NEAR),
        ),
        *budget_figures(ran.budgets, EPSILON, f"{start}: "),
    ]


def simulated(data: RealDataSet, runs: Runs) -> Floats:
    """Mean domain AUC of the simulated draws on the split of the run with processes, (draws,)."""
    here = runs.groups == 0 if isinstance(data.source, TenSplits) else np.ones(len(runs.groups), np.bool_)
    return np.asarray(np.nanmean(runs.areas[here], axis=1))


def policy_text(data: RealDataSet, study: Study) -> str:
    """A policy for every silo, made from the demo's: its unit, its split, its budget."""
    policy = yaml.safe_load(_POLICY.read_text(encoding="utf-8"))
    unit = "record" if study.data.patient is None else "patient"
    identified_by = list(data.identified_by or (study.data.patient,))
    name = data.source.key(DATA_SET, 0) if isinstance(data.source, TenSplits) else f"{DATA_SET}-official"
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
