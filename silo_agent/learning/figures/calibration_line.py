"""Whether a model's risks can be trusted: the line from its logits to those of the outcome. Exact and private.

`intercept`: what must be added to all logits so that as many fall ill as predicted (calibration in the large); 0 is
right, above 0 the risks are too low. `slope`: of a logistic regression of the outcome on the logits; 1 is right, below
1 the risks are too extreme, as of a model that was fitted too closely. Cox (1958, Biometrika 45); Van Calster et al.
(2019, BMC Medicine 17). Intervals are a jackknife's over groups of patients, as those of other figures.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit, stdtrit

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]
_GROUPS: Final = 100
FEWEST_OF_A_CLASS: Final = 10
"""Patients with the outcome, and without it, below which no line is drawn."""
_STEPS: Final = 50
_CLOSE: Final = 1e-9
_FARTHEST: Final = 50.0
"""A slope or an intercept beyond it is none: the classes are apart, or the risks nearly alike."""
_LEAST: Final = 1e-12


@dataclass(frozen=True)
class Ends:
    """A figure and the ends of its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class CalibrationLine:
    """The line of one group; both are None if `patients`, with the outcome and without it, are too few."""

    intercept: Ends | None
    slope: Ends | None
    patients: tuple[int, int]
    """With the outcome, and without it."""


def calibration_line(risks: Floats, labels: Labels, patients: NDArray[np.int64]) -> CalibrationLine:
    """The line of risks (n,) of the second of two classes; `patients` (n,) says whose each record is."""
    counts = len(np.unique(patients[labels == 1])), len(np.unique(patients[labels == 0]))
    if min(counts) < FEWEST_OF_A_CLASS:
        return CalibrationLine(None, None, counts)
    logits = logit(np.clip(risks, _LEAST, 1.0 - _LEAST))
    index = np.unique(patients, return_inverse=True)[1]
    intercept, slope = (_around(fit, logits, labels, index) for fit in (_intercept, _slope))
    return CalibrationLine(intercept, slope, counts)


def _around(
    fit: Callable[[Floats, Labels], float | None], logits: Floats, labels: Labels, index: NDArray[np.int64]
) -> Ends | None:
    """A fitted figure with the jackknife's interval; None if it, or one without a group, is none."""
    groups = min(int(index.max()) + 1, _GROUPS)
    value = fit(logits, labels)
    without = [fit(logits[kept], labels[kept]) for kept in (index % groups != g for g in range(groups))]
    known = [one for one in without if one is not None]
    if value is None or len(known) < groups:
        return None
    half = float(stdtrit(groups - 1, 0.975)) * float(np.sqrt((groups - 1) * np.var(known)))
    return Ends(value, value - half, value + half)


def _intercept(logits: Floats, labels: Labels) -> float | None:
    found = _fitted(np.ones((len(logits), 1)), logits, labels)
    return None if found is None else float(found[0])


def _slope(logits: Floats, labels: Labels) -> float | None:
    if np.ptp(logits) == 0.0:
        return None
    found = _fitted(np.column_stack([np.ones(len(logits)), logits]), np.zeros(len(logits)), labels)
    return None if found is None else float(found[1])


def _fitted(columns: Floats, offset: Floats, labels: Labels) -> Floats | None:
    """Coefficients (p,) of a logistic regression by Newton's steps; None if it has no finite maximum."""
    found = np.zeros(columns.shape[1])
    for _ in range(_STEPS):
        risk = expit(offset + columns @ found)
        curvature = columns.T @ (columns * (risk * (1.0 - risk))[:, None])
        try:
            step: Floats = np.linalg.solve(curvature, columns.T @ (labels - risk))
        except np.linalg.LinAlgError:
            return None
        found += np.clip(step, -2.0, 2.0)
        if not np.isfinite(found).all() or np.abs(found).max() > _FARTHEST:
            return None
        if np.abs(step).max() < _CLOSE:
            return found
    return None
