"""The logistic regression of one hospital on its own, without privacy: what a study is compared with."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit

from silo_agent.data.records import Records

Array = NDArray[np.float64]

RIDGES: Final = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
_FOLDS: Final = 5


def logistic(records: Records) -> Array:
    """Weights (d + 1,), bias last, of the logistic regression over the study's inputs.

    L2-regularised, the ridge chosen by five-fold cross-validation over patients.
    """
    rows, labels = design(records), records.labels.astype(np.float64)
    weight = 1.0 / np.bincount(records.patients)[records.patients]
    fold = records.patients % _FOLDS
    losses = []
    for ridge in RIDGES:
        loss = 0.0
        for part in range(_FOLDS):
            held = fold == part
            fitted = _fit(rows[~held], labels[~held], weight[~held], ridge)
            logits = rows[held] @ fitted
            loss += float(weight[held] @ (np.logaddexp(0.0, logits) - labels[held] * logits))
        losses.append(loss)
    return _fit(rows, labels, weight, RIDGES[int(np.argmin(losses))])


def design(records: Records) -> Array:
    """The inputs, float64 (n, d + 1), with a column of ones for the bias."""
    return np.column_stack([np.asarray(records.inputs, np.float64), np.ones(len(records))])


def _fit(design: Array, labels: Array, weight: Array, ridge: float) -> Array:
    def objective(w: Array) -> tuple[float, Array]:
        logits = design @ w
        free = np.append(w[:-1], 0.0)
        loss = float(weight @ (np.logaddexp(0.0, logits) - labels * logits)) + ridge / 2 * float(free @ free)
        return loss, design.T @ (weight * (expit(logits) - labels)) + ridge * free

    found = minimize(objective, np.zeros(design.shape[1]), jac=True, method="L-BFGS-B")
    return np.asarray(found.x, np.float64)
