"""Holds the shared model of a round against this hospital's own held-out patients, to warn its people.

A contribution that is flipped, or labels that are swapped by mistake, lie within every bound of an opened sum. But each
hospital has patients of its own on whom the model has to be better than chance, and not much worse than a regression
of the hospital's own. Where few are held out, those that trained are asked as well whether yes and no are swapped: a
model that has learned from them looks better on them, so they raise no false alarm. Guarantees that a warning is rare
where nothing is wrong: a figure must lie `_CLEARLY` times its 95 % interval away. Nothing here leaves the hospital, and
nothing follows from it but words: what acted by itself would let one held-out patient switch a whole hospital's
contribution on and off (docs/design/evaluation.md, "Warnings").

Only two classes have an AUC, so studies of other labels get no warning.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Final, Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit

from policies.plan.shapes import is_pooled
from silo_agent.data.records import Records
from silo_agent.learning.figures.evaluation import auc
from silo_agent.learning.figures.paired import PairedDifference, paired
from silo_agent.learning.model.shared import SharedModel
from silo_agent.learning.outcomes.family import Family, is_of_classes
from silo_agent.storage.model_warnings import Warned

Floats = NDArray[np.float64]
_CLEARLY: Final = 1.6
"""A normal figure is that many of its 95 % intervals away with a probability of .0008 on one side."""
_FEWEST: Final = 30
"""Patients below which nothing is said: the interval of fewer is not to be trusted so far out."""
_FEWEST_OF_A_CLASS: Final = 8
_LEAST_GAIN: Final = 0.02
"""A smaller difference of AUC is told to nobody, however certain it is."""


def warnings(
    model: SharedModel, training: Records, held_out: Records, device: torch.device | str = "cpu"
) -> tuple[Warned, ...]:
    """What this hospital's people should know of the shared model after a round, all patients first, then domains."""
    family = model.family
    if not (is_of_classes(family) and family.has_auc) or not len(held_out) or not len(training):
        return ()
    here = _Judged.of(model, held_out, device)
    own = _regressed(training, held_out, len(model.study.data.domains))
    return tuple(_warned(model, here, own, training, device))


@dataclass(frozen=True)
class _Judged:
    """What the shared model says of records, each array (n,)."""

    shared: Floats
    labels: NDArray[np.int64]
    domains: NDArray[np.int64]
    patients: NDArray[np.int64]

    @classmethod
    def of(cls, model: SharedModel, records: Records, device: torch.device | str) -> Self:
        shared = model.predict(records.inputs, records.domains, records.images, device)[:, 1]
        return cls(shared, records.labels, records.domains, records.patients)

    def within(self, rows: NDArray[np.bool_]) -> Self:
        return replace(self, **{field.name: getattr(self, field.name)[rows] for field in fields(self)})

    def with_others(self, other: Self) -> Self:
        """With records of other patients."""
        others = replace(other, patients=other.patients + self.patients.max(initial=-1) + 1)
        both = {one.name: (getattr(self, one.name), getattr(others, one.name)) for one in fields(self)}
        return replace(self, **{name: np.concatenate(values) for name, values in both.items()})

    @property
    def many(self) -> int:
        return len(np.unique(self.patients))

    @property
    def are_few(self) -> bool:
        """Whether nothing can be said of them."""
        classes = [len(np.unique(self.patients[self.labels == outcome])) for outcome in (0, 1)]
        return self.many < _FEWEST or min(classes) < _FEWEST_OF_A_CLASS

    def is_reversed(self, family: Family) -> bool:
        """Whether the model is clearly worse than chance for them."""
        chance = np.full((len(self.labels), 2), 0.5)
        found = paired(chance, _both(self.shared), self.labels, self.patients, family).auc
        return found is not None and _is_clear(found, -1.0)


def _warned(
    model: SharedModel, held_out: _Judged, own: Floats, training: Records, device: torch.device | str
) -> Iterator[Warned]:
    names: list[str | None] = [None, *model.study.data.domains]
    for number, domain in enumerate(names):
        rows = np.ones(len(own), np.bool_) if domain is None else held_out.domains == number - 1
        judged = held_out.within(rows)
        few = judged.are_few
        if few:
            judged = judged.with_others(_trained(model, training, None if domain is None else number - 1, device))
        area = auc(judged.shared, judged.labels)
        if area is None or judged.are_few:
            continue
        if judged.is_reversed(model.family):
            yield Warned("reversed", domain, judged.many, area, None)
        elif not (few or _is_early(model)):
            both = _both(judged.shared), _both(own[rows])
            gain = paired(*both, judged.labels, judged.patients, model.family).auc
            if gain is not None and gain.value > _LEAST_GAIN and _is_clear(gain, 1.0):
                yield Warned("worse", domain, judged.many, area, auc(own[rows], judged.labels))


def _is_early(model: SharedModel) -> bool:
    """Whether the model has one head for all patients yet, and rounds to come: then it serves many groups worse."""
    return is_pooled(model.study, model.round) and model.round < model.study.rounds


def _trained(model: SharedModel, training: Records, domain: int | None, device: torch.device | str) -> _Judged:
    """What the model says of the records that trained, of one domain or of all."""
    if domain is None:
        return _Judged.of(model, training, device)
    concerned = np.zeros(training.patient_count, np.bool_)
    concerned[training.patients[training.domains == domain]] = True
    judged = _Judged.of(model, training.of_patients(concerned), device)
    return judged.within(judged.domains == domain)


def _is_clear(difference: PairedDifference, sign: float) -> bool:
    """Whether a difference lies clearly on one side of 0."""
    if difference.low is None or difference.high is None:
        return False
    return sign * difference.value > _CLEARLY * (difference.high - difference.low) / 2.0


def _both(positive: Floats) -> Floats:
    return np.column_stack([1.0 - positive, positive])


def _regressed(training: Records, held_out: Records, domains: int) -> Floats:
    """Scores (n,) of held-out records by a logistic regression of the training records, with a ridge.

    It reads the inputs, each with deviation 1 and a Gaussian prior of deviation 1, and the domains.
    """
    seen, wanted = (_columns(records, domains) for records in (training, held_out))
    middle, spread = seen.mean(axis=0), seen.std(axis=0)
    spread[spread == 0.0] = 1.0
    seen, wanted = (seen - middle) / spread, (wanted - middle) / spread
    labels, weights = training.labels.astype(np.float64), training.weights

    def objective(change: Floats) -> tuple[float, Floats]:
        logits = seen @ change[1:] + change[0]
        loss = weights @ (np.logaddexp(0.0, logits) - labels * logits) + change[1:] @ change[1:] / 2.0
        error = weights * (expit(logits) - labels)
        return float(loss), np.concatenate([[error.sum()], seen.T @ error + change[1:]])

    found = minimize(objective, np.zeros(seen.shape[1] + 1), jac=True, method="L-BFGS-B")
    return np.asarray(expit(wanted @ found.x[1:] + found.x[0]), np.float64)


def _columns(records: Records, domains: int) -> Floats:
    own = np.eye(domains)[records.domains]
    return np.concatenate([records.inputs[:].astype(np.float64), own], axis=1)
