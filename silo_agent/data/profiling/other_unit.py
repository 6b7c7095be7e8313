"""Whether a column's numbers look like another unit than that in which a study's public range is.

Guarantees: it compares quantiles of the file with public bounds, so what it says is only for people inside the
hospital. It names the usual factors with which nearly all numbers would lie well inside the range; a person decides.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from policies.documents.study import NumericFeature
from silo_agent.data.columns.number_forms import Floats

FEWEST: Final = 20
"""Numbers below which nothing is said."""
_MOST_OUTSIDE: Final = 0.5
_NEARLY_ALL: Final = 0.95
_CROWDED: Final = 0.02
"""The part of a range, at one of its ends, in which nearly all numbers lie if they look too small or too large."""
_FACTORS: Final = (
    (1000.0, "as of g for mg"),
    (100.0, "as of a share for per cent"),
    (10.0, "as of dl for l, or of cm for mm"),
    (18.016, "as of mmol/l for mg/dl of glucose"),
    (38.67, "as of mmol/l for mg/dl of cholesterol"),
    (88.57, "as of mmol/l for mg/dl of triglycerides"),
    (88.42, "as of mg/dl for umol/l of creatinine"),
    (17.1, "as of mg/dl for umol/l of bilirubin"),
    (2.8, "as of mmol/l for mg/dl of urea nitrogen"),
    (7.50062, "as of kPa for mmHg"),
    (2.54, "as of inches for cm"),
    (2.20462, "as of kg for pounds"),
    (365.25, "as of years for days"),
    (12.0, "as of years for months"),
)
"""What units of one quantity differ by in practice, with an example for each."""
_AFFINE: Final = ((5 / 9, -160 / 9, "as of Fahrenheit for Celsius"), (9 / 5, 32.0, "as of Celsius for Fahrenheit"))


def looks_like_another(values: Floats, feature: NumericFeature) -> str:
    """A sentence if the numbers of a column, (n,), do not look like the range's unit; empty if they do."""
    told = values[np.isfinite(values)]
    if len(told) < FEWEST:
        return ""
    inside = float(np.mean((told >= feature.minimum) & (told <= feature.maximum)))
    low, middle, high = np.quantile(told, (0.25, 0.5, 0.75))
    if inside >= _MOST_OUTSIDE and not _crowded(told, feature):
        return ""
    said = (
        f"{inside:.0%} of the numbers lie in the study's range {feature.minimum:g} to {feature.maximum:g}, half of them"
        f" between {low:.4g} and {high:.4g} (median {middle:.4g}): this looks like another unit"
    )
    made = _made(told, feature)
    return f"{said}; {made}" if made else said


def _crowded(told: Floats, feature: NumericFeature) -> bool:
    """Whether nearly all numbers lie in a small part at one end of the range, on its scale."""
    places = _places(told, feature)
    return bool(np.mean(places < _CROWDED) >= _NEARLY_ALL or np.mean(places > 1 - _CROWDED) >= _NEARLY_ALL)


def _places(told: Floats, feature: NumericFeature) -> Floats:
    """Where numbers lie in the range, from 0 to 1."""
    low, high = feature.along(feature.minimum), feature.along(feature.maximum)
    kept = np.clip(told, feature.minimum, feature.maximum)
    along = np.array([feature.along(value) for value in kept.tolist()])
    return np.asarray((along - low) / (high - low), np.float64)


def _made(told: Floats, feature: NumericFeature) -> str:
    """The conversions that bring nearly all numbers well into the range; empty if none does."""
    ways = [(factor, 0.0, f"factor {factor:g}, {why}") for factor, why in _FACTORS]
    ways += [(1 / factor, 0.0, f"factor 1/{factor:g}, the reverse, {why}") for factor, why in _FACTORS]
    ways += [(factor, offset, f"factor {factor:.4f}, offset {offset:.4g}, {why}") for factor, offset, why in _AFFINE]
    fitting = [why for factor, offset, why in ways if _fits(told * factor + offset, feature)]
    return f"with one of these under spelling.units they would lie in it: {'; '.join(fitting)}" if fitting else ""


def _fits(made: Floats, feature: NumericFeature) -> bool:
    inside = np.mean((made >= feature.minimum) & (made <= feature.maximum))
    return bool(inside >= _NEARLY_ALL and not _crowded(made, feature))
