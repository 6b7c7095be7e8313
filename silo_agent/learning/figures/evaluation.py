"""Metrics that may leave a silo: counts of held-out patients by score, and what their noised sums say by domain.

Guarantees that `score_histograms` has l2 sensitivity 1 for all scores. `results_from_histograms` works on opened sums,
so its results are post-processing. Its intervals cover the noise and the sampling of patients. `quality` is exact and
private.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from silo_agent.learning.figures import intervals
from silo_agent.learning.figures.calibration import calibration_error
from silo_agent.learning.figures.expected_observed import LARGEST_RATIO, expected_observed
from silo_agent.learning.figures.fitted_auc import Fit, fit
from silo_agent.learning.outcomes.family import OfClasses

_DRAWS = 2000
_LEVEL = (2.5, 97.5)


@dataclass(frozen=True)
class Estimate:
    """A number and its 95 % interval. If the sum holds too few patients, `value` is None and the interval is whole."""

    value: float | None
    low: float
    high: float


@dataclass(frozen=True)
class DomainResult:
    """What a noised sum says of one domain. `auc` and `false_negatives` are None if there are more than two classes.

    `false_negatives` is the share of the second class that is predicted as the first, at the study's threshold.

    `calibration` estimates the error that many patients would show. The exact error of few patients lies above it,
    because sampling alone adds to a sum of absolute values. `expected_observed` is what was predicted over what
    happened, 1 if risks are right in the mean. `patients` is the number that was counted, so its interval
    covers only the noise.
    """

    auc: Estimate | None
    accuracy: Estimate
    balanced_accuracy: Estimate
    calibration: Estimate
    expected_observed: Estimate
    patients: Estimate
    false_negatives: Estimate | None
    sizes: tuple[float, ...] = ()
    """The noised numbers of patients by class; none if there are too few patients."""


@dataclass(frozen=True)
class NumberResult:
    """What a noised sum says of one domain. Errors are in the label's unit, or its natural logarithm's if scaled so.

    `mae` is the mean absolute error, `r2` the share of the variance that the predictions explain (-1 where they are
    worse than that), `mean_error` the mean of prediction less outcome.
    """

    mae: Estimate
    r2: Estimate
    mean_error: Estimate
    patients: Estimate


@dataclass(frozen=True)
class Results:
    """The results of each domain from the noised metric sums, with 95 % intervals.

    `noise_sd` is the standard deviation of the noise on every cell. `together`: of all patients, if the study says so
    (`blocks`).
    """

    study: str
    domains: tuple[str, ...]
    by_domain: tuple[DomainResult | NumberResult, ...]
    noise_sd: float
    together: DomainResult | NumberResult | None = None


@dataclass(frozen=True)
class Quality:
    """Exact, private metrics. None if there are no records.

    `auc` and `balanced_accuracy` are None also if a class is absent, `expected_observed` if nothing happened.
    """

    auc: float | None
    accuracy: float | None
    balanced_accuracy: float | None
    calibration: float | None
    expected_observed: float | None
    records: int


@dataclass(frozen=True)
class NumberQuality:
    """The same figures of records, exact and private. None if there are no records; `r2` also if all are alike."""

    mae: float | None
    r2: float | None
    mean_error: float | None
    records: int


_UNKNOWN = Estimate(None, 0.0, 1.0)
_UNKNOWN_RATIO = Estimate(None, 0.0, LARGEST_RATIO)


def score_histograms(
    probabilities: NDArray[np.float64],
    labels: NDArray[np.int64],
    domains: NDArray[np.int64],
    weights: NDArray[np.float64],
    family: OfClasses,
    *,
    count: int,
    bins: int,
) -> NDArray[np.float64]:
    """Patients by domain, class and cell: float64 (count * C * cells,), C order, l2 sensitivity 1.

    `count` = M, `probabilities` (n, C), `weights` (n,) as in `Records.weights`. The cells are those of
    `shapes.metric_cells`: a cell for each bin of the score and each side of the family. A patient with several records
    is divided evenly among them, so each patient adds 1 in all.
    """
    form = family.form
    classes, width = form.classes, form.cells_per_bin * bins
    shape = (count, classes, width)
    cell = _bins_of(probabilities, bins, family) + bins * family.side(probabilities, labels)
    cells = np.ravel_multi_index((domains, labels, cell), shape)
    return np.bincount(cells, weights=weights, minlength=count * classes * width).astype(np.float64)


def results_from_histograms(
    sums: NDArray[np.float64],
    noise_sd: float,
    family: OfClasses,
    *,
    count: int,
    bins: int,
    rng: np.random.Generator,
    smallest: int = 0,
    fitted: bool = False,
) -> tuple[DomainResult, ...]:
    """The results of each of the `count` domains from the opened sum of `score_histograms`, `noise_sd` on every cell.

    If a domain's noised sum holds fewer than `smallest` patients, its result says only that. AUC: positives and
    negatives carry independent noise, so the product sums are unbiased without clamping. Its interval is a basic
    bootstrap, with Poisson patients and fresh noise around the cells. With `fitted` AUC, accuracy
    and `expected_observed` follow from a risk that is fitted to the cells (`evaluation.fitted`). The other metrics:
    `intervals`, `calibration`, `expected_observed`.
    """
    domains = sums.reshape(count, family.form.classes, -1)
    right = family.right_cells(bins)
    edges = family.edges(bins)
    aucs: list[Estimate | None] = [None] * count
    fits: list[Fit | None] = [None] * count
    if family.has_auc:
        if fitted:
            fits = [_fit(cells, noise_sd, edges) for cells in domains]
        aucs = [
            _domain_auc(cells, noise_sd, rng) if fit is None else _estimate(fit.auc())
            for cells, fit in zip(domains, fits, strict=True)
        ]
    return tuple(
        _withheld(smallest, with_auc=area is not None)
        if cells.sum() < smallest
        else _domain_result(cells, noise_sd, right, edges, rng=rng, area=area, fit=fit, family=family)
        for cells, area, fit in zip(domains, aucs, fits, strict=True)
    )


def auc(scores: NDArray[np.float64], labels: NDArray[np.int64]) -> float | None:
    """Exact area under the ROC curve (Mann-Whitney, ties one half); None if a class is absent."""
    positives = int((labels > 0).sum())
    negatives = len(labels) - positives
    if not positives or not negatives:
        return None
    from scipy.stats import rankdata

    ranks = rankdata(scores)[labels > 0].sum()
    return float((ranks - positives * (positives + 1) / 2.0) / (positives * negatives))


def quality(probabilities: NDArray[np.float64], labels: NDArray[np.int64], bins: int, family: OfClasses) -> Quality:
    """Exact metrics of records, `probabilities` (n, C). The calibration error is computed over the study's bins."""
    n, classes = probabilities.shape
    if not n:
        return Quality(None, None, None, None, None, 0)
    right = family.decisions(probabilities) == labels
    sizes = np.bincount(labels, minlength=classes)
    balanced = None
    if sizes.min() > 0:
        balanced = float((np.bincount(labels, weights=right, minlength=classes) / sizes).mean())
    happened, claimed = family.claim(probabilities, labels)
    gaps = np.bincount(_bins_of(probabilities, bins, family), weights=happened - claimed, minlength=bins)
    return Quality(
        auc=auc(claimed, labels) if family.has_auc else None,
        accuracy=float(right.mean()),
        balanced_accuracy=balanced,
        calibration=float(np.abs(gaps).sum() / n),
        expected_observed=float(claimed.sum() / happened.sum()) if happened.any() else None,
        records=n,
    )


def _bins_of(probabilities: NDArray[np.float64], bins: int, family: OfClasses) -> NDArray[np.int64]:
    """The bin (n,) of every row's score; the outermost bins are open."""
    return np.asarray(np.searchsorted(family.edges(bins)[1:-1], family.scores(probabilities), "right"), np.int64)


def _withheld(smallest: int, *, with_auc: bool) -> DomainResult:
    return DomainResult(
        _UNKNOWN if with_auc else None,
        _UNKNOWN,
        _UNKNOWN,
        _UNKNOWN,
        _UNKNOWN_RATIO,
        patients=Estimate(None, 0.0, float(smallest)),
        false_negatives=_UNKNOWN if with_auc else None,
    )


def _domain_result(
    cells: NDArray[np.float64],
    noise_sd: float,
    right: NDArray[np.float64],
    edges: NDArray[np.float64],
    *,
    rng: np.random.Generator,
    area: Estimate | None,
    fit: Fit | None,
    family: OfClasses,
) -> DomainResult:
    shares = [intervals.share(own, where, noise_sd) for own, where in zip(cells, right, strict=True)]
    accuracy = intervals.share(cells.ravel(), right.ravel(), noise_sd)
    narrow = None if fit is None else fit.accuracy(right)
    ratio = None if accuracy is None else expected_observed(cells, noise_sd, edges, family, fit)
    return DomainResult(
        auc=area,
        accuracy=_share(narrow or accuracy),
        balanced_accuracy=_share(intervals.mean(shares)),
        calibration=_UNKNOWN if accuracy is None else _estimate(calibration_error(cells, noise_sd, edges, rng, family)),
        expected_observed=_UNKNOWN_RATIO if ratio is None else _estimate(ratio),
        patients=_estimate(intervals.number(cells.ravel(), noise_sd)),
        false_negatives=_share(intervals.complement(shares[1])) if family.has_auc else None,
        sizes=tuple(map(float, cells.sum(axis=1))),
    )


def _share(interval: intervals.Interval | None) -> Estimate:
    return _UNKNOWN if interval is None else _estimate(intervals.clipped(interval))


def _estimate(interval: intervals.Interval) -> Estimate:
    return Estimate(*(float(value) for value in interval))


def _fit(cells: NDArray[np.float64], noise_sd: float, edges: NDArray[np.float64]) -> Fit | None:
    """None with fewer patients in a class than twice what a share of them needs."""
    few = cells.sum(axis=1).min() < 2.0 * intervals.least_patients(noise_sd, cells.shape[1])
    return None if few else fit(cells, noise_sd, edges)


def _domain_auc(cells: NDArray[np.float64], noise_sd: float, rng: np.random.Generator) -> Estimate:
    totals = cells.sum(axis=1)
    least = intervals.least_patients(noise_sd, cells.shape[1])
    if totals.min() < least:
        return _UNKNOWN
    rates = np.maximum(cells, 0.0)
    rates *= (totals / rates.sum(axis=1))[:, None]
    drawn = rng.poisson(rates, (_DRAWS, *cells.shape)) + rng.normal(0.0, noise_sd, (_DRAWS, *cells.shape))
    sizes = drawn.sum(axis=2)
    usable = sizes.min(axis=1) > 0.0
    errors = _areas(drawn[usable]) - _areas(rates[None])[0]
    estimate = float(_areas(cells[None])[0])
    below, above = np.percentile(errors, _LEVEL)
    low, middle, high = np.clip([estimate - above, estimate, estimate - below], 0.0, 1.0)
    return _estimate((middle, low, high))


def _areas(cells: NDArray[np.float64]) -> NDArray[np.float64]:
    """AUC of each (2, bins) table of a stack.

    It is P(the positive's bin lies above the negative's), plus a share for pairs in one bin. That share is
    1/2 + (s_P - s_N) / 12 for densities of relative slopes s_P and s_N, estimated from the neighbouring bins. Summed
    over bins, the slopes give (N_b P_{b+1} - N_{b+1} P_b) / 12. With one half alone, the AUC was measured to be .02 too
    low for logits of deviation 1. The formula stays bilinear in the two classes, so it stays unbiased.
    """
    negatives, positives = cells[:, 0], cells[:, 1]
    below = np.cumsum(negatives, axis=1) - negatives / 2.0
    slopes = negatives[:, :-1] * positives[:, 1:] - negatives[:, 1:] * positives[:, :-1]
    ordered = (positives * below).sum(axis=1) + slopes.sum(axis=1) / 12.0
    return np.asarray(ordered / (positives.sum(axis=1) * negatives.sum(axis=1)), np.float64)
