"""The mean of paired differences over seeds or splits, and how far chance alone may move it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

Floats = NDArray[np.float64]
_UPPER: Final = 0.975
"""Of the quantiles between which 95 % lie."""


@dataclass(frozen=True)
class Interval:
    """A mean and half its 95 % interval of Student's t, which is 0 of one value.

    Splits of the same patients are no independent draws: their interval counts noise and split alone.
    """

    mean: float
    half: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float] | Floats) -> Interval:
        """Of one value for each seed or split, at least one."""
        count = len(values)
        if count == 1:
            return cls(float(values[0]), 0.0, 1)
        half = student.ppf(_UPPER, count - 1) * np.std(values, ddof=1) / np.sqrt(count)
        return cls(float(np.mean(values)), float(half), count)

    @property
    def least(self) -> float:
        """The lower end."""
        return self.mean - self.half

    @property
    def most(self) -> float:
        """The upper end."""
        return self.mean + self.half

    def widened(self, factor: float) -> Interval:
        """So much wider around the same mean."""
        return Interval(self.mean, factor * self.half, self.count)

    def signed(self, digits: int) -> str:
        """Mean and both ends with their signs; of one value the mean alone."""
        if self.count == 1:
            return f"{self.mean:+.{digits}f}"
        return f"{self.mean:+.{digits}f} ({self.least:+.{digits}f} to {self.most:+.{digits}f})"


@dataclass(frozen=True)
class Gain:
    """How much higher two figures are than another method's (mean and worst domain, say), and the standard errors."""

    mean: Floats
    """(2,)."""
    error: Floats
    """(2,), nan of one difference."""

    @classmethod
    def of(cls, differences: Floats) -> Gain:
        """Of paired differences, (n, 2)."""
        return cls(differences.mean(axis=0), standard_error(differences))

    def __str__(self) -> str:
        return " / ".join(f"{mean:+.4f} +- {error:.4f}" for mean, error in zip(self.mean, self.error, strict=True))


def standard_error(values: Floats) -> Floats:
    """Standard error of the mean over the first axis, nan of one value: (n, ...) gives (...)."""
    if len(values) == 1:
        return np.full(values.shape[1:], np.nan)
    return np.asarray(values.std(axis=0, ddof=1) / np.sqrt(len(values)))
