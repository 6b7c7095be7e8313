"""Made-up patients as a study expects them, by the law of `fedward-silo plan`: both commands mean the same.

A seed draws one law of the forecast (`silo_agent.forecast.made_up_patients`) and its patients. The effect is what the
study, or one regression on all of its patients, reaches without noise in the mean. So what a simulation of many seeds
reaches is what the forecast says, but for what the forecast simplifies: it samples no patients and clips no gradient of
an encoder (`forecast.simulated_rounds`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Final

import numpy as np

from common.canonical_json import canonical_json
from deploy.local.simulate.errors import SimulationError
from deploy.local.simulate.silos import Cohorts, Silo
from policies.documents.study import Study
from silo_agent.forecast.assumptions import Asked, expectations
from silo_agent.forecast.forecast import counted, limit_of
from silo_agent.forecast.made_up_patients import Law

PATIENTS: Final = 750
"""Who train at each silo, if nobody says how many."""
TEST: Final = 10_000


@dataclass(frozen=True)
class ExpectedPatients:
    """The patients of every seed. `limit` is what the law's best model reaches, with any number of patients.

    `asked` has one effect, which is what `limit` was found for.
    """

    asked: Asked
    limit: float
    test: int = TEST

    @property
    def digest(self) -> str:
        """SHA-256 over the law, lowercase hex. The study and a seed say the rest."""
        said = {"law": "expected", "limit": self.limit, "test": self.test, **asdict(self.asked)}
        return hashlib.sha256(canonical_json(said).encode()).hexdigest()

    @property
    def sizes(self) -> tuple[int, ...]:
        """Patients of each silo, those who are held out among them."""
        return tuple(max(round(count / (1.0 - self.asked.held_out)), 2) for count in self.asked.patients)

    def draw(self, study: Study, seed: int) -> Cohorts:
        """Patients of one seed, who follow the law of that seed."""
        law = Law(study, self.asked, self.limit, np.random.default_rng(seed))
        share = self.asked.held_out
        silos = {
            name: Silo.split(law.patients(size), f"{name} {seed}", share)
            for name, size in zip(study.silos, self.sizes, strict=True)
        }
        domains = len(study.data.domains)
        each = np.repeat(np.arange(domains), -(-self.test // domains))[: self.test]
        return Cohorts(silos, law.of_domains(each)[0])


def expected(
    study: Study,
    *,
    patients: Sequence[int] = (),
    prevalence: float | None = None,
    effect: float | None = None,
    held_out: float,
    done: Callable[[int], object] = int,
) -> ExpectedPatients:
    """What a study expects, replaced by what is given. `done` hears of each draw on which the law is set.

    If nobody expects an effect, it is the middle one of those that the forecast goes through. Of a recipe that has no
    forecast, the law's best model reaches the effect. Raises `LearningError` for values that do not fit the study, and
    `SimulationError` for a study with images.
    """
    if study.data.image is not None:
        msg = "made-up records have no images; give --data with public ones"
        raise SimulationError(msg)
    sizes = tuple(patients) or (() if study.expected is not None else (PATIENTS,))
    asked = expectations(study, patients=sizes, prevalence=prevalence, effect=effect, held_out=held_out)
    if asked is None:
        msg = "a study that expects something expects patients"
        raise AssertionError(msg)
    wanted = asked.effects[len(asked.effects) // 2]
    asked = replace(asked, effects=(wanted,))
    forecast = study.composition.solved and study.continues is None
    limit = limit_of(study, asked, wanted, counted(study, asked), done=done) if forecast else wanted
    return ExpectedPatients(asked, limit)
