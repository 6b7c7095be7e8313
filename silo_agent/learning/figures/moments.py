"""Metrics of a number that may leave a silo: cells of errors and outcomes, and what their noised sums say by domain.

Guarantees that `moment_cells` has l2 sensitivity 1 for all predictions. A cell is a Bernstein polynomial of the error
or of the outcome, so sums of cells give the moments up to `MOMENT_DEGREE` exactly: no bin blurs them.
`results_from_moments` works on opened sums, so its results are post-processing. `number_quality` is exact and private.
docs/design/evaluation.md, "Numbers", has the argument.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from policies.plan.families import MOMENT_CELLS, MOMENT_DEGREE
from silo_agent.data.outcome import targets
from silo_agent.learning.each_record import exact_weights
from silo_agent.learning.figures.evaluation import Estimate, NumberQuality, NumberResult

Floats = NDArray[np.float64]
_Z: Final = 1.959963984540054
_SIZE, _SIGNED, _OUTCOME = (math.sqrt(part) for part in (0.56, 0.14, 0.3))
"""How much a patient counts among the errors' sizes, among the errors with their sign, and among the outcomes. The
squares add up to 1. What is given to a part makes its figures' noise smaller, and that of the others larger."""


def moment_cells(
    predictions: Floats,
    labels: NDArray[np.int64],
    domains: NDArray[np.int64],
    weights: Floats,
    *,
    count: int,
    largest_error: float,
) -> Floats:
    """Cells of errors and outcomes by domain: float64 (count * MOMENT_CELLS,), C order, l2 sensitivity 1.

    `count` = M; `predictions` (n, 1) in [-1, 1], of which what is no number counts as 0; `labels` (n,) places;
    `weights` (n,) as in `Records.weights`; `largest_error` as in the study. Cells are rounded towards 0 to multiples of
    2^-28, so float64 adds them exactly.
    """
    outcome = targets(labels)
    with np.errstate(over="ignore"):  # a prediction beyond all bounds is clipped like any other
        error = (np.nan_to_num(predictions[:, 0], nan=0.0) - outcome) / _farthest(largest_error)
    error = np.clip(error, -1.0, 1.0)
    parts = [_SIZE * _bernstein(np.abs(error)), _SIGNED * error[:, None], _OUTCOME * _bernstein((outcome + 1.0) / 2.0)]
    cells = np.concatenate(parts, axis=1) * weights[:, None]
    exact = np.copysign(exact_weights(np.abs(cells)), cells)
    sums = [np.bincount(domains, weights=column, minlength=count) for column in exact.T]
    return np.stack(sums, axis=1, dtype=np.float64).ravel()


def results_from_moments(
    sums: Floats, noise_sd: float, half_range: float, *, count: int, largest_error: float, smallest: int = 0
) -> tuple[NumberResult, ...]:
    """The results of each of the `count` domains from the opened sum of `moment_cells`, `noise_sd` on every cell.

    `half_range` (`data.outcome.half_range`) brings errors to the label's unit. If a domain's noised sum holds fewer
    than `smallest` patients, its result says only that.
    """
    return tuple(
        _Opened.of(cells, noise_sd, _farthest(largest_error)).result(half_range, smallest)
        for cells in sums.reshape(count, MOMENT_CELLS)
    )


def number_quality(predictions: Floats, labels: NDArray[np.int64], half_range: float) -> NumberQuality:
    """Exact figures of records, `predictions` (n, 1). No error is cut short here."""
    if not len(labels):
        return NumberQuality(None, None, None, 0)
    outcome = targets(labels)
    error = predictions[:, 0] - outcome
    spread = float(((outcome - outcome.mean()) ** 2).sum())
    return NumberQuality(
        mae=half_range * float(np.abs(error).mean()),
        r2=1.0 - float((error**2).sum()) / spread if spread > 0.0 else None,
        mean_error=half_range * float(error.mean()),
        records=len(labels),
    )


def _bernstein(x: Floats) -> Floats:
    """The Bernstein polynomials of x (n,) in [0, 1]: (n, MOMENT_DEGREE + 1), never negative, of sum 1."""
    degree = MOMENT_DEGREE
    columns = [math.comb(degree, j) * x**j * (1.0 - x) ** (degree - j) for j in range(degree + 1)]
    return np.stack(columns, axis=1, dtype=np.float64)


def _power(power: int) -> Floats:
    """Coefficients (MOMENT_DEGREE + 1,) with which the Bernstein polynomials add up to x^power."""
    degree = MOMENT_DEGREE
    return np.array([math.comb(j, power) / math.comb(degree, power) for j in range(degree + 1)])


def _row(size: Floats | None = None, signed: float = 0.0, outcome: Floats | None = None) -> Floats:
    """What cells (MOMENT_CELLS,) must be multiplied by to add up to a sum over patients of the parts' functions."""
    nothing = np.zeros(MOMENT_DEGREE + 1)
    sizes, outcomes = (nothing if part is None else part for part in (size, outcome))
    return np.concatenate([sizes / _SIZE, [signed / _SIGNED], outcomes / _OUTCOME])


def _of_outcomes(power: int, centre: float) -> Floats:
    """The row of (t - centre)^power: with x = (t + 1) / 2 it is (2 x - 1 - centre)^power."""
    parts = [math.comb(power, p) * 2.0**p * (-1.0 - centre) ** (power - p) * _power(p) for p in range(power + 1)]
    return _row(outcome=np.sum(parts, axis=0))


def _farthest(largest_error: float) -> float:
    """The largest error on the scale of [-1, 1], whose range is 2."""
    return 2.0 * largest_error


_EVERYBODY: Final = _row(size=_power(0))
_DIFFERENCE: Final = (_EVERYBODY - _of_outcomes(0, 0.0)) / np.linalg.norm(_EVERYBODY - _of_outcomes(0, 0.0))
"""Patients by the errors less patients by the outcomes, of length 1. They are the same, so what is there is noise."""


@dataclass(frozen=True)
class _Opened:
    """One domain's cells without the noise along `_DIFFERENCE`, the noise `sd` of each, and the farthest error."""

    cells: Floats
    sd: float
    farthest: float

    @classmethod
    def of(cls, cells: Floats, noise_sd: float, farthest: float) -> _Opened:
        return cls(cells - _DIFFERENCE * (_DIFFERENCE @ cells), noise_sd, farthest)

    def errors(self, power: int) -> Floats:
        """The row of |e|^power."""
        return _row(size=self.farthest**power * _power(power))

    def sum(self, row: Floats) -> float:
        return float(row @ self.cells)

    def noise(self, one: Floats, other: Floats) -> float:
        """Covariance of the noise on two sums."""
        return self.sd**2 * float(one @ other - (one @ _DIFFERENCE) * (other @ _DIFFERENCE))

    def result(self, half_range: float, smallest: int) -> NumberResult:
        n, sd = self.sum(_EVERYBODY), math.sqrt(self.noise(_EVERYBODY, _EVERYBODY))
        farthest = self.farthest * half_range
        if n < max(1.0, 2.0 * sd, smallest):
            counted = Estimate(None, 0.0, float(smallest)) if n < smallest else _patients(n, sd)
            nothing = Estimate(None, -farthest, farthest)
            return NumberResult(Estimate(None, 0.0, farthest), Estimate(None, -1.0, 1.0), nothing, counted)
        squares, signed = self.sum(self.errors(2)), _row(signed=self.farthest)
        size = self._ratio(self.errors(1), _EVERYBODY, (squares, self.sum(self.errors(1)), n))
        shift = self._ratio(signed, _EVERYBODY, (squares, self.sum(signed), n))
        return NumberResult(
            mae=_within(size, 0.0, farthest, half_range),
            r2=self._explained(n, squares),
            mean_error=_within(shift, -farthest, farthest, half_range),
            patients=_patients(n, sd),
        )

    def _explained(self, n: float, squares: float) -> Estimate:
        """R^2 = 1 - sum e^2 / sum (t - mean t)^2.

        How squares of errors and of outcomes vary together is not in the cells. They are taken as independent, so the
        interval is rather too wide, because large errors go with unusual outcomes.
        """
        centre = self.sum(_of_outcomes(1, 0.0)) / n
        spread = _of_outcomes(2, centre)
        whole = self.sum(spread)
        if whole <= 2.0 * math.sqrt(self.noise(spread, spread)):
            return Estimate(None, -1.0, 1.0)
        errors = max(self.sum(self.errors(4)), squares**2 / n)
        outcomes = max(self.sum(_of_outcomes(4, centre)), whole**2 / n)
        rest = self._ratio(self.errors(2), spread, (errors, squares * whole / n, outcomes))
        low, middle, high = 1.0 - rest[2], 1.0 - rest[1], 1.0 - rest[0]
        return _within((low, middle, high), -1.0, 1.0, 1.0)

    def _ratio(self, top: Floats, bottom: Floats, sampled: tuple[float, float, float]) -> tuple[float, float, float]:
        """(low, estimate, high) of a ratio of two sums: Fieller's interval, under noise and sampling (Fieller 1954).

        `sampled` has sums over patients of top^2, top bottom and bottom^2: what sampling adds to the variances.
        """
        above, below = self.sum(top), self.sum(bottom)
        squares = max(sampled[0], sampled[1] ** 2 / sampled[2])
        a = below**2 - _Z**2 * (self.noise(bottom, bottom) + sampled[2])
        b = above * below - _Z**2 * (self.noise(top, bottom) + sampled[1])
        c = above**2 - _Z**2 * (self.noise(top, top) + squares)
        estimate = above / below
        if a <= 0.0:
            return -math.inf, estimate, math.inf
        root = math.sqrt(max(b**2 - a * c, 0.0))
        return min((b - root) / a, estimate), estimate, max((b + root) / a, estimate)


def _within(interval: tuple[float, float, float], least: float, most: float, unit: float) -> Estimate:
    """The estimate and interval in the label's unit, within what is possible; no estimate if that is all it says."""
    low, middle, high = (min(max(value * unit, least), most) for value in interval)
    return Estimate(None if (low, high) == (least, most) else middle, low, high)


def _patients(n: float, sd: float) -> Estimate:
    return Estimate(max(n, 0.0), max(n - _Z * sd, 0.0), max(n + _Z * sd, 0.0))
