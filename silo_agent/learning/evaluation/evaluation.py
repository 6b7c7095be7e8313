"""Metrics that may leave a silo: counts of held-out patients by score, and what their noised sums say by domain.

Guarantees l2 sensitivity 1 of `score_histograms` whatever the scores. `results_from_histograms` works on opened sums,
so its results are post-processing; its intervals count the noise and the sampling of patients. `quality` is exact and
private.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit

from policies.documents.study import BINARY
from silo_agent.learning.evaluation import intervals
from silo_agent.learning.evaluation.calibration import calibration_error

LOGIT_RANGE = 5.0
"""Bins of two classes have equal widths in logit(p) over [-5, 5], open at both ends: outcomes are rare, and equal
widths in p would put nearly all patients into one bin. The threshold 0 is an edge; where the number of bins is odd, the
one left over lies below -5. A model whose logits spread less than a bin's width needs more bins."""
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
    """What a noised sum says of one domain. `auc` is None for more than two classes.

    `calibration` estimates the error that many patients would show; the exact one of few lies above it, as sampling
    alone adds to a sum of absolute values. `patients` are those counted, so only the noise is in its interval.
    """

    auc: Estimate | None
    accuracy: Estimate
    balanced_accuracy: Estimate
    calibration: Estimate
    patients: Estimate


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
    *,
    count: int,
    bins: int,
) -> NDArray[np.float64]:
    """Patients by domain, class and cell: float64 (count * C * cells,), C order, l2 sensitivity 1.

    `count` = M, `probabilities` (n, C). Cells of `shapes.metric_cells`: for C = 2 the bin of the positive label's
    logit; for more [wrong, right] x bin of the confidence. A patient with several records is shared out evenly over
    them, so every patient adds 1 in all.
    """
    classes = probabilities.shape[1]
    width = bins if classes == BINARY else 2 * bins
    shape = (count, classes, width)
    if not len(patients):
        return np.zeros(count * classes * width)
    cell = _bins_of(probabilities, bins)
    if classes != BINARY:
        cell = cell + bins * (_decisions(probabilities) == labels)
    cells = np.ravel_multi_index((domains, labels, cell), shape)
    weight = 1.0 / np.bincount(patients)[patients]
    return np.bincount(cells, weights=weight, minlength=count * classes * width).astype(np.float64)


def results_from_histograms(
    sums: NDArray[np.float64],
    noise_sd: float,
    *,
    count: int,
    classes: int,
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
    domains = sums.reshape(count, classes, -1)
    aucs = [_domain_auc(cells, noise_sd, rng) if classes == BINARY else None for cells in domains]
    right = _right_cells(classes, bins)
    edges = _edges(classes, bins)
    return tuple(
        _withheld(smallest, with_auc=area is not None)
        if cells.sum() < smallest
        else _domain_result(cells, noise_sd, right, edges, rng=rng, area=area)
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


def quality(probabilities: NDArray[np.float64], labels: NDArray[np.int64], bins: int) -> Quality:
    """Exact metrics of records, `probabilities` (n, C); the calibration error is over the study's bins."""
    n, classes = probabilities.shape
    if not n:
        return Quality(None, None, None, None, 0)
    right = _decisions(probabilities) == labels
    sizes = np.bincount(labels, minlength=classes)
    balanced = None
    if sizes.min() > 0:
        balanced = float((np.bincount(labels, weights=right, minlength=classes) / sizes).mean())
    binary = classes == BINARY
    happened, claimed = (labels, probabilities[:, 1]) if binary else (right, probabilities.max(axis=1))
    gaps = np.bincount(_bins_of(probabilities, bins), weights=happened - claimed, minlength=bins)
    return Quality(
        auc=auc(probabilities[:, 1], labels) if binary else None,
        accuracy=float(right.mean()),
        balanced_accuracy=balanced,
        calibration=float(np.abs(gaps).sum() / n),
        records=n,
    )


def _decisions(probabilities: NDArray[np.float64]) -> NDArray[np.int64]:
    """The predicted class; of two the positive one from 0.5 on."""
    if probabilities.shape[1] == BINARY:
        return (probabilities[:, 1] >= 0.5).astype(np.int64)  # noqa: PLR2004
    return np.asarray(np.argmax(probabilities, axis=1), np.int64)


def _edges(classes: int, bins: int) -> NDArray[np.float64]:
    """Edges (bins + 1,) of the score's bins: logits of the positive label, or confidence from 1/C to 1."""
    if classes == BINARY:
        half = bins // 2
        width = LOGIT_RANGE / half
        edges = np.linspace(-LOGIT_RANGE, LOGIT_RANGE, 2 * half + 1)
        edges[half] = 0.0  # the threshold, which rounding misses for some numbers of bins
        return edges if bins % 2 == 0 else np.concatenate([[edges[0] - width], edges])
    return np.linspace(1.0 / classes, 1.0, bins + 1)


def _bins_of(probabilities: NDArray[np.float64], bins: int) -> NDArray[np.int64]:
    """The bin (n,) of every row's score; the outermost bins are open. What is no number counts as undecided."""
    classes = probabilities.shape[1]
    if classes == BINARY:
        with np.errstate(divide="ignore"):
            scores = logit(np.nan_to_num(np.clip(probabilities[:, 1], 0.0, 1.0), nan=0.5))
    else:
        scores = np.nan_to_num(probabilities.max(axis=1), nan=1.0 / classes)
    return np.asarray(np.searchsorted(_edges(classes, bins)[1:-1], scores, "right"), np.int64)


def _right_cells(classes: int, bins: int) -> NDArray[np.float64]:
    """Which cells (C, cells) are predicted rightly: 1, else 0."""
    if classes != BINARY:
        return np.tile(np.repeat([0.0, 1.0], bins), (classes, 1))
    above = (np.arange(bins) >= (bins + 1) // 2).astype(np.float64)
    return np.stack([1.0 - above, above])


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
) -> DomainResult:
    shares = [intervals.share(own, where, noise_sd) for own, where in zip(cells, right, strict=True)]
    accuracy = intervals.share(cells.ravel(), right.ravel(), noise_sd)
    return DomainResult(
        auc=area,
        accuracy=_share(accuracy),
        balanced_accuracy=_share(intervals.mean(shares)),
        calibration=_UNKNOWN if accuracy is None else _estimate(calibration_error(cells, noise_sd, edges, rng)),
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
