"""Holds the shared model of a round against this hospital's own held-out patients, to warn its people.

A contribution that is flipped, or labels that are swapped by mistake, lie within every bound of an opened sum. But each
hospital has patients of its own on whom the model has to be better than chance, and not much worse than a regression
of the hospital's own. Guarantees that a warning is rare where nothing is wrong: a figure must lie `_CLEARLY` times its
95 % interval away. Nothing here leaves the hospital, and nothing follows from it but words: what acted by itself would
let one held-out patient switch a whole hospital's contribution on and off (docs/design/evaluation.md, "Warnings").

Only two classes have an AUC, so studies of other labels get no warning.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit

from silo_agent.data.records import Records
from silo_agent.learning.evaluation.evaluation import auc
from silo_agent.learning.evaluation.paired import Difference, paired
from silo_agent.learning.families.family import is_of_classes
from silo_agent.learning.model import SharedModel
from silo_agent.storage.warned import Warned

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
    shared = model.predict(held_out.inputs, held_out.domains, held_out.images, device)[:, 1]
    own = _regressed(training, held_out, len(model.study.data.domains))
    return tuple(_warned(model, shared, own, held_out))


def _warned(model: SharedModel, shared: Floats, own: Floats, held_out: Records) -> Iterator[Warned]:
    names: list[str | None] = [None, *model.study.data.domains]
    for number, domain in enumerate(names):
        rows = np.ones(len(held_out), np.bool_) if domain is None else held_out.domains == number - 1
        labels, patients = held_out.labels[rows], held_out.patients[rows]
        many = len(np.unique(patients))
        classes = [len(np.unique(patients[labels == outcome])) for outcome in (0, 1)]
        area = auc(shared[rows], labels)
        if area is None or many < _FEWEST or min(classes) < _FEWEST_OF_A_CLASS:
            continue
        by_chance = paired(np.full((len(labels), 2), 0.5), _both(shared[rows]), labels, patients, model.family).auc
        if by_chance is not None and _is_clear(by_chance, -1.0):
            yield Warned("reversed", domain, many, area, None)
            continue
        gain = paired(_both(shared[rows]), _both(own[rows]), labels, patients, model.family).auc
        if gain is not None and gain.value > _LEAST_GAIN and _is_clear(gain, 1.0):
            yield Warned("worse", domain, many, area, auc(own[rows], labels))


def _is_clear(difference: Difference, sign: float) -> bool:
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
