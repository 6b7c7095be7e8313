"""The logistic regression of one hospital on its own, without privacy: what a study is compared with."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from silo_agent.data.records import Records

Array = NDArray[np.float64]

RIDGES: Final = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
_FOLDS: Final = 5
_STEPS: Final = 100
_NEGLIGIBLE: Final = 1e-12
"""Newton's decrement, over the loss, at which the minimum is reached."""
_TINY: Final = 1e-12
"""Added to the curvature, over its trace: nothing else bounds a bias where all labels are the same."""
_SHORTEST: Final = 1e-6
_DECREASE: Final = 1e-4
"""Share of the decrease that the gradient promises which a step must bring."""


def logistic(records: Records) -> Array:
    """Weights (d + 1,), bias last, of the logistic regression over the study's inputs.

    L2-regularised, the ridge chosen by five-fold cross-validation over patients.
    """
    rows, labels = design(records), records.labels.astype(np.float64)
    weight = 1.0 / np.bincount(records.patients)[records.patients]
    fold = records.patients % _FOLDS
    losses = np.zeros(len(RIDGES))
    fitted = np.zeros(rows.shape[1])
    for part in range(_FOLDS):
        held = fold == part
        own, others = (rows[held], labels[held], weight[held]), (rows[~held], labels[~held], weight[~held])
        for number, ridge in enumerate(RIDGES):
            fitted = _fit(*others, ridge, fitted)
            logits = own[0] @ fitted
            losses[number] += own[2] @ (np.logaddexp(0.0, logits) - own[1] * logits)
    return _fit(rows, labels, weight, RIDGES[int(np.argmin(losses))], fitted)


def design(records: Records) -> Array:
    """The inputs, float64 (n, d + 1), with a column of ones for the bias."""
    return np.column_stack([np.asarray(records.inputs, np.float64), np.ones(len(records))])


def _fit(design: Array, labels: Array, weight: Array, ridge: float, start: Array) -> Array:
    """Newton's method with halved steps. The loss is convex, so the start decides nothing but the time."""
    penalty = np.append(np.full(design.shape[1] - 1, ridge), 0.0)

    def objective(logits: Array, w: Array) -> float:
        return float(weight @ (np.logaddexp(0.0, logits) - labels * logits)) + float(penalty @ w**2) / 2

    w = start
    logits = design @ w
    loss = objective(logits, w)
    for _ in range(_STEPS):
        risk = expit(logits)
        gradient = design.T @ (weight * (risk - labels)) + penalty * w
        root = design * np.sqrt(weight * risk * (1.0 - risk))[:, None]
        hessian = root.T @ root + np.diag(penalty)
        step = np.linalg.solve(hessian + _TINY * np.trace(hessian) * np.eye(len(w)), gradient)
        gain, size = float(gradient @ step), 1.0
        if gain <= _NEGLIGIBLE * (1.0 + abs(loss)):
            break
        while size > _SHORTEST:
            tried = w - size * step
            logits = design @ tried
            changed = objective(logits, tried)
            if changed <= loss - _DECREASE * size * gain:
                w, loss = tried, changed
                break
            size /= 2
        else:
            break
    return w
