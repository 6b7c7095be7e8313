"""The mean of all silos' own models, for patients of whom nobody knows where they come from.

It needs the silos' local models in one place. A simulation has them; in a federation they never leave, and a study that
asks for such an ensemble is refused (`policies.documents.unaccountable`). Source: Liang et al. 2020 (LG-FedAvg, "New
Test"); docs/design/recipes.md, "Patients of unknown origin".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from deploy.local.simulate.entropy import RepeatableEntropy
from deploy.local.simulate.errors import SimulationError
from deploy.local.simulate.outcome import Array, RunMetrics, measure
from deploy.local.simulate.silos import Cohorts
from policies.documents.study import Study
from silo_agent.data.records import Records
from silo_agent.learning.model.shared import SharedModel
from silo_agent.learning.personal.cross_validation import personal_model
from silo_agent.learning.personal.unknown_domain import Model


def require_local_models(study: Study) -> None:
    """Raise `SimulationError` if the silos of this study have no models of their own."""
    if not study.composition.keeps and study.personal is None:
        msg = (
            f"an ensemble is of the silos' own models, and this study gives them none: recipe {study.recipe} keeps no"
            " part at the silos, and personal is absent; add personal, choose a recipe such as lg-fedavg, or leave"
            " --ensemble out"
        )
        raise SimulationError(msg)


def personal_models(
    study: Study, models: Mapping[int, SharedModel], cohorts: Cohorts, *, seed: int, device: str
) -> list[Model]:
    """Each silo's personal model after these rounds' shared models, as its process would train it."""
    if study.personal is None:
        return []
    return [
        personal_model(
            models, silo.training, study.personal, entropy=RepeatableEntropy(seed, f"{name} personal"), device=device
        )
        for name, silo in cohorts.silos.items()
    ]


def mean_of(models: Sequence[Model], records: Records) -> Array:
    """The mean of the models' predictions (n, C)."""
    said = [model.predict(records.inputs, records.domains, records.images) for model in models]
    return np.asarray(np.mean(said, axis=0), np.float64)


def measured_ensemble(study: Study, models: Sequence[Model], cohorts: Cohorts, *, seed: int) -> RunMetrics:
    """The ensemble's exact metrics on the test records, or on the held-out patients of all silos together."""
    parts = cohorts.measured
    return RunMetrics(study, seed, *measure(study, parts, [mean_of(models, records) for records in parts]))
