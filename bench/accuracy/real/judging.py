"""AUC by domain of many runs, and what is said about them.

A run's `ratio` is the mean prediction over the observed rate with every patient counting 1, as in training: patients
with many records are often the ill ones, so over records even the right model would look too low.

Runs of one split share their patients. So an error is the jackknife's over splits (over draws, if there is one split);
for a mean over runs that is the usual standard error of the splits' means.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deploy.local.simulate.outcome import RunMetrics
from deploy.local.simulate.silos import Cohorts

Floats = NDArray[np.float64]


@dataclass(frozen=True, repr=False, eq=False)
class Judged:
    """One run: `areas` (M,) with nan where a class is absent, `least` (M,) records of the rarest class, `ratio`."""

    areas: Floats
    least: Floats
    ratio: float = float("nan")

    @classmethod
    def of(cls, measured: RunMetrics, cohorts: Cohorts | None = None, risks: Sequence[Floats] = ()) -> Judged:
        """From metrics, and predicted risks (n,) of each part of the test records if there is one model."""
        areas = [np.nan if own.auc is None else own.auc for own in measured.exact]
        least = np.array([own.least for own in measured.exact], np.float64)
        if cohorts is None or not risks:
            return cls(np.array(areas), least)
        said = sum(float(part.weights @ own) for part, own in zip(cohorts.measured, risks, strict=True))
        seen = sum(float(part.weights @ part.labels) for part in cohorts.measured)
        return cls(np.array(areas), least, said / seen if seen else float("nan"))


@dataclass(frozen=True, repr=False, eq=False)
class Runs:
    """All runs of one method on one data set."""

    areas: Floats
    """(runs, M)."""
    groups: NDArray[np.int64]
    """The split of each run (runs,), or the draw if there is one split."""
    counted: NDArray[np.bool_]
    """(M,): the domains that may be the worst."""
    ratios: Floats
    """(runs,)."""

    @property
    def level(self) -> Floats:
        """Mean over the domains, and the worst domain, of the domains' means over the runs; (2,)."""
        return _level(self.areas, self.counted)

    @property
    def ratio(self) -> float:
        """Mean over the runs."""
        return float(np.mean(self.ratios))

    def less(self, other: Runs) -> tuple[Floats, Floats]:
        """How much higher the level is than another method's on the same runs, and the standard error; both (2,)."""
        change = self.level - other.level
        splits = np.unique(self.groups)
        if len(splits) < 2:
            return change, np.full(2, np.nan)
        kept = [self.groups != split for split in splits]
        parts = np.array(
            [_level(self.areas[own], self.counted) - _level(other.areas[own], self.counted) for own in kept]
        )
        error = np.sqrt((len(splits) - 1) / len(splits) * ((parts - parts.mean(axis=0)) ** 2).sum(axis=0))
        return change, np.asarray(error)


def _level(areas: Floats, counted: NDArray[np.bool_]) -> Floats:
    means = np.nanmean(areas, axis=0)
    return np.array([means.mean(), means[counted].min()])
