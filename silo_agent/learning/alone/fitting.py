"""Fits a model of one hospital's records alone, and says how it does on patients whom it has not seen.

The kind (regression or boosting), the strength of the penalty and the number of trees are those of the least loss over
all folds. Twenty settings of two smooth kinds are tried, so the least of them flatters by little.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from policies.documents.study import Study
from silo_agent.data.records import Records
from silo_agent.learning.alone.boosting import LEAVES, ROUNDS, boost, boosted, staged
from silo_agent.learning.alone.design import Design
from silo_agent.learning.alone.model import AloneModel, Part
from silo_agent.learning.alone.regression import STRENGTHS, regress
from silo_agent.learning.outcomes.links import losses
from silo_agent.learning.outcomes.registry import family_of

Floats = NDArray[np.float64]
_FEWEST: Final = 10
"""Patients of each class below which nothing is fitted."""
MOST: Final = 200_000
"""Records that are learned from; of more, those of patients who are drawn. More tell a regression or trees next to
nothing, and take memory that the personal model's process may not have."""


@dataclass(frozen=True, repr=False, eq=False)
class FittedAlone:
    """A model of all records, and logits (n, R) of each record by one that has not seen its fold."""

    model: AloneModel
    unseen: Floats


@dataclass(frozen=True, repr=False, eq=False)
class _Tried:
    unseen: Floats
    fit: Callable[[Design], Part]


def fit(records: Records, fold: NDArray[np.int64], study: Study, round_number: int) -> FittedAlone | None:
    """Fit on all records; `fold` (n,) says in which fold each lies, its patient's others too.

    None if the study has no table of inputs, or if a class has too few patients for every fold to learn it.
    """
    if not study.data.inputs or not _has_enough(records, fold, study):
        return None
    design, some = Design.of(records, len(study.data.domains), family_of(study.data.label.count)), _drawn(records)
    best = min(_tried(design, fold, some), key=lambda one: _loss(one.unseen, design))
    return FittedAlone(AloneModel(study, round_number, best.fit(design.rows(some))), best.unseen)


def _drawn(records: Records) -> NDArray[np.bool_]:
    """Which records (n,) are learned from: all, or those of as many patients as have about `MOST` of them."""
    share = MOST / max(len(records), 1)
    if share >= 1.0:
        return np.ones(len(records), np.bool_)
    patients = np.random.default_rng(0).random(records.patient_count) < share
    return patients[records.patients]


def _has_enough(records: Records, fold: NDArray[np.int64], study: Study) -> bool:
    if study.data.label.number is not None:
        return records.patient_count > len(np.unique(fold)) > 1
    classes = range(study.data.label.count)
    if any(len(np.unique(records.patients[records.labels == one])) < _FEWEST for one in classes):
        return False
    return all(set(records.labels[fold != one].tolist()) == set(classes) for one in np.unique(fold))


def _loss(logits: Floats, design: Design) -> float:
    return float(np.average(losses(logits, design.labels, design.family), weights=design.counted))


def _tried(design: Design, fold: NDArray[np.int64], some: NDArray[np.bool_]) -> Iterator[_Tried]:
    folds = np.unique(fold).tolist()
    for strength in STRENGTHS:
        unseen = np.zeros((len(fold), design.family.form.logits))
        for one in folds:
            unseen[fold == one] = regress(design.rows(some & (fold != one)), strength).logits(design.x[fold == one])
        yield _Tried(unseen, partial(regress, strength=strength))
    for leaves in LEAVES:
        stages = [np.zeros((len(fold), design.family.form.logits)) for _ in ROUNDS]
        for one in folds:
            model = boost(design.rows(some & (fold != one)), leaves, max(ROUNDS))
            for own, found in zip(stages, staged(model, design.x[fold == one], design), strict=True):
                own[fold == one] = found
        for trees, own in zip(ROUNDS, stages, strict=True):
            yield _Tried(own, partial(boosted, leaves=leaves, trees=trees))
