"""Five recipes, one for each paper, through the real federation: heart disease at four hospitals, at epsilon 8.

A coordinator and four agents with TLS, ledgers and sealed sums run each study once, on the first split of the
published files. Each agent's own processes then give what a hospital has: the shared model, complete with the parts
that the recipe keeps there, and the personal model. Beside it stand `DRAWS` simulated runs of the same split. What is
wanted: every study runs to its end within its budget, and lies among what simulations of it give.

FedDAR's own heads are for public data; its private form is `second-order`. Rates were chosen on splits named tune-0 to
tune-2.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import yaml
from sklearn.metrics import roc_auc_score

from bench.accuracy import hospitals
from bench.accuracy.hospitals import Array, HospitalSplit
from bench.places import DEMO, HEART_DISEASE, OUT
from bench.processes import Ran, budget_figures, federated, or_failure
from bench.table import Criterion, judge
from deploy.demo.sources import DemoSource, load_source
from deploy.local.parties import FederationPaths
from deploy.local.simulate.many import simulate_seeds
from deploy.local.simulate.silos import Cohorts, Fixed, Silo
from policies.accounting import accountant
from policies.documents.study import Study
from silo_agent.learning.model import kept_parts
from silo_agent.learning.personal.model import PersonalModel
from silo_agent.storage.folders import StudyFolder

EPSILON: Final = 8.0
SPLIT: Final = "heart-1"
DRAWS: Final = 5
NEAR: Final = 0.04
"""How far the agents' AUC may lie from the mean of the simulated draws: four deviations of one draw."""

ENVIRONMENT: Final = "sex"

Changes = dict[str, Any]
AVERAGED: Final[Changes] = {
    "model": {"encoder": "mlp", "hidden": [], "representation": 8},
    "heads": {
        "solver": "newton",
        "pooled_rounds": 8,
        "domain_rounds": 0,
        "pooled_noise": 1.0,
        "domain_noise": 1.0,
        "pooled_share": 0.3,
        "clip": 1.0,
    },
    "encoder": {
        "rounds": None,
        "steps": 10,
        "sampling_rate": 0.5,
        "batch_size": 60,
        "learning_rate": 2.0,
        "clip": 0.5,
        "noise": 1.0,
        "momentum": 0.5,
        "max_update": 4.0,
    },
    "privacy": {"mode": "local", "count_noise": 30.0},
}
"""One head for all, trained with the encoder in eight rounds of ten steps."""
PERSONAL: Final[Changes] = {"epochs": 2, "learning_rate": 0.05, "batch_size": 64}


@dataclass(frozen=True)
class Recipe:
    """A recipe, its paper, and what its study changes."""

    name: str
    paper: str
    changes: Changes = field(default_factory=dict)
    environment: bool = False
    """Whether sexes are environments; the column is then no feature and no domain."""
    averaged: bool = True


RECIPES: Final = (
    Recipe("second-order", "FedDAR", averaged=False),
    Recipe("ditto", "Ditto with adaptive MMD", {"personal": PERSONAL | {"ditto": 0.1, "mmd": 0.1}}),
    Recipe("fedsr", "FedSR", {"encoder": {"l2r": 1e-3, "cmi": 1e-3}}),
    Recipe(
        "perinvfl",
        "PerInvFL",
        {"personal": PERSONAL | {"ditto": 0.1, "irm": 1.0}},
        environment=True,
    ),
    Recipe("lg-fedavg", "LG-FedAvg"),
)


def main() -> int:
    """Run every recipe, print, judge."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--data", type=Path, default=HEART_DISEASE, help="folder with processed.*.data")
    arguments.add_argument("--only", nargs="+", choices=[one.name for one in RECIPES])
    arguments.add_argument("--workers", type=int, default=2)
    given = arguments.parse_args()
    source = load_source(DEMO)
    files = {silo: given.data / name for silo, name in source.files.items()}
    for file in files.values():
        if not file.is_file():
            print(f"there is no file {file}; give the folder of the UCI files with DATA=<folder>")
            return 1
    figures: list[Criterion] = []
    for recipe in RECIPES:
        if given.only is None or recipe.name in given.only:
            figures += of_recipe(recipe, source, files, given.workers)
    return judge("recipes", figures, {"split": SPLIT, "draws": DRAWS})


def of_recipe(recipe: Recipe, source: DemoSource, files: Mapping[str, Path], workers: int) -> list[Criterion]:
    """Simulate a recipe's study, run it with agents, and compare."""
    source = replace(source, study=study_of(recipe, source))
    study, cohorts = source.study, hospitals.draw_cohorts(source, files, SPLIT)
    silos = Cohorts({name: Silo(cohorts.training[name], cohorts.held_out[name]) for name in cohorts.training})
    outcomes = simulate_seeds(study, Fixed(silos), range(1, DRAWS + 1), workers=workers)
    simulated = np.array([outcome.together.auc for outcome in outcomes], np.float64)
    name = f"{recipe.name} ({recipe.paper})"
    return or_failure(name, lambda: through_agents(name, source, files, cohorts, simulated))


def study_of(recipe: Recipe, source: DemoSource) -> Study:
    """The demo's study with a recipe, its noise scaled so that all of it costs `EPSILON`."""
    document = source.study.model_dump(mode="json", exclude_defaults=True) | {"recipe": recipe.name}
    for changes in (AVERAGED if recipe.averaged else {}, recipe.changes):
        document = merged(document, changes)
    document["name"] = f"heart-{recipe.name}"
    if recipe.environment:
        data = document["data"]
        data["environment"] = {"column": ENVIRONMENT, "values": [0, 1]}
        for part in ("domain", "features"):
            data[part] = [column for column in data[part] if column["column"] != ENVIRONMENT]
    return accountant.calibrate(Study.model_validate(document, strict=False), EPSILON)


def merged(document: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The document with the fields of `changes` replaced; sections are merged."""
    result = dict(document)
    for name, value in changes.items():
        old = result.get(name)
        result[name] = merged(old, value) if isinstance(value, Mapping) and isinstance(old, Mapping) else value
    return result


def through_agents(
    name: str, source: DemoSource, files: Mapping[str, Path], cohorts: HospitalSplit, simulated: Array
) -> list[Criterion]:
    """The study with a coordinator and four agents. Raises `FederationError`."""
    study = source.study
    folder = OUT / "recipes" / study.name
    folder.mkdir(parents=True, exist_ok=True)
    study_file = folder / "study.yaml"
    study_file.write_text(yaml.safe_dump(study.model_dump(mode="json", exclude_defaults=True)), encoding="utf-8")
    ran = federated(study_file, files, policy_text(source), folder / "federation")
    homes = {silo: FederationPaths(folder / "federation").state(silo) / "studies" / study.digest for silo in files}
    complete = {silo: kept_parts.load(StudyFolder(home).model(study.rounds)) for silo, home in homes.items()}
    shared = area(
        {s: m.predict(cohorts.held_out[s].inputs, cohorts.held_out[s].domains) for s, m in complete.items()}, cohorts
    )
    own = personal(homes, cohorts) if study.personal is not None else None
    return figures(name, ran, simulated, shared, own)


def figures(name: str, ran: Ran, simulated: Array, shared: float, own: float | None) -> list[Criterion]:
    """A recipe's rows."""
    shown = f"{shared:.3f}, beside {simulated.mean():.3f} ({simulated.min():.3f} to {simulated.max():.3f}) simulated"
    personal_auc = "" if own is None else f"; personal models {own:.3f}"
    return [
        Criterion(
            f"{name}: AUC of all held-out patients",
            f"within {NEAR:g} of simulations",
            f"{shown}{personal_auc}; {ran.seconds:.0f} s, {ran.bytes_sent / 1e6:.1f} MB a silo",
            bool(abs(shared - simulated.mean()) <= NEAR),
        ),
        *budget_figures(ran.budgets, EPSILON, f"{name}: "),
    ]


def personal(homes: Mapping[str, Path], cohorts: HospitalSplit) -> float:
    """AUC of all held-out patients under each hospital's own personal model."""
    models = {silo: PersonalModel.load(StudyFolder(home).personal) for silo, home in homes.items()}
    held = cohorts.held_out
    return area({silo: model.predict(held[silo].inputs, held[silo].domains) for silo, model in models.items()}, cohorts)


def area(said: Mapping[str, Array], cohorts: HospitalSplit) -> float:
    """AUC of all hospitals' held-out records together, from probabilities (n, 2) by hospital."""
    risks: Sequence[Array] = [said[silo][:, 1] for silo in said]
    return float(roc_auc_score(np.concatenate([cohorts.held_out[s].labels for s in said]), np.concatenate(risks)))


def policy_text(source: DemoSource) -> str:
    """The demo's policy for every hospital, which lets encoders be trained with all of the budget."""
    policy = yaml.safe_load(hospitals.policy_text(source, SPLIT))
    policy["split"]["encoder"] = 1.0
    return yaml.safe_dump(policy)


if __name__ == "__main__":
    sys.exit(main())
