"""What a study will be worth, from its public constants and what is expected of the data: many draws of the whole plan.

Guarantees: the same study and expectations give the same forecast, whose work follows from public numbers alone. No
record is read, and nothing is charged. docs/forecast.md says what it means and what it cannot know.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from policies.accounting.accountant import with_fields
from policies.documents.study import BINARY, NUMBER, Study
from policies.plan.cost import COHORTS
from policies.plan.release import noise_fields
from silo_agent.data.outcome import half_range
from silo_agent.data.records import Records
from silo_agent.forecast import plain
from silo_agent.forecast.assumptions import Asked
from silo_agent.forecast.made_up_patients import Law, area_of
from silo_agent.forecast.simulated_rounds import Walk
from silo_agent.learning.device import limit_threads
from silo_agent.learning.figures.evaluation import DomainResult, Results, quality
from silo_agent.learning.figures.moments import number_quality
from silo_agent.learning.outcomes.family import is_of_classes
from silo_agent.learning.outcomes.registry import family_of_study

Floats = NDArray[np.float64]
Figure = Literal["auc", "accuracy", "r2"]

DRAWS: Final = 24
"""Draws of a stated effect; of each effect of a range, half as many."""
LEVEL: Final = 0.9
_MOST_VALUES: Final = 400_000
"""Most inputs of the made-up patients of one draw. More patients than that would need are stood for by fewer."""
_MOST_PATIENTS: Final = 12_000
_PUBLISHED: Final = 3
"""Draws of which the published intervals are computed, which takes longer than anything else."""
_TESTED, _FEWEST = 8000, 400
"""Patients on whom models are measured, all together and of one domain at least."""
_SETTLING, _STEPS = 6, 2
"""Draws on which the law's limit is set, and how often."""
_NOTHING: Final = 0.005
"""How near to a coin, or to 1, a figure is taken at most."""
_MEMORY: Final = Path("/dev/shm")  # noqa: S108  # a folder with a name of its own is made below it


@dataclass(frozen=True)
class ForecastInterval:
    """A forecast figure: its middle, and the ends between which it lies in 90 of 100 cases."""

    middle: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> ForecastInterval:
        """From draws: the interval in which one more draw lies, if they are about normal. nan if none is known."""
        known = np.array([value for value in values if not math.isnan(value)])
        if not len(known):
            return cls(math.nan, math.nan, math.nan)
        middle = float(known.mean())
        if len(known) == 1:
            return cls(middle, middle, middle)
        reach = float(stdtrit(len(known) - 1, (1 + LEVEL) / 2) * known.std(ddof=1) * math.sqrt(1 + 1 / len(known)))
        return cls(middle, max(middle - reach, -1.0), min(middle + reach, 1.0))


@dataclass(frozen=True)
class Row:
    """The forecast for one effect. Figures are AUC of two classes, accuracy of more, R^2 of a number.

    Attributes:
        effect: what is expected: `plain_mean`, before anything is drawn.
        mean, worst: of the study's model, over the domains.
        plain_mean, plain_worst: of the same study without noise, or of one regression on all patients if it is better.
        gap: what the noise costs in the mean.
        gain: what the study's mean is above `alone`.
        alone: mean over the domains, of a hospital of mean size alone, without privacy; None with more classes.
        width: median width of the published 95 % intervals of a domain; nan if there are too few patients for any.
        coin: what a model is worth that has learned nothing.
        no_gain: share of the draws in which `alone` is as good or better; None with more classes.
        limit: what the law's best model reaches, which knows the domain and has any number of patients.
    """

    effect: float
    mean: ForecastInterval
    worst: ForecastInterval
    plain_mean: ForecastInterval
    plain_worst: ForecastInterval
    gap: ForecastInterval
    gain: ForecastInterval | None
    alone: ForecastInterval | None
    width: float
    coin: float
    no_gain: float | None = None
    limit: float = math.nan


@dataclass(frozen=True)
class Forecast:
    """A study's forecast, one row for each effect."""

    figure: Figure
    asked: Asked
    draws: int
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class _Drawn:
    """Figures of one draw: (mean, worst) of the study, without noise, and of a hospital alone."""

    own: tuple[float, float]
    plain: tuple[float, float]
    alone: tuple[float, float] | None
    width: float
    coin: float


def forecast(
    study: Study,
    asked: Asked,
    *,
    draws: int = DRAWS,
    seed: int = 0,
    about: Sequence[int] | None = None,
    runs: int = 1,
    done: Callable[[int], object] = int,
) -> Forecast:
    """Simulate the study's whole plan `draws` times for a stated effect, half as often for each effect of a range.

    `about`: the domains over which mean and worst are taken; None: those that the study will publish (`counted`).
    `runs`: the study's figures are means over so many runs on the same patients, each with noise of its own. `done` is
    told of each draw, also of those that set the law, as the number of those that are done more: 1.
    """
    limit_threads(1)
    each = draws if asked.is_stated else max(draws // 2, 2)
    domains = counted(study, asked) if about is None else tuple(about)
    rows = []
    for number, effect in enumerate(asked.effects):
        limit = limit_of(study, asked, effect, domains, done=done)
        rng = np.random.default_rng([seed, number])
        unsure = asked.unsure if asked.is_stated else 0.0
        drawn = []
        for draw in range(each):
            near, published = _near(limit, unsure, study, rng), draw < _PUBLISHED
            drawn.append(_draw(study, asked, near, rng, domains, published=published, runs=runs))
            done(1)
        rows.append(_row(effect, limit, drawn))
    return Forecast(figure_of(study), asked, each, tuple(rows))


def figure_of(study: Study) -> Figure:
    """What a study is judged by."""
    count = study.data.label.count
    return "r2" if count == NUMBER else "auc" if count == BINARY else "accuracy"


def reached(study: Study, asked: Asked, limit: float, *, times: float, draws: int = 3, seed: int = 1) -> float:
    """Mean figure of the study if every sum held `times` as many patients under the same noise (`Row.limit`)."""
    values = outcomes(study, asked, limit, times=times, draws=draws, seed=seed, about=counted(study, asked))
    return float(np.nanmean(values))


def outcomes(
    study: Study, asked: Asked, limit: float, *, draws: int, seed: int, about: Sequence[int], times: float = 1.0
) -> list[float]:
    """The study's mean figure over the domains `about`, of each draw. One seed gives one law for every limit."""
    rng = np.random.default_rng(seed)
    return [_draw(study, asked, limit, rng, about, times=times, bare=True).own[0] for _ in range(draws)]


def counted(study: Study, asked: Asked) -> tuple[int, ...]:
    """Domains that a forecast is about: those whose figures the study will publish, if all is as expected.

    That is all that have patients, but for those with fewer held-out patients than `privacy.smallest_domain`. If none
    has so many, all that have patients.
    """
    smallest = study.privacy.smallest_domain
    present = tuple(m for m, share in enumerate(asked.shares) if share > 0)
    return tuple(m for m in present if asked.shares[m] * asked.aside >= smallest) or present


@dataclass(frozen=True)
class _Test:
    """Patients on whom models are measured, as many of each domain. `risks` (n,): of two classes, else empty."""

    study: Study
    records: Records
    risks: Floats

    def measure(self, said: Floats) -> tuple[float, float]:
        """Mean and worst figure over the domains, of predictions (n, C)."""
        figures = [self._figure(said, self.records.domains == m) for m in np.unique(self.records.domains)]
        return float(np.mean(figures)), min(figures)

    def missed(self, plainly: tuple[float, float], each: float) -> Floats:
        """What fits without noise would miss less of the law, in (mean, worst), if no record stood for `each` patients.

        It comes from the sampling of patients. With few patients for what they tell it falls about like one over the
        root of their number: measured on a study of 12,000 patients that 3,000 records stood for (docs/forecast.md).
        """
        if each <= 1.0 or not len(self.risks):
            return np.zeros(2)
        best = self.measure(np.stack([1.0 - self.risks, self.risks], axis=1))
        return np.asarray(np.maximum(np.subtract(best, plainly), 0.0) * (1.0 - each**-0.5))

    def _figure(self, said: Floats, rows: NDArray[np.bool_]) -> float:
        if len(self.risks):
            # The law knows every patient's risk, so the AUC is that of many patients.
            return area_of(self.risks[rows][np.argsort(said[rows, 1], kind="stable")])
        label, family = self.study.data.label, family_of_study(self.study)
        labels = self.records.labels[rows]
        if not is_of_classes(family):
            value = number_quality(said[rows], labels, half_range(label)).r2
        else:
            value = quality(said[rows], labels, self.study.evaluation.bins, family).accuracy
        return math.nan if value is None else value


def _draw(
    study: Study,
    asked: Asked,
    effect: float,
    rng: np.random.Generator,
    about: Sequence[int],
    *,
    published: bool = False,
    times: float = 1.0,
    bare: bool = False,
    runs: int = 1,
) -> _Drawn:
    law = Law(study, asked, effect, rng)
    count = min(asked.total, _most(study))
    training, each = law.patients(count), asked.total / count
    test = _Test(study, *law.of_domains(np.repeat(about, max(_TESTED // len(about), _FEWEST))))
    coin, width = _coin(study, test.records), math.nan
    with _folder() as folder:
        model = Walk(study, folder, each, times).train(training, rng)
        own = test.measure(model.predict(test.records.inputs, test.records.domains))
        if bare:
            return _Drawn(own, own, None, math.nan, coin)
        if published:
            held_out = law.patients(max(min(asked.aside, _MOST_PATIENTS), 2))
            width = _width(Walk(study, folder, asked.aside / len(held_out)).measure(model, held_out, rng), about)
    figures = [own]
    for _ in range(runs - 1):
        with _folder() as folder:
            again = Walk(study, folder, each).train(training, rng)
            figures.append(test.measure(again.predict(test.records.inputs, test.records.domains)))
    own = float(np.mean([mean for mean, _ in figures])), float(np.mean([worst for _, worst in figures]))
    best, sampled = _without_noise(study, training, test, each, rng)
    if study.data.label.count > BINARY:
        return _Drawn(own, best, None, width, coin)
    own = own[0] + sampled[0], own[1] + sampled[1]
    mine = law.patients(max(min(round(asked.total / len(asked.patients)), _most(study)), 2))
    alone = test.measure(plain.predictions(mine, test.records, number=study.data.label.number is not None))
    return _Drawn(own, best, alone, width, coin)


def _without_noise(
    study: Study, training: Records, test: _Test, each: float, rng: np.random.Generator
) -> tuple[tuple[float, float], tuple[float, float]]:
    """(mean, worst) without noise, the better of study and one regression; and what the study misses by sampling."""
    with _folder() as folder:
        quiet = Walk(without_noise(study), folder, each).train(training, rng)
        plainly = test.measure(quiet.predict(test.records.inputs, test.records.domains))
    if study.data.label.count > BINARY:
        return plainly, (0.0, 0.0)
    together = test.measure(plain.predictions(training, test.records, number=study.data.label.number is not None))
    sampled = test.missed(plainly, each)
    best = np.maximum(np.add(plainly, sampled), np.add(together, test.missed(together, each)))
    return (float(best[0]), float(best[1])), (float(sampled[0]), float(sampled[1]))


def limit_of(
    study: Study, asked: Asked, effect: float, about: Sequence[int], *, done: Callable[[int], object] = int
) -> float:
    """What the law's best model must reach with any number of patients, if without noise the study reaches `effect`.

    Found by two steps on few draws, on the scale on which effects add up. With more than two classes there is no
    regression to compare with, and it is the effect.
    """
    if study.data.label.count > BINARY:
        return effect
    limit = effect
    for _ in range(_STEPS):
        came = reached_without_noise(study, asked, limit, about, done=done)
        limit = _moved(figure_of(study), limit, effect, came)
    return limit


def reached_without_noise(
    study: Study, asked: Asked, limit: float, about: Sequence[int], *, done: Callable[[int], object] = int
) -> float:
    """What the study, or one regression, reaches without noise in the mean of the domains, if this is the limit."""
    rng, count, values = np.random.default_rng(_SETTLING), min(asked.total, _most(study)), []
    for _ in range(_SETTLING):
        law = Law(study, asked, limit, rng)
        training = law.patients(count)
        test = _Test(study, *law.of_domains(np.repeat(about, max(_TESTED // len(about), _FEWEST))))
        values.append(_without_noise(study, training, test, asked.total / count, rng)[0][0])
        done(1)
    return float(np.nanmean(values))


def _moved(figure: Figure, limit: float, wanted: float, came: float) -> float:
    """The limit, moved by what `came` is short of `wanted`: as deviations of an AUC, as log odds of an R^2."""
    if figure == "auc":
        normal = NormalDist()
        known, short, least = (max(value, 0.5 + _NOTHING) for value in (limit, came, wanted))
        moved = normal.cdf(normal.inv_cdf(known) + normal.inv_cdf(least) - normal.inv_cdf(short))
    else:
        odds = [max(value, _NOTHING) / (1.0 - max(value, _NOTHING)) for value in (limit, wanted, came)]
        moved = odds[0] * odds[1] / odds[2]
        moved = moved / (1.0 + moved)
    return min(max(moved, wanted), 1.0 - _NOTHING)


def without_noise(study: Study) -> Study:
    """The study as it would be on public data: no noise, all else as it was."""
    changed: Mapping[str, object] = {**dict.fromkeys(noise_fields(COHORTS, study), 0.0), "privacy.mode": "none"}
    return with_fields(study, changed)


def _row(effect: float, limit: float, drawn: Sequence[_Drawn]) -> Row:
    alone = [one.alone[0] for one in drawn if one.alone is not None]
    gains = [one.own[0] - one.alone[0] for one in drawn if one.alone is not None]
    widths = [one.width for one in drawn if not math.isnan(one.width)]
    return Row(
        effect,
        mean=ForecastInterval.of([one.own[0] for one in drawn]),
        worst=ForecastInterval.of([one.own[1] for one in drawn]),
        plain_mean=ForecastInterval.of([one.plain[0] for one in drawn]),
        plain_worst=ForecastInterval.of([one.plain[1] for one in drawn]),
        gap=ForecastInterval.of([one.plain[0] - one.own[0] for one in drawn]),
        gain=ForecastInterval.of(gains) if gains else None,
        alone=ForecastInterval.of(alone) if alone else None,
        width=float(np.median(widths)) if widths else math.nan,
        coin=float(np.mean([one.coin for one in drawn])),
        no_gain=float(np.mean([gain <= 0.0 for gain in gains])) if gains else None,
        limit=limit,
    )


def _near(effect: float, unsure: float, study: Study, rng: np.random.Generator) -> float:
    """The effect as it may really be."""
    least = 0.0 if study.data.label.number is not None else 0.5
    return float(np.clip(effect + unsure * rng.normal(), least + 1e-3, 1.0 - 1e-3))


def _most(study: Study) -> int:
    return max(min(_MOST_PATIENTS, _MOST_VALUES // max(study.data.inputs, 1)), 500)


def _coin(study: Study, records: Records) -> float:
    """What is reached without any knowledge of the features."""
    figure = figure_of(study)
    if figure == "accuracy":
        return float(np.bincount(records.labels, minlength=study.data.label.count).max() / len(records))
    return 0.5 if figure == "auc" else 0.0


def _width(results: Results | None, about: Sequence[int]) -> float:
    """Median width of these domains' intervals of the figure that the study is judged by."""
    if results is None:
        return math.nan
    widths = []
    for own in (results.by_domain[m] for m in about):
        told = (own.auc or own.accuracy) if isinstance(own, DomainResult) else own.r2
        if told.value is not None:
            widths.append(told.high - told.low)
    return float(np.median(widths)) if widths else math.nan


@contextmanager
def _folder() -> Iterator[Path]:
    """An empty folder, in memory where there are such folders."""
    with tempfile.TemporaryDirectory(prefix="fedward-forecast-", dir=_MEMORY if _MEMORY.is_dir() else None) as root:
        yield Path(root)
