"""How much better one model predicts the same patients than another, with paired intervals.

The records of a patient stay together. The variance is a jackknife's over groups of patients (Efron and Stein 1981,
Annals of Statistics 9), as in `sampling`: it needs no formula for each figure, and for AUC it comes to that of DeLong
et al. (1988, Biometrics 44) with patients as clusters. No noise is in it: these figures never leave the hospital.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from silo_agent.data.outcome import targets
from silo_agent.learning.figures.evaluation import auc
from silo_agent.learning.outcomes.family import Family, is_of_classes

Floats = NDArray[np.float64]
_GROUPS: Final = 100
_FEWEST: Final = 10
"""Patients below which no interval is given."""
_LEAST: Final = 1e-12


@dataclass(frozen=True)
class PairedDifference:
    """A figure of the second model less the first's, and the ends of its 95 % interval; None with too few patients."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Paired:
    """The second model less the first on the same patients.

    `loss`: of a record, the log loss of classes or half the squared error of a number in halves of its range; below 0
    the second is better. `auc`: of two classes, if both are there; above 0 the second is better.
    """

    patients: int
    loss: PairedDifference | None
    auc: PairedDifference | None


def paired(
    first: Floats, second: Floats, labels: NDArray[np.int64], patients: NDArray[np.int64], family: Family
) -> Paired:
    """Compare predictions (n, C) of the same records; `patients` (n,) says whose each of them is."""
    names, index = np.unique(patients, return_inverse=True)
    if not len(names):
        return Paired(0, None, None)
    weights = 1.0 / np.bincount(index)[index]
    gap = _losses(second, labels, family) - _losses(first, labels, family)
    area = None
    if is_of_classes(family) and family.has_auc and 0 < labels.sum() < len(labels):

        def areas(kept: NDArray[np.bool_]) -> float | None:
            ours, theirs = (auc(said[kept, 1], labels[kept]) for said in (second, first))
            return None if ours is None or theirs is None else ours - theirs

        area = _difference(areas, index)
    return Paired(
        len(names), _difference(lambda kept: float(np.average(gap[kept], weights=weights[kept])), index), area
    )


def _difference(figure: Callable[[NDArray[np.bool_]], float | None], index: NDArray[np.int64]) -> PairedDifference:
    """A figure of all records, and its jackknife."""
    patients = int(index.max()) + 1
    value = figure(np.ones(len(index), np.bool_)) or 0.0
    if patients < _FEWEST:
        return PairedDifference(value, None, None)
    groups = min(patients, _GROUPS)
    without = [figure(index % groups != g) for g in range(groups)]
    known = [one for one in without if one is not None]
    if len(known) < groups:
        return PairedDifference(value, None, None)
    half = float(stdtrit(groups - 1, 0.975)) * float(np.sqrt((groups - 1) * np.var(known)))
    return PairedDifference(value, value - half, value + half)


def _losses(said: Floats, labels: NDArray[np.int64], family: Family) -> Floats:
    if not is_of_classes(family):
        return np.asarray((said[:, 0] - targets(labels)) ** 2 / 2.0, np.float64)
    return np.asarray(-np.log(np.maximum(said[np.arange(len(said)), labels], _LEAST)), np.float64)
