"""95 % intervals of exact metrics: how far they would move with other patients of the same kind.

The records of a patient stay together, because they are alike. The variance is a jackknife's over groups of patients
(Efron and Stein 1981). A share's interval is Wilson's for the number of independent patients that this variance
implies, so it stays inside [0, 1] and has a width at 0 and at 1. No noise is in it: these figures never leave the
hospital.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from silo_agent.learning.figures.evaluation import Quality, quality
from silo_agent.learning.outcomes.family import OfClasses

Range = tuple[float, float]
"""(low, high)."""
_GROUPS: Final = 100
_FEWEST: Final = 10
"""Patients below which no interval is given."""


@dataclass(frozen=True)
class Spread:
    """Intervals of one domain's metrics; None where the metric is None, or if the domain has too few patients.

    The calibration error has none: few patients make it larger by themselves, so an interval around it would mislead.
    """

    auc: Range | None
    accuracy: Range | None
    balanced_accuracy: Range | None
    expected_observed: Range | None = None


NO_SPREAD: Final = Spread(None, None, None)
_SHARES: Final = ("auc", "accuracy", "balanced_accuracy")


def spread(
    probabilities: NDArray[np.float64],
    labels: NDArray[np.int64],
    patients: NDArray[np.int64],
    bins: int,
    family: OfClasses,
) -> Spread:
    """The intervals around `quality` of the same records; `patients` (n,) says whose each of them is."""
    names, index = np.unique(patients, return_inverse=True)
    if len(names) < _FEWEST:
        return NO_SPREAD
    groups = min(len(names), _GROUPS)
    group = index % groups
    whole = quality(probabilities, labels, bins, family)
    without = [quality(probabilities[group != g], labels[group != g], bins, family) for g in range(groups)]

    def around(value: float | None, others: list[float | None]) -> Range | None:
        known = [other for other in others if other is not None]
        if value is None or len(known) < len(others):
            return None
        variance = (groups - 1) * float(np.var(known))
        return _wilson(value, variance, len(names), groups - 1)

    shares = {name: around(getattr(whole, name), _values(without, name)) for name in _SHARES}
    ratio = _of_ratio(whole.expected_observed, _values(without, "expected_observed"), groups)
    return Spread(**shares, expected_observed=ratio)


def _of_ratio(value: float | None, others: list[float | None], groups: int) -> Range | None:
    """The interval of a ratio is one of its logarithm: half as much and twice as much are as far from 1."""
    known = [math.log(other) for other in others if other]
    if not value or len(known) < len(others):
        return None
    half = float(stdtrit(groups - 1, 0.975)) * math.sqrt((groups - 1) * float(np.var(known)))
    return value * math.exp(-half), value * math.exp(half)


def _values(qualities: list[Quality], name: str) -> list[float | None]:
    return [getattr(one, name) for one in qualities]


def _wilson(value: float, variance: float, patients: int, freedom: int) -> Range:
    """Wilson's interval of a share, for as many independent patients as have this variance."""
    independent = value * (1.0 - value) / variance if variance > 0.0 else float(patients)
    squared = float(stdtrit(freedom, 0.975)) ** 2
    middle = (value + squared / (2.0 * independent)) / (1.0 + squared / independent)
    half = math.sqrt(squared * (value * (1.0 - value) + squared / (4.0 * independent)) / independent)
    half /= 1.0 + squared / independent
    return max(0.0, min(middle - half, value)), min(1.0, max(middle + half, value))
