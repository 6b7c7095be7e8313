"""How far one hospital could have moved a published figure, by what it says of its held-out patients.

Metrics are counts by class and score that each hospital sends unseen. One of n patients may put them wherever it wants,
and nobody notices as long as the sum is possible. So whoever reads a figure is told the largest error that this can
make. The bounds hold for whatever the hospital sends within n patients, also if its n patients are all of one domain
and class. They do not bound what it does to the model. Source: docs/design/evaluation.md, "What one hospital can move".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from policies.documents.study import Expected, Metric
from silo_agent.learning.figures.expected_observed import LARGEST_RATIO

Sizes = Sequence[float]


def largest_hospital(expected: Expected | None, silos: int, patients: float) -> float | None:
    """Held-out patients of the largest announced hospital, of `patients` in all; None if no sizes were announced."""
    if expected is None:
        return None
    announced = expected.patients if len(expected.patients) == silos else expected.patients[:1] * silos
    return max(0.0, patients) * max(announced) / sum(announced)


def moved(metric: Metric, value: float, sizes: Sizes, hospital: float) -> float | None:
    """The largest change of a figure of `sizes` (C,) patients by class if `hospital` of them say something else.

    None if the metric has no such bound.
    """
    bound = _BOUNDS.get(metric)
    return None if bound is None or not len(sizes) else bound(value, sizes, hospital)


def _share(of: float, hospital: float) -> float:
    return 1.0 if of <= hospital else hospital / of


def _auc(_value: float, sizes: Sizes, hospital: float) -> float:
    """Every pair with one of its patients may be ordered otherwise."""
    untouched = 1.0
    for size in sizes:
        untouched *= 1.0 - _share(size, hospital)
    return 1.0 - untouched


def _ratio(value: float, sizes: Sizes, hospital: float) -> float:
    """Predicted over observed: patients of the second class are added or taken away, and so are predictions."""
    observed = max(sizes[1], 0.0)
    predicted = value * observed
    least = max(predicted - hospital, 0.0) / (observed + hospital)
    most = LARGEST_RATIO if observed <= hospital else min((predicted + hospital) / (observed - hospital), LARGEST_RATIO)
    return max(most - value, value - least)


_BOUNDS: Final[Mapping[Metric, Callable[[float, Sizes, float], float]]] = {
    "auc": _auc,
    "accuracy": lambda _, sizes, hospital: _share(sum(sizes), hospital),
    "balanced_accuracy": lambda _, sizes, hospital: sum(_share(size, hospital) for size in sizes) / len(sizes),
    "false_negatives": lambda _, sizes, hospital: _share(sizes[1], hospital),
    "calibration": lambda _, sizes, hospital: min(1.0, 2.0 * _share(sum(sizes), hospital)),
    "expected_observed": _ratio,
    "patients": lambda _value, _sizes, hospital: hospital,
}
