"""The 40 studies, and what their authors expect: no expectation is made of a study's own forecast or outcome.

Those of real tables were written down before anything was looked at. Those of made-up populations were restated by the
rule below when `effect` came to mean what publications report; their outcomes were known by then.

Sources of the expectations. `cohort`: sizes, shares and prevalence are the law's own; the effect is what the better of
the study without noise and one regression reached in the mean of three other cohorts of the same population, rounded to
.01, as a publication would report it (`--expectations` prints them). `exam`: the same on three other draws of its law.
`diabetes`: Strack et al. 2014 (BioMed Research International 781670) for patients, races and readmission; .65 is the
usual AUC of regressions on readmission within 30 days (Kansagara et al. 2011, JAMA 306: .55 to .65 of most models; a
little above on this cohort). `adult`: the census shares and the quarter above 50,000 of its UCI page, .90 as
regressions on it are published. `heart`: sizes and half of the patients ill as on its UCI page, .88 as in Detrano et
al. 1989 and the many regressions since. The ten on tables that ship with packages: `packaged.yaml`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from bench.accuracy.forecast import laws, packaged, tables
from bench.accuracy.private_heads import FINDINGS, RANGE
from bench.places import DEMO
from deploy.demo.cohort import SITE_PATIENTS
from policies.accounting import accountant
from policies.accounting.completing import complete
from policies.documents.document import check_document
from policies.documents.draft import Draft
from policies.documents.study import DataSchema, Study
from silo_agent.data.records import Records

HELD_OUT: Final = 0.2
"""Share of a hospital's patients who do not train: one of `measuring.FOLDS` fifths of real ones."""
SITES: Final = (2750, 2125, 1625, 1375, 1000, 726)
"""Patients of the EXAM hospitals, of whom four fifths train: about as many as in `bench.accuracy.private_heads`."""
RACES: Final = (0.77, 0.19, 0.02, 0.02)
PEOPLE: Final = (0.29, 0.61, 0.05, 0.05)
AGES: Final = (0.12, 0.09, 0.42, 0.37)
GROUPS: Final = (0.54, 0.14, 0.16, 0.03, 0.13)


@dataclass(frozen=True)
class Case:
    """One study. `effect` and `prevalence` are what its author expects; `sizes` are all patients by hospital."""

    name: str
    kind: str
    epsilon: float
    sizes: tuple[int, ...]
    shares: tuple[float, ...]
    prevalence: float
    effect: float
    spread: float = 0.0
    difference: float = 0.0
    changes: tuple[tuple[str, Any], ...] = ()
    """Fields of `heads` that differ from the plan of the others."""

    @property
    def study(self) -> Study:
        """The study, with the noise that its epsilon allows; on a packaged table what a new study's draft becomes."""
        data = self._data()
        if self.kind == "packaged":
            return self._drafted(data)
        inputs = DataSchema.model_validate(data).inputs
        silos = tables.HEART if self.kind == "heart" else [f"hospital-{number}" for number in range(len(self.sizes))]
        document = {
            "version": 1,
            "name": self.name,
            "purpose": "Compare a forecast with what the study comes to.",
            "silos": list(silos),
            "min_silos": len(silos),
            "data": data,
            "model": {"encoder": "raw", "hidden": [], "representation": inputs, "seed": 1},
            "heads": {
                "solver": "hierarchical", "pooled_rounds": 3, "domain_rounds": 5, "clip": 0.5, "max_step": 30.0,
                "pooled_noise": 2.5, "domain_noise": 1.0, **dict(self.changes),
            },
            "encoder": {
                "rounds": 0, "steps": 1, "sampling_rate": 1.0, "batch_size": 1, "learning_rate": 1.0, "noise": 1.0,
            },
            "evaluation": {"bins": 10, "noise": 1.0},
            "privacy": {
                "delta": 1e-4 if self.kind == "heart" else 1e-5,
                "mode": "distributed",
                "colluders": 1,
                "count_noise": 40.0,
                "max_patients": 100_000,
            },
        }  # fmt: skip
        return accountant.calibrate(Study.model_validate(document), self.epsilon)

    def records(self, seed: int) -> Mapping[str, Records]:
        """The records of one run, by silo."""
        if self.kind == "cohort":
            return self._law.records(seed)[0]
        if self.kind == "exam":
            return laws.exam(self.study, seed)[0]
        if self.kind == "heart":
            return tables.heart()
        if self.kind == "packaged":
            return tables.dealt(packaged.records(self.name), self.sizes, seed)
        return tables.dealt(tables.adult() if self.kind == "adult" else tables.diabetes(), self.sizes, seed)

    def published(self, seed: int, cohort: int) -> tuple[Mapping[str, Records], Records]:
        """Of a made-up study another cohort of the same population, and its test patients; of `exam` another draw."""
        return laws.exam(self.study, seed + cohort) if self.kind == "exam" else self._law.records(seed, cohort)

    def test(self, seed: int) -> Records | None:
        """Patients whom no silo has, of a law; None of a data set."""
        if self.kind == "cohort":
            return self._law.records(seed)[1]
        return laws.exam(self.study, seed)[1] if self.kind == "exam" else None

    @property
    def _law(self) -> laws.LawOfPatients:
        return laws.LawOfPatients(self.sizes, self.shares, self.prevalence, self.spread, self.difference)

    @property
    def is_real(self) -> bool:
        """Whether the records are a real table's, all of them."""
        return self.needs_files or self.kind == "packaged"

    @property
    def needs_files(self) -> bool:
        """Whether they lie beside the repository, where they may not be at hand."""
        return self.kind in {"heart", "adult", "diabetes"}

    def _drafted(self, data: Mapping[str, Any]) -> Study:
        stated = {
            "name": self.name,
            "purpose": "Compare a forecast with what the study comes to.",
            "silos": [f"hospital-{number}" for number in range(len(self.sizes))],
            "data": data,
            "privacy": {"epsilon": self.epsilon},
            "expected": {
                "patients": [round(size * (1 - HELD_OUT)) for size in self.sizes],
                "shares": list(self.shares),
                "prevalence": self.prevalence,
                "effect": self.effect,
            },
        }
        return complete(check_document(stated, Draft, Path(self.name)), Path(self.name))

    def _data(self) -> dict[str, Any]:
        if self.kind == "packaged":
            return dict(packaged.TABLES[self.name].data)
        if self.kind == "cohort":
            return _cohort_data(len(self.shares))
        if self.kind == "exam":
            return _exam_data()
        return {"heart": tables.heart_data(), "adult": tables.ADULT, "diabetes": tables.DIABETES}[self.kind]


def _cohort_data(domains: int) -> dict[str, Any]:
    return {
        "label": {"column": "ill", "positive": [1], "negative": [0]},
        "domain": [
            {
                "column": "group",
                "values": list(range(domains)),
                "names": [f"group-{number}" for number in range(domains)],
            }
        ],
        "features": [
            {"kind": "number", "column": f"finding-{number}", "minimum": -RANGE, "maximum": RANGE}
            for number in range(FINDINGS)
        ],
    }


def _exam_data() -> dict[str, Any]:
    study = DEMO / "exam" / "study.yaml"
    return dict(yaml.safe_load(study.read_text(encoding="utf-8"))["data"])


def _cohort(name: str, epsilon: float, **changes: Any) -> Case:
    usual: dict[str, Any] = {
        "sizes": SITES, "shares": GROUPS, "prevalence": 0.12, "effect": 0.89, "spread": 2.2, "difference": 0.8,
    }  # fmt: skip
    return Case(f"cohort-{name}", "cohort", epsilon, **(usual | changes))


def _packaged(name: str, table: packaged.PackagedTable) -> Case:
    return Case(name, "packaged", table.epsilon, table.sizes, table.shares, table.prevalence, table.effect)


def _part(divisor: int) -> tuple[int, ...]:
    return tuple(size // divisor for size in SITES)


def _adult(name: str, epsilon: float, sizes: tuple[int, ...]) -> Case:
    return Case(f"adult-{name}", "adult", epsilon, sizes, PEOPLE, 0.24, 0.9)


def _diabetes(name: str, epsilon: float, sizes: tuple[int, ...]) -> Case:
    return Case(f"diabetes-{name}", "diabetes", epsilon, sizes, RACES, 0.11, 0.65)


_HEART: Final = (303, 294, 123, 200)
_STAYS: Final = (14_000,) * 5
CASES: Final = (
    *(_cohort(f"at-{epsilon:g}", epsilon) for epsilon in (1.0, 2.0, 4.0, 8.0)),
    _cohort("half", 2.0, sizes=_part(2), effect=0.88),
    _cohort("quarter", 1.0, sizes=_part(4), effect=0.87),
    _cohort("large", 0.5, sizes=tuple(4 * size for size in SITES)),
    _cohort("rare", 4.0, prevalence=0.03, effect=0.87),
    _cohort("common", 1.0, prevalence=0.3, effect=0.88),
    _cohort("two-groups", 1.0, shares=(0.5, 0.5), difference=0.3),
    _cohort("alike", 2.0, difference=0.0, effect=0.9),
    _cohort("apart", 4.0, difference=1.5),
    _cohort("weak", 4.0, spread=0.8, effect=0.69),
    _cohort("weaker", 8.0, spread=0.5, effect=0.62),
    _cohort("faint", 0.5, sizes=_part(4), spread=0.35, effect=0.57),
    _cohort("tiny", 0.5, sizes=(200,) * 3, spread=0.8, effect=0.66),
    _cohort("small", 1.0, sizes=(400,) * 3, spread=0.5, effect=0.6),
    _cohort("hopeless", 0.5, sizes=(300,) * 4, prevalence=0.1, spread=0.5, effect=0.6),
    *(Case(f"exam-at-{epsilon:g}", "exam", epsilon, SITE_PATIENTS, GROUPS, 0.12, 0.87) for epsilon in (1.0, 4.0, 8.0)),
    _diabetes("at-1", 1.0, _STAYS),
    _diabetes("at-4", 4.0, _STAYS),
    _diabetes("at-8", 8.0, _STAYS),
    _diabetes("small", 0.5, (1500,) * 3),
    _adult("at-half", 0.5, (7000,) * 4),
    _adult("at-4", 4.0, (7000,) * 4),
    _adult("small", 1.0, (500,) * 4),
    Case("heart-at-1", "heart", 1.0, _HEART, AGES, 0.55, 0.88),
    Case("heart-at-8", "heart", 8.0, _HEART, AGES, 0.55, 0.88),
    *(_packaged(name, table) for name, table in packaged.TABLES.items()),
)
