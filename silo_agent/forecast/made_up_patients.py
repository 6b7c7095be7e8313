"""Made-up patients whose columns lie in their public ranges as real ones do: the law of one draw of a forecast.

Real columns rarely fill the range that a study publishes, their codes are not equally frequent, and they say partly the
same. Nobody knows how much of this holds for a study's columns, so each draw of the law chooses anew:

- A patient has a few factors; each column shows a mixture of them, and something of its own. Half of the numbers are
  skewed to the right.
- A number lies around a random place in its range, with a deviation of .1 to .4 on the scale [-1, 1]. A number whose
  range is 0 to 1 is taken as no or yes.
- Codes fall off like a power of their rank, and follow one order along what the column shows.
- Where the study allows for absence, 0 to 60 % of the cells are absent, whoever the patient is.
- The outcome's logit is linear in the inputs: few columns say much, and a random part of it is how ill the patient is,
  the first factor, which shows in many columns. Domain m has direction w + d v_m, with v_m drawn as w is, and d between
  0 and .8, mostly small (.8 times a beta variable of 1 and 2).

The logit is scaled so that the best linear model that knows the domain reaches the effect that the law is asked for,
with any number of patients (`forecast.limit_of`). Every patient has one record. The figures were chosen beforehand from
what such columns usually look like, and never fitted to the data sets of a bench (docs/forecast.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

import numpy as np
from numpy.typing import NDArray

from policies.documents.study import BINARY, CategoryFeature, NumericFeature, Study
from policies.plan.families import TARGET_STEPS
from silo_agent.data.records import Records
from silo_agent.forecast.assumptions import Asked

Floats = NDArray[np.float64]
_CALIBRATED: Final = 4000
"""Patients on whom the effect is set."""
_SPREAD, _CENTRE, _ABSENT = (0.1, 0.4), (-0.5, 0.3), 0.6
_SKEW: Final = 0.7
_FALL: Final = (0.3, 1.5)
"""Powers of the rank by which codes fall off."""
_SHARED: Final = (0.2, 0.7)
"""Part of a column's variance that the factors explain."""
_YES: Final = (0.1, 0.6)
_UNEVEN: Final = 0.6
"""Deviation of the logarithm of what a column says."""
_DIFFERENCE: Final = 0.8
_APART: Final = 0.2
"""Deviation of the domains' prevalences, in logits."""
_HALVINGS, _COARSE = 30, 8
"""Steps of a bisection, and of how many sorted scores one is looked at."""
_STEEPEST: Final = 30.0
_OUTCOME: Final = (0.15, 0.4)
"""Deviations of an outcome that is a number, on [-1, 1]."""


@dataclass(frozen=True)
class _Column:
    """How one feature shows its score: where it lies, how wide, how often it is absent."""

    feature: NumericFeature | CategoryFeature
    centre: float
    spread: float
    skewed: bool
    cuts: Floats
    codes: NDArray[np.int64]
    absent: float

    @classmethod
    def draw(cls, feature: NumericFeature | CategoryFeature, rng: np.random.Generator) -> _Column:
        centre, spread = rng.uniform(*_CENTRE), math.exp(rng.uniform(*np.log(_SPREAD)))
        skewed, absent = bool(rng.random() < 0.5), float(rng.uniform(0, _ABSENT))  # noqa: PLR2004 - half of them
        cuts, codes = np.array([_quantile(1.0 - rng.uniform(*_YES))]), np.zeros(0, np.int64)
        if isinstance(feature, CategoryFeature):
            often = np.arange(1, len(feature.values) + 1) ** -rng.uniform(*_FALL)
            codes = rng.permutation(len(often))
            cuts = np.array([_quantile(float(edge)) for edge in np.cumsum(often / often.sum())[:-1]])
        return cls(feature, float(centre), spread, skewed, cuts, codes, absent)

    def show(self, score: Floats, rng: np.random.Generator) -> Floats:
        """The feature's inputs (n, width) for standard scores (n,)."""
        feature, shown = self.feature, np.zeros((len(score), self.feature.width))
        gone = rng.random(len(score)) < self.absent
        if isinstance(feature, CategoryFeature):
            code = self.codes[np.searchsorted(self.cuts, score)]
            if feature.optional:
                code = np.where(gone, len(feature.values), code)
            shown[np.arange(len(score)), code] = 1.0
            return shown
        if feature.is_yes_or_no:
            shown[:, 0] = np.where(score > self.cuts[0], 1.0, -1.0)
        else:
            own = (np.exp(_SKEW * score) - math.exp(_SKEW**2 / 2)) / _LOGNORMAL if self.skewed else score
            shown[:, 0] = np.clip(self.centre + self.spread * own, -1.0, 1.0)
        if feature.fill is not None:
            low, high = feature.along(feature.minimum), feature.along(feature.maximum)
            fill = 2.0 * (feature.along(feature.fill) - low) / (high - low) - 1.0
            shown[:, 0] = np.where(gone, fill, shown[:, 0])
            shown[:, 1] = gone
        return shown


_LOGNORMAL: Final = math.sqrt(math.expm1(_SKEW**2)) * math.exp(_SKEW**2 / 2)
"""Standard deviation of exp(.7 z)."""


class Law:
    """One draw of the law for a study and an effect. `effect` replaces what is asked."""

    def __init__(self, study: Study, asked: Asked, effect: float, rng: np.random.Generator) -> None:
        self._study, self._asked, self._rng = study, asked, rng
        data, label = study.data, study.data.label
        self._columns = [_Column.draw(feature, rng) for feature in data.features]
        count = len(self._columns)
        factors = max(2, round(count / 3))
        mixing = rng.normal(size=(factors, count))
        shared = rng.uniform(*_SHARED, count)
        self._mixing = mixing / np.linalg.norm(mixing, axis=0) * np.sqrt(shared)
        self._own = np.sqrt(1.0 - shared)
        self._difference = _DIFFERENCE * float(rng.beta(1.0, 2.0))
        rows = label.count if label.count > BINARY else 1
        inputs, hidden = self._inputs(_CALIBRATED)
        scale = self._scales(inputs)
        common = self._common(inputs, hidden[:, 0], self._slopes(rows, scale))
        apart = [self._slopes(rows, scale) for _ in data.domains]
        self._directions = np.stack([common + self._difference * own for own in apart])
        scores = np.einsum("nd,mrd->nmr", inputs, self._directions)
        self._centre, self._deviation = scores.mean(axis=0), scores.std(axis=0) + 1e-12
        self._outcome_spread = float(rng.uniform(*_OUTCOME))
        self._offsets = np.zeros(len(data.domains))
        standard = (scores - self._centre) / self._deviation
        if label.number is not None:
            self._effect = math.sqrt(effect)
            return
        rate = math.log(asked.prevalence / (1.0 - asked.prevalence))
        rates = _sigmoid(rate + _APART * rng.normal(size=len(data.domains)))
        self._effect = _slope(standard[:, 0, 0], asked.prevalence, effect)
        if rows == 1:
            pairs = zip(standard[:, :, 0].T, rates, strict=True)
            self._offsets = np.array([_offset(self._effect * own, float(wanted)) for own, wanted in pairs])

    def patients(self, count: int) -> Records:
        """Patients who follow the law, each with one record."""
        shares = np.array(self._asked.shares)
        return self.of_domains(self._rng.choice(len(shares), size=count, p=shares))[0]

    def of_domains(self, domains: NDArray[np.int64]) -> tuple[Records, Floats]:
        """A patient of each of these domains (n,), and the probability (n,) of the outcome that each has.

        With more than two classes, or a number, there is no such probability, and the second part is empty.
        """
        rng, label, count = self._rng, self._study.data.label, len(domains)
        (inputs, _), risks = self._inputs(count), np.zeros(0)
        scores = np.einsum("nd,nrd->nr", inputs, self._directions[domains])
        scores = (scores - self._centre[domains]) / self._deviation[domains]
        if label.number is not None:
            value = self._effect * scores[:, 0] + math.sqrt(1.0 - self._effect**2) * rng.normal(size=count)
            scaled = np.clip(self._outcome_spread * value, -1.0, 1.0)
            labels = np.rint((scaled + 1.0) / 2.0 * TARGET_STEPS)
        elif scores.shape[1] == 1:
            risks = _sigmoid(self._effect * scores[:, 0] + self._offsets[domains])
            labels = rng.random(count) < risks
        else:
            labels = np.argmax(self._effect * scores + rng.gumbel(size=scores.shape), axis=1)
        names, index = tuple(map(str, range(count))), np.arange(count, dtype=np.int64)
        environment = self._study.data.environment
        places = None if environment is None else index % environment.count
        whole = inputs.astype(np.float32)
        records = Records(whole, labels.astype(np.int64), domains.astype(np.int64), index, names, None, places)
        return records, risks

    def _inputs(self, count: int) -> tuple[Floats, Floats]:
        """Inputs (n, d), and the patients' factors (n, f)."""
        rng = self._rng
        factors = rng.normal(size=(count, len(self._mixing)))
        scores = factors @ self._mixing + self._own * rng.normal(size=(count, len(self._own)))
        shown = [column.show(score, rng) for column, score in zip(self._columns, scores.T, strict=True)]
        return np.concatenate(shown, axis=1), factors

    def _scales(self, inputs: Floats) -> Floats:
        """What each input's slope is divided by, (d,): a number's deviation; 1 for codes and for absence."""
        scales, start = np.ones(inputs.shape[1]), 0
        for column in self._columns:
            if not isinstance(column.feature, CategoryFeature):
                scales[start] = inputs[:, start].std() + 1e-3
            start += column.feature.width
        return scales

    def _common(self, inputs: Floats, severity: Floats, slopes: Floats) -> Floats:
        """Slopes (rows, d) of which a random part is how the inputs tell the severity (n,)."""
        centred = inputs - inputs.mean(axis=0)
        told = np.linalg.lstsq(centred, severity, rcond=None)[0]
        part = float(self._rng.uniform())
        sizes = (centred @ slopes.T).std(axis=0)[:, None] + 1e-12
        signs = np.linspace(1.0, -1.0, len(slopes))[:, None]
        mixed = (1.0 - part) * slopes / sizes + part * signs * told / ((centred @ told).std() + 1e-12)
        return np.asarray(mixed * sizes)

    def _slopes(self, rows: int, scales: Floats) -> Floats:
        """Slopes (rows, d): those of one column share their size, and few columns say much."""
        rng = self._rng
        sizes = [np.full(column.feature.width, math.exp(_UNEVEN * rng.normal())) for column in self._columns]
        return np.asarray(rng.normal(size=(rows, len(scales))) * np.concatenate(sizes) / scales)


def _slope(standard: Floats, prevalence: float, area: float) -> float:
    """The deviation of the logit at which scores (n,) have an expected AUC of `area`, by bisection."""
    low, high = 0.0, _STEEPEST
    ordered = np.sort(standard)[_COARSE // 2 :: _COARSE]
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        risk = _sigmoid(middle * ordered + _offset(middle * ordered, prevalence))
        low, high = (middle, high) if area_of(risk) < area else (low, middle)
    return (low + high) / 2.0


def area_of(risk: Floats) -> float:
    """Expected AUC of scores in rising order, if the outcome follows the risks (n,), in (0, 1), in that order."""
    below = np.cumsum(1.0 - risk) - (1.0 - risk) / 2.0
    return float((risk * below).sum() / (risk.sum() * (1.0 - risk).sum()))


def _offset(logits: Floats, prevalence: float) -> float:
    """The intercept with which the mean risk is the prevalence, by bisection."""
    low, high = -40.0, 40.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        low, high = (low, middle) if _sigmoid(logits + middle).mean() > prevalence else (middle, high)
    return (low + high) / 2.0


def _sigmoid(logit: Floats | float) -> Floats:
    return np.asarray(1.0 / (1.0 + np.exp(-np.clip(logit, -700.0, 700.0))), np.float64)


def _quantile(share: float) -> float:
    """Quantile of the standard normal distribution."""
    return NormalDist().inv_cdf(min(max(share, 1e-9), 1.0 - 1e-9))
