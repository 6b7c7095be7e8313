"""Metrics that may leave a silo: counts of held-out patients by score, and what their noised sums say by domain.

Guarantees l2 sensitivity 1 of `score_histograms` whatever the scores. `results_from_histograms` works on opened sums,
so its results are post-processing; its intervals count the noise and the sampling of patients. `quality` is exact and
private.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from silo_agent.learning.evaluation import intervals
from silo_agent.learning.evaluation.calibration import calibration_error
from silo_agent.learning.families.family import Family

_DRAWS = 2000
_LEVEL = (2.5, 97.5)


@dataclass(frozen=True)
class Estimate:
    """A number and its 95 % interval; `value` is None and the interval [0, 1] where the sum holds too few patients."""

    value: float | None
    low: float
    high: float


@dataclass(frozen=True)
class DomainResult:
    """What a noised sum says of one domain. `auc` is None where the family has none.

    `calibration` estimates the error that many patients would show; the exact one of few lies above it, as sampling
    alone adds to a sum of absolute values. `patients` are those counted, so only the noise is in its interval.
    """

    auc: Estimate | None
    accuracy: Estimate
    balanced_accuracy: Estimate
    calibration: Estimate
    patients: Estimate


@dataclass(frozen=True)
class Results:
    """What the sealed, noised metric sums say of each domain, with 95 % intervals; `noise_sd` is on every cell."""

    study: str
    domains: tuple[str, ...]
    by_domain: tuple[DomainResult, ...]
    noise_sd: float


@dataclass(frozen=True)
class Quality:
    """Exact and private. None where nobody is there; `auc` and `balanced_accuracy` also where a class is absent."""

    auc: float | None
    accuracy: float | None
    balanced_accuracy: float | None
    calibration: float | None
    records: int


_UNKNOWN = Estimate(None, 0.0, 1.0)


def score_histograms(
    probabilities: NDArray[np.float64],
    labels: NDArray[np.int64],
    domains: NDArray[np.int64],
    patients: NDArray[np.int64],
    family: Family,
    *,
    count: int,
    bins: int,
) -> NDArray[np.float64]:
    """Patients by domain, class and cell: float64 (count * C * cells,), C order, l2 sensitivity 1.

    `count` = M, `probabilities` (n, C). Cells of `shapes.metric_cells`: the bin of the score, in as many parts as the
    family has sides. A patient with several records is shared out evenly over them, so every patient adds 1 in all.
    """
    form = family.form
    classes, width = form.classes, form.cells_per_bin * bins
    shape = (count, classes, width)
    if not len(patients):
        return np.zeros(count * classes * width)
    cell = _bins_of(probabilities, bins, family) + bins * family.side(probabilities, labels)
    cells = np.ravel_multi_index((domains, labels, cell), shape)
    weight = 1.0 / np.bincount(patients)[patients]
    return np.bincount(cells, weights=weight, minlength=count * classes * width).astype(np.float64)


def results_from_histograms(
    sums: NDArray[np.float64],
    noise_sd: float,
    family: Family,
    *,
    count: int,
    bins: int,
    rng: np.random.Generator,
    smallest: int = 0,
) -> tuple[DomainResult, ...]:
    """What the opened sum of `score_histograms` says of each of the `count` domains, noise_sd on every cell.

    Of a domain whose noised sum holds fewer than `smallest` patients nothing is said but that they are fewer.
    AUC: positives and negatives carry independent noise, so the product sums are unbiased without clamping; the
    interval is a basic bootstrap, Poisson patients and fresh noise around the cells. The rest: `intervals`,
    `calibration`.
    """
    domains = sums.reshape(count, family.form.classes, -1)
    aucs = [_domain_auc(cells, noise_sd, rng) if family.has_auc else None for cells in domains]
    right = family.right_cells(bins)
    edges = family.edges(bins)
    return tuple(
        _withheld(smallest, with_auc=area is not None)
        if cells.sum() < smallest
        else _domain_result(cells, noise_sd, right, edges, rng=rng, area=area, family=family)
        for cells, area in zip(domains, aucs, strict=True)
    )


def auc(scores: NDArray[np.float64], labels: NDArray[np.int64]) -> float | None:
    """Exact area under the ROC curve (Mann-Whitney, ties one half); None where a class is absent."""
    positives = int((labels > 0).sum())
    negatives = len(labels) - positives
    if not positives or not negatives:
        return None
    from scipy.stats import rankdata

    ranks = rankdata(scores)[labels > 0].sum()
    return float((ranks - positives * (positives + 1) / 2.0) / (positives * negatives))


def quality(probabilities: NDArray[np.float64], labels: NDArray[np.int64], bins: int, family: Family) -> Quality:
    """Exact metrics of records, `probabilities` (n, C); the calibration error is over the study's bins."""
    n, classes = probabilities.shape
    if not n:
        return Quality(None, None, None, None, 0)
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
        records=n,
    )


def _bins_of(probabilities: NDArray[np.float64], bins: int, family: Family) -> NDArray[np.int64]:
    """The bin (n,) of every row's score; the outermost bins are open."""
    return np.asarray(np.searchsorted(family.edges(bins)[1:-1], family.scores(probabilities), "right"), np.int64)


def _withheld(smallest: int, *, with_auc: bool) -> DomainResult:
    return DomainResult(
        _UNKNOWN if with_auc else None, _UNKNOWN, _UNKNOWN, _UNKNOWN, patients=Estimate(None, 0.0, float(smallest))
    )


def _domain_result(
    cells: NDArray[np.float64],
    noise_sd: float,
    right: NDArray[np.float64],
    edges: NDArray[np.float64],
    *,
    rng: np.random.Generator,
    area: Estimate | None,
    family: Family,
) -> DomainResult:
    shares = [intervals.share(own, where, noise_sd) for own, where in zip(cells, right, strict=True)]
    accuracy = intervals.share(cells.ravel(), right.ravel(), noise_sd)
    return DomainResult(
        auc=area,
        accuracy=_share(accuracy),
        balanced_accuracy=_share(intervals.mean(shares)),
        calibration=_UNKNOWN if accuracy is None else _estimate(calibration_error(cells, noise_sd, edges, rng, family)),
        patients=_estimate(intervals.number(cells.ravel(), noise_sd)),
    )


def _share(found: intervals.Interval | None) -> Estimate:
    return _UNKNOWN if found is None else _estimate(intervals.clipped(found))


def _estimate(found: intervals.Interval) -> Estimate:
    return Estimate(*(float(value) for value in found))


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

    P(positive's bin above negative's), plus within a bin 1/2 + (s_P - s_N) / 12 for densities of relative slopes s_P,
    s_N estimated from the neighbouring bins; summed over bins that is (N_b P_{b+1} - N_{b+1} P_b) / 12. One half alone
    was measured to lose .02 of AUC with logits of deviation 1. Still bilinear in the two classes, so still unbiased.
    """
    negatives, positives = cells[:, 0], cells[:, 1]
    below = np.cumsum(negatives, axis=1) - negatives / 2.0
    slopes = negatives[:, :-1] * positives[:, 1:] - negatives[:, 1:] * positives[:, :-1]
    ordered = (positives * below).sum(axis=1) + slopes.sum(axis=1) / 12.0
    return np.asarray(ordered / (positives.sum(axis=1) * negatives.sum(axis=1)), np.float64)
