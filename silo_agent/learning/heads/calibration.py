"""The last round of the heads: how far predictions are from outcomes, unclipped, and the intercepts that follow.

Source: docs/design/heads.md, "Calibration". `intercept_sums` reads records; adding or removing one patient moves its
result by at most 1 in l2, because no record's terms are longer (`Family.intercept_terms`). `shifts` reads opened sums
alone. M domains, V = `Form.calibration_values`.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from silo_agent.learning.heads.sums import predicted
from silo_agent.learning.outcomes.family import Family, is_of_classes
from silo_agent.learning.outcomes.response import LEAST

Floats = NDArray[np.float64]

_POOLED_SHARE: Final = 0.5
"""How much of a domain calibration's release, by square, is the sum of all domains."""
_SPREADS: Final = np.concatenate([[0.0], np.geomspace(0.02, 2.0, 12)])
"""Grid of the prior deviations of a shift, in logits (of a number: in halves of the label's range)."""
_NO_SHIFT: Final = 0.5
"""Prior weight of the deviation 0."""
_FREE: Final = 2.0
"""Shifts that lie so close together, in logits, are taken as they are."""


def intercept_sums(
    features: torch.Tensor,
    labels: NDArray[np.int64],
    domains: NDArray[np.int64],
    weights: NDArray[np.float64],
    heads: Floats,
    *,
    family: Family,
    slack: float = 0.0,
    norm_bound: float = 1.0,
) -> Floats:
    """Sums (M, V) over patients of what an intercept's step needs, at the heads (M, W) that all silos hold.

    Arguments as of `sums.second_order_sums`. A record whose logits overflow under these heads enters as zero.
    """
    expected, error, weight = predicted(
        features, labels, domains, weights / (1.0 + slack), heads, family=family, norm_bound=norm_bound
    )
    terms = (weight[:, None] * family.intercept_terms(expected, error)).cpu().numpy()
    return np.stack([np.bincount(domains, column, minlength=len(heads)) for column in terms.T], axis=1)


def blocks(sums: Floats, *, pooled: bool) -> Floats:
    """The values that are released, flat: (V,) for one common shift, else ((M + 1) V,), the sum of all domains last.

    A patient's rows have norms that add up to at most 1. So have the rows as one vector and their sum; together they
    enter with squares that add up to 1 (`evidence.mixed`).
    """
    whole = sums.sum(axis=0, keepdims=True)
    if pooled:
        return np.asarray(whole.ravel())
    return np.concatenate([math.sqrt(1.0 - _POOLED_SHARE) * sums, math.sqrt(_POOLED_SHARE) * whole]).ravel()


def shifts(opened: Floats, noise_sd: float, family: Family, small: NDArray[np.bool_], *, pooled: bool) -> Floats:
    """What is added to each domain's intercepts (M, R), from opened `blocks` with `noise_sd` on every value.

    `small` (M,): domains with too few patients for a shift of their own.
    """
    scale, logits = np.array(family.intercept_scale), family.form.logits
    read = opened.reshape(-1, len(scale)) / scale
    deviation = noise_sd / scale[0]
    if pooled:
        own, whole, variance = None, read[0], deviation**2
    else:
        own = read[:-1] / math.sqrt(1.0 - _POOLED_SHARE)
        alone, together = (1.0 - _POOLED_SHARE) / len(own), _POOLED_SHARE
        whole = (alone * own.sum(axis=0) + math.sqrt(together) * read[-1]) / (alone + together)
        variance = deviation**2 / (alone + together)
    response = family.response(whole)
    step = _shrunk(*_split(whole[None, :], logits), variance)
    bounded = _bounded if is_of_classes(family) else _as_they_are
    common = bounded(response.shift(step), step)
    if own is None:
        return np.tile(common, (len(small), 1))
    # What is left of a domain's error after the common shift, and its curvature there.
    left, curvatures = _split(own, logits)
    left = left + curvatures * response.step(common)
    curvatures = curvatures * response.factor(common)
    sampling = curvatures if is_of_classes(family) else 0.0
    steps = _shrunk(left, curvatures, deviation**2 / (1.0 - _POOLED_SHARE) + sampling)
    errors, curvatures = _split(own, logits)
    # A curvature that lies below its own noise says nothing about how long a step may be.
    least = max(noise_sd / float(scale[logits]) / math.sqrt(1.0 - _POOLED_SHARE), LEAST)
    both = bounded(common + response.shift(steps), -errors / np.maximum(curvatures, least))
    return np.where(small[:, None], common, both)


def _bounded(shifts: Floats, steps: Floats) -> Floats:
    """The shifts (B, R), shortened where they may overshoot; `steps` (B, R) are Newton's.

    Predictions that are confident have hardly any curvature, so a step from there is long. But logits that move apart
    by u multiply a record's curvature by up to exp(u), and sums of predictions then move by up to exp(u) - 1 in units
    of the curvature. So shifts of up to log(1 + step) cannot overshoot. A single logit moves against one that stands.
    """
    apart, asked = (_apart(values) for values in (shifts, steps))
    most = np.maximum(_FREE, np.log1p(asked))
    return np.asarray(shifts * np.minimum(1.0, most / np.maximum(apart, LEAST))[..., None])


def _apart(values: Floats) -> Floats:
    """How far logits move apart (B,), for values (B, R)."""
    if values.shape[-1] == 1:
        return np.asarray(np.abs(values[..., 0]))
    return np.asarray(values.max(axis=-1) - values.min(axis=-1))


def _as_they_are(shifts: Floats, _steps: Floats) -> Floats:
    """The shifts of a number: its curvature is the same everywhere."""
    return shifts


def _split(sums: Floats, logits: int) -> tuple[Floats, Floats]:
    """Residuals and curvatures (B, R) of rows (B, V)."""
    return sums[:, :logits], np.maximum(sums[:, logits : 2 * logits], LEAST)


def _shrunk(error: Floats, curvature: Floats, variance: Floats | float) -> Floats:
    """Posterior means (B, R) of steps x ~ N(0, s^2), given -error = curvature x + noise of `variance`, all (B, R).

    The mean over a grid of s, weighted by how well it explains all errors. Nothing is chosen, so nothing jumps.
    """
    square = _SPREADS[:, None, None] ** 2
    total = square * curvature**2 + variance
    prior = np.where(_SPREADS > 0, (1.0 - _NO_SHIFT) / (len(_SPREADS) - 1), _NO_SHIFT)
    log_weight = np.log(prior) - 0.5 * (error**2 / total + np.log(total)).sum(axis=(1, 2))
    likely = np.exp(log_weight - log_weight.max())
    return np.asarray(np.tensordot(likely / likely.sum(), -square * curvature * error / total, axes=1))
