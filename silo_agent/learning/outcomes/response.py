"""How sums of predictions answer to intercepts: what a Newton step of the calibration leaves out.

Source: docs/design/heads.md, "Calibration". R logits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LEAST: Final = 1e-6
"""No sum of curvatures is taken as less."""
_STEEPEST: Final = 1.0 / 16.0
"""Least factor by which a shift may change the curvature, or the sum of a class's predictions."""
_LARGEST: Final = 100.0
"""Largest exponent of such a factor."""


@dataclass(frozen=True)
class Response:
    """The steps x (..., R) move each sum of predictions by curvature * x if the intercepts move by `shift(x)`.

    Newton takes the curvature as constant and would move an intercept by x. But where an outcome is rare the curvature
    grows with the shift: where predictions were half as large as they should be, Newton's step ended a fifth too
    high.

    Attributes:
        growth: how fast the curvature's logarithm grows with a shift (R,).
        together: part of the shift that is left (R,) if all intercepts move together; 1 if there is one.
    """

    growth: Floats
    together: Floats

    def shift(self, step: Floats) -> Floats:
        """The shifts u (..., R) with (exp(growth u / together) - 1) / growth = step."""
        flat = np.abs(self.growth) <= LEAST
        growth = np.where(flat, 1.0, self.growth)
        bent = np.log(np.maximum(1.0 + growth * step, _STEEPEST)) / growth
        return np.asarray(self.together * np.where(flat, step, bent))

    def step(self, shift: Floats) -> Floats:
        """Inverse of `shift`."""
        alone = shift / self.together
        flat = np.abs(self.growth) <= LEAST
        growth = np.where(flat, 1.0, self.growth)
        bent = np.expm1(np.clip(np.where(flat, 0.0, growth * alone), -_LARGEST, _LARGEST)) / growth
        return np.asarray(np.where(flat, alone, bent))

    def factor(self, shift: Floats) -> Floats:
        """What curvatures are multiplied by after a shift (..., R)."""
        return np.asarray(np.exp(np.clip(self.growth * shift / self.together, -_LARGEST, _LARGEST)))
