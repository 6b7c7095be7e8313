"""A label that is a number: its places between minimum and maximum, its value on [-1, 1], and back to its unit.

Guarantees: a place is a whole number (`policies.plan.families.TARGET_STEPS`), so records hold labels of one type, and
float32 and float64 compute with the same outcome.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from policies.documents.study import Label
from policies.plan.families import TARGET_STEPS

Floats = NDArray[np.float64]
_HALF = TARGET_STEPS // 2


def place_of(scaled: float) -> int:
    """The place nearest to a value in [-1, 1]; a value that rounding put outside has the outermost place."""
    return min(max(round((scaled + 1.0) * _HALF), 0), TARGET_STEPS)


def targets(places: NDArray[np.int64]) -> Floats:
    """Values (n,) in [-1, 1] of places (n,)."""
    return np.asarray(places / _HALF - 1.0, np.float64)


def half_range(label: Label) -> float:
    """Half of the label's range on its scale: what a value moves by, in the unit of `on_scale`, if a target moves by 1.

    Raises ValueError for a label of classes.
    """
    low, high = _ends(label)
    return (high - low) / 2.0


def on_scale(label: Label, scaled: Floats) -> Floats:
    """Values in [-1, 1] as values of the column, or as their natural logarithms if the scale is log."""
    low, high = _ends(label)
    return np.asarray(low + (high - low) / 2.0 * (scaled + 1.0), np.float64)


def in_unit(label: Label, scaled: Floats) -> Floats:
    """Values in [-1, 1] as values of the column, in its own unit and within its range."""
    values = on_scale(label, scaled)
    if label.scale == "log":
        values = np.exp(values)
    return np.clip(values, label.minimum, label.maximum)


def _ends(label: Label) -> tuple[float, float]:
    if label.number is None:
        msg = "this label has classes, and no range"
        raise ValueError(msg)
    low, high, scale = label.number
    return (math.log(low), math.log(high)) if scale == "log" else (low, high)
