"""The learning rate of each of a study's steps.

Guarantees that every silo gets the same bits: the cosine is a sum of float64 products in a fixed order, because the
last bits of a library's cosine differ between machines, and with sealed steps every silo moves the shared encoder.
"""

from __future__ import annotations

import math
from typing import Final

from policies.documents.study import EncoderPlan

_TERMS: Final = 14
"""Terms of the sine's series: up to pi/2 the rest is below 1e-20."""


def learning_rate(plan: EncoderPlan, step: int, steps: int) -> float:
    """Rate of a study's step number `step`, from 0, of `steps`."""
    if plan.schedule == "constant":
        return plan.learning_rate
    return plan.learning_rate * half_cosine(step / steps)


def half_cosine(x: float) -> float:
    """(1 + cos(pi x)) / 2 for x in [0, 1]: from 1 to 0, within 1e-15."""
    angle = math.pi * (0.5 - x)
    square, value = angle * angle, 1.0
    for term in range(_TERMS, 0, -1):
        value = 1.0 - value * square / (2 * term * (2 * term + 1))
    return 0.5 * (1.0 + angle * value)
