"""What a study's model guarantees to a patient, in numbers and sentences: the same on the model card and in a report.

Epsilons of several hospitals are joint bounds (`accounting.overlap`), never sums.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from policies.accounting import accountant, overlap
from policies.documents.study import Study
from policies.plan.cost import Cost
from policies.plan.release import plan

_PROTECTS: Final = (
    "With or without any one {unit}'s records in the training, every outcome, this model included, is about equally"
    " likely: the chances differ by at most a factor of exp(epsilon), plus delta. That bounds what anybody can learn"
    " from the model about one {unit}, whatever else they know; the smaller epsilon, the less."
)
_NOISES: Final = {
    "local": "Every hospital's noise suffices by itself, whatever all others do.",
    "distributed": "Encoder noise suffices at each hospital by itself. In the other sums the hospitals' noise suffices"
    " together, as long as no more than {colluders} of them pool what they know.",
    "none": "No noise was added anywhere.",
}
NO_PROTECTION: Final = (
    "It does not hide what is true of patients in general, such as which values go with the outcome.",
    "It does not hide that the hospitals took part, nor what they publish elsewhere.",
    "It says nothing about the records on which the model is used: whoever sees a record's prediction learns of it.",
)
_AT_SEVERAL: Final = (
    "Somebody whose records lie at several of the hospitals loses more than epsilon, and maybe more than the sum of"
    " theirs: by the study's plan at most {bounds}. `fedward-silo ledger together` gives the bound of what was charged."
)
_CONTINUED: Final = (
    "It does not cover the model that the study started from. A {unit} whose records were in the training of that"
    " model, too, loses more than epsilon: the losses of both studies add up, and each hospital's ledger has the sum."
)
_PUBLIC: Final = "The study ran without noise, on data that every hospital declares public. The model protects nobody."


@dataclass(frozen=True)
class Guarantee:
    """Epsilon of the plan, of what one hospital was charged, and of a patient of several hospitals. May be infinite.

    `charged` is None if it is not known. `several`: by number of hospitals.
    """

    planned: float
    charged: float | None
    several: Mapping[int, float]
    delta: float
    unit: str
    relation: str
    noise_means: str
    protects: tuple[str, ...]
    does_not_protect: tuple[str, ...]

    @property
    def epsilon(self) -> float:
        """The larger of plan and charge."""
        return max(self.planned, self.charged or 0.0)

    @property
    def private(self) -> bool:
        """Whether anybody is protected."""
        return math.isfinite(self.epsilon)


def unit_of(study: Study) -> str:
    """What is protected: "patient" or "record"."""
    return "record" if study.data.patient is None else "patient"


def guarantee(study: Study, charged: Iterable[Cost] | None) -> Guarantee:
    """Price a study. `charged` has its costs in one hospital's ledger, and is None if they are unknown."""
    delta, unit = study.privacy.delta, unit_of(study)
    costs = plan(study).costs()
    planned = accountant.epsilon(costs, delta)
    several = overlap.of_plan(costs, len(study.silos), delta)
    spent = None if charged is None else accountant.epsilon(charged, delta)
    continued = [] if study.continues is None else [_CONTINUED.format(unit=unit)]
    if math.isfinite(max(planned, spent or 0.0)):
        told = " and ".join(f"{bound:.4f} at {many} of them" for many, bound in several.items())
        protects = [_PROTECTS.format(unit=unit)]
        against = [*continued, _AT_SEVERAL.format(bounds=told), *NO_PROTECTION]
    else:
        protects, against = [], [_PUBLIC, *continued, *NO_PROTECTION]
    return Guarantee(
        planned=planned,
        charged=spent,
        several=several,
        delta=delta,
        unit=unit,
        relation="adding or removing one " + ("patient with all records" if unit == "patient" else unit),
        noise_means=_NOISES[study.privacy.mode].format(colluders=study.privacy.colluders),
        protects=tuple(protects),
        does_not_protect=tuple(against),
    )
