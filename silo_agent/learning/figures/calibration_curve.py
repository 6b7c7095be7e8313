"""The calibration curve: what was predicted and what happened, in groups of patients with like risks. Exact, private.

Groups are parted by quantiles of the risk, so each holds as many patients, and at least `FEWEST`. The observed share
has Wilson's interval for the number of patients in the group: records of a patient are alike, and taken as one. Source:
Van Calster et al. (2019, BMC Medicine 17), who ask for a curve beside slope and intercept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from silo_agent.learning.figures.intervals import share

Floats = NDArray[np.float64]
GROUPS: Final = 10
FEWEST: Final = 20
"""Patients of a group. With fewer than twice as many there is no curve."""


@dataclass(frozen=True)
class CalibrationPoint:
    """One group: its mean risk, the share with the outcome with a 95 % interval, and how many patients it has."""

    predicted: float
    observed: float
    low: float
    high: float
    patients: int


def calibration_curve(
    risks: Floats, labels: NDArray[np.int64], patients: NDArray[np.int64]
) -> tuple[CalibrationPoint, ...]:
    """Groups by rising risk (n,) of the second of two classes; `patients` (n,) says whose each record is.

    Empty with too few patients. Each patient counts once, with the means of the records.
    """
    index = np.unique(patients, return_inverse=True)[1]
    records = np.bincount(index)
    groups = min(GROUPS, len(records) // FEWEST)
    if groups < 2:  # noqa: PLR2004  # one group is no curve
        return ()
    risk, outcome = (np.bincount(index, weights=values) / records for values in (risks, labels))
    order = np.argsort(risk, kind="stable")
    return tuple(_point(risk[own], outcome[own]) for own in np.array_split(order, groups))


def _point(risk: Floats, outcome: Floats) -> CalibrationPoint:
    ill = float(outcome.sum())
    found = share(np.array([ill, len(outcome) - ill]), np.array([1.0, 0.0]), 0.0)
    value, low, high = (ill / len(outcome), 0.0, 1.0) if found is None else found
    return CalibrationPoint(float(risk.mean()), float(value), max(float(low), 0.0), min(float(high), 1.0), len(outcome))
