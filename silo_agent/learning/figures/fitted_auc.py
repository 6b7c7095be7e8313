"""Metrics of one domain from its opened, noised histogram: how the risk rises with the score, fitted at once.

Source: docs/design/evaluation.md, "Fitted risks". The score is the model's logit, so the true risk is nearly a logistic
function of it. A few numbers say how, whatever the distribution of the scores, and they have less of the noise than the
rare outcomes' own cells. Pure float64 numpy on public values; B bins.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from silo_agent.learning.figures.intervals import Interval

Floats = NDArray[np.float64]

_Z: Final = 1.959963984540054
"""97.5 % of the standard normal distribution lie below."""
_WIDER: Final = 1.03
"""Factor on the deviation, for what the linear approximation leaves out. Without it 94 to 95 of 100 intervals held."""
_PRIOR: Final = np.array([0.7, 0.0])
"""Prior of slope and bend of the log odds by the logit. A right model has 1 and 0, a noisy one is too steep."""
_SPREAD: Final = np.array([3.0, 0.7, 0.15])
"""Prior deviations of level, slope and bend."""
_REACH: Final = np.array([0.5, 0.3, 0.1])
"""How far level, slope and bend go in one step."""
_LOWEST: Final = 0.6
"""A bin holds at least minus this many deviations of noise: with 0, noise in empty bins would spread the scores."""
_FEWEST: Final = 0.05
"""No cell's variance by sampling is taken as less than that of so many patients."""
_WIDEST: Final = 10.0
"""Largest deviation of the logarithm of a ratio: its interval then holds everything."""
_EXTREME: Final = 0.02
_RARE: Final = 0.05
_STEPS: Final = 15
_RIDGE: Final = 1e-9


@dataclass(frozen=True, repr=False, eq=False)
class Fit:
    """What is fitted to one domain's cells. All metrics have 95 % intervals that cover noise and sampling."""

    patients: Floats
    """Of each bin (B,)."""
    share: Floats
    """Of the patients of each bin, those of the second class (B,)."""
    powers: Floats
    """1, and the bin's middle less the mean score to the powers 1 and 2: (B, 3)."""
    covariance: Floats
    """Of `patients` and the three numbers of the risk (B + 3, B + 3)."""

    def auc(self) -> Interval:
        """(AUC, low, high)."""
        area, by_negatives, by_positives = _area(self.patients * (1.0 - self.share), self.patients * self.share)
        by_patients = by_negatives * (1.0 - self.share) + by_positives * self.share
        return self._around(area, by_patients, (by_positives - by_negatives) * self.patients)

    def accuracy(self, right: Floats) -> Interval | None:
        """(accuracy, low, high); `right` (2, B) is 1 where patients of a class are predicted rightly.

        None below .05 and above .95, where a linearised interval is no longer one.
        """
        patients, held = self.patients, max(float(self.patients.sum()), 1.0)
        hits = right[0] * (1.0 - self.share) + right[1] * self.share
        accuracy = float(patients @ hits) / held
        if not _RARE <= accuracy <= 1.0 - _RARE:
            return None
        return self._around(accuracy, (hits - accuracy) / held, patients * (right[1] - right[0]) / held)

    def expected_observed(self, claims: Floats) -> Interval | None:
        """(ratio, low, high): the predictions' sum, `claims` (B,) for a patient of each bin, over the fitted one.

        None if the fit holds no patient of the second class.
        """
        expected, observed = float(claims @ self.patients), float(self.share @ self.patients)
        if min(expected, observed) <= 0.0:
            return None
        by_patients = claims / expected - self.share / observed
        deviation = min(self._deviation(by_patients, -self.patients / observed), _WIDEST)
        ratio = expected / observed
        return ratio, ratio * float(np.exp(-_Z * deviation)), ratio * float(np.exp(_Z * deviation))

    def _deviation(self, by_patients: Floats, by_share: Floats) -> float:
        """Of a value with these derivatives (B,)."""
        gradient = np.concatenate([by_patients, (by_share * self.share * (1.0 - self.share)) @ self.powers])
        return _WIDER * float(np.sqrt(max(float(gradient @ self.covariance @ gradient), 0.0)))

    def _around(self, value: float, by_patients: Floats, by_share: Floats) -> Interval:
        """The linearised interval on the scale of log(a / (1 - a)), from derivatives (B,) of the value."""
        middle = float(np.clip(value, _EXTREME, 1.0 - _EXTREME))
        deviation = self._deviation(by_patients, by_share) / (middle * (1.0 - middle))
        low, high = (float(expit(np.log(middle / (1.0 - middle)) + z * deviation)) for z in (-_Z, _Z))
        return middle, min(low, middle), max(high, middle)


def fit(cells: Floats, noise_sd: float, edges: Floats) -> Fit:
    """The fit to cells (2, B), negatives first, with `noise_sd` on each; `edges` (B + 1,), open at the ends.

    Both rows must hold patients beyond the noise.
    """
    bins, middles = cells.shape[1], (edges[1:] + edges[:-1]) / 2.0
    both = np.maximum(cells.sum(axis=0), 0.0)
    centred = middles - float(both @ middles) / max(float(both.sum()), 1.0)
    powers = np.stack([np.ones(bins), centred, centred**2], axis=1)
    rate = float(np.clip(cells[1].sum() / max(float(cells.sum()), 1.0), 0.01, 0.99))
    prior = np.concatenate([[np.log(rate / (1.0 - rate))], _PRIOR])
    precision = np.concatenate([np.zeros(bins), _SPREAD**-2.0])
    patients, risk = both.copy(), prior.copy()
    for _ in range(_STEPS):
        information, slope = _normal_equations(patients, risk, powers, cells, noise_sd)
        slope[bins:] += precision[bins:] * (prior - risk)
        step = np.linalg.solve(information + np.diag(precision + _RIDGE), slope)
        patients = np.maximum(patients + step[:bins], -_LOWEST * noise_sd)
        risk = risk + step[bins:] / max(1.0, float((np.abs(step[bins:]) / _REACH).max()))
    information, _ = _normal_equations(patients, risk, powers, cells, noise_sd)
    covariance = np.asarray(np.linalg.inv(information + np.diag(precision + _RIDGE)), np.float64)
    return Fit(patients, expit(powers @ risk), powers, covariance)


def _normal_equations(
    patients: Floats, risk: Floats, powers: Floats, cells: Floats, noise_sd: float
) -> tuple[Floats, Floats]:
    """Information (B + 3, B + 3) and slope (B + 3,) of the cells' likelihood, taken as normal."""
    bins, share = len(patients), expit(powers @ risk)
    expected = np.concatenate([patients * (1.0 - share), patients * share])
    moved = (patients * share * (1.0 - share))[:, None] * powers
    jacobian = np.zeros((2 * bins, bins + powers.shape[1]))
    jacobian[:bins, :bins], jacobian[bins:, :bins] = np.diag(1.0 - share), np.diag(share)
    jacobian[:bins, bins:], jacobian[bins:, bins:] = -moved, moved
    weight = 1.0 / (noise_sd**2 + np.maximum(expected, _FEWEST))
    return jacobian.T @ (weight[:, None] * jacobian), jacobian.T @ (weight * (cells.ravel() - expected))


def _area(negatives: Floats, positives: Floats) -> tuple[float, Floats, Floats]:
    """AUC of two rows of cells, as `evaluation` takes it, and its derivatives (B,) by either row."""
    of_negatives, of_positives = (max(float(row.sum()), 1.0) for row in (negatives, positives))
    below = np.cumsum(negatives) - negatives / 2.0
    above = np.cumsum(positives[::-1])[::-1] - positives / 2.0
    below[1:] += negatives[:-1] / 12.0
    below[:-1] -= negatives[1:] / 12.0
    above[:-1] += positives[1:] / 12.0
    above[1:] -= positives[:-1] / 12.0
    area = float(positives @ below) / (of_negatives * of_positives)
    by_negatives = above / (of_negatives * of_positives) - area / of_negatives
    by_positives = below / (of_negatives * of_positives) - area / of_positives
    return area, by_negatives, by_positives
