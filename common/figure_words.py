"""An estimated figure in words, the same on every page: a value, a bound, or that there were too few patients.

Guarantees: an error whose estimate is 0 is never printed as 0. Noise and chance alone explain what was seen of it, so
what is known is that it lies below the upper end of its interval.
"""

from __future__ import annotations

from typing import Final

ERRORS: Final = frozenset({"calibration", "mae"})
"""Metrics that measure an error: they cannot be below 0, and an estimate of 0 does not say that there is none."""
TOO_FEW: Final = "too few"
MOVED: Final = "_moved"
"""Ends the name of what may stand beside a published figure, if the study says how large its hospitals are: how far one
hospital of the largest announced size could move it."""


def told(metric: str, value: float | None, high: float, *, form: str = ".3f", patients: float | None = None) -> str:
    """The figure of a metric in words.

    `high` is its interval's upper end; `patients` how many were held out, by the noised sum.
    """
    if value is None:
        return TOO_FEW if patients is None else f"{TOO_FEW} (about {max(patients, 0.0):.0f} patients)"
    if metric in ERRORS and float(format(value, form)) == 0.0:
        return f"below {high:{form}}"
    return f"{value:{form}}"
