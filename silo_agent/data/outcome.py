"""A label that is a number: its places between minimum and maximum, its value on [-1, 1], and back to its unit.

Guarantees: a place is a whole number (`policies.plan.families.TARGET_STEPS`), so records hold labels of one type, and
float32 and float64 compute with the same outcome.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from policies.documents.study import Label, Scale
from policies.plan.families import TARGET_STEPS
from silo_agent.data.cells import Cell
from silo_agent.data.columns.number_forms import PLAIN, Floats, NumberForm
from silo_agent.data.columns.parsing import Parser
from silo_agent.data.errors import Unfit

_HALF: Final = TARGET_STEPS // 2
_ALONG: Final[dict[Scale, Callable[[float], float]]] = {"linear": float, "log": math.log, "log1p": math.log1p}
_BACK: Final[dict[Scale, Callable[[Floats], Floats]]] = {"linear": np.asarray, "log": np.exp, "log1p": np.expm1}
"""From a value of the column to its scale, and from values on the scale to those of the column."""


def place_parser(label: Label, form: NumberForm = PLAIN) -> Parser[int]:
    """Reads the place of a cell's number. Other cells are `Unfit`."""
    minimum, maximum, scale = _range(label)
    low, high = ends(label)

    def parse(cell: Cell) -> int:
        value = form.number(cell)
        if value is None or not minimum <= value <= maximum:
            msg = f"a number in [{minimum:g}, {maximum:g}], written like {form.written}: it is the outcome"
            raise Unfit(msg)
        place = round((_ALONG[scale](value) - low) / (high - low) * TARGET_STEPS)
        return min(max(place, 0), TARGET_STEPS)

    def along(values: Floats) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        fits = (values >= minimum) & (values <= maximum)
        placed = np.full(len(values), low)
        # NumPy's logarithm may differ from Python's in the last bit.
        placed[fits] = [_ALONG[scale](value) for value in values[fits].tolist()]
        places = np.rint((placed - low) / (high - low) * TARGET_STEPS)
        return np.clip(places, 0, TARGET_STEPS).astype(np.int64), fits

    return Parser(parse, along, form=form)


def targets(places: NDArray[np.int64]) -> Floats:
    """Values (n,) in [-1, 1] of places (n,)."""
    return np.asarray(places / _HALF - 1.0, np.float64)


def ends(label: Label) -> tuple[float, float]:
    """Minimum and maximum on the label's scale. Raises ValueError for a label of classes."""
    minimum, maximum, scale = _range(label)
    return _ALONG[scale](minimum), _ALONG[scale](maximum)


def half_range(label: Label) -> float:
    """What a value moves by on the label's scale if its target moves by 1. Raises ValueError for a label of classes."""
    low, high = ends(label)
    return (high - low) / 2.0


def in_unit(label: Label, scaled: Floats) -> Floats:
    """Values in [-1, 1] as values of the column, in its own unit and within its range."""
    minimum, maximum, scale = _range(label)
    low, _ = ends(label)
    return np.clip(_BACK[scale](low + half_range(label) * (scaled + 1.0)), minimum, maximum)


def scaled_back(label: Label, values: Floats) -> Floats:
    """Values of the column, in its own unit, as values in [-1, 1]: the inverse of `in_unit`."""
    *_, scale = _range(label)
    low, _ = ends(label)
    along = np.array([_ALONG[scale](value) for value in values.ravel()])
    return np.asarray((along - low) / half_range(label) - 1.0, np.float64).reshape(values.shape)


def _range(label: Label) -> tuple[float, float, Scale]:
    if label.number is None:
        msg = "this label has classes, and no range"
        raise ValueError(msg)
    return label.number
