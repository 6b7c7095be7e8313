"""Between predictions and logits, and what a prediction loses, for records of any family."""

from __future__ import annotations

from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import logit

from silo_agent.learning.outcomes.family import Family, is_of_classes

Floats = NDArray[np.float64]
_LEAST: Final = 1e-12
"""Least probability whose logit is taken."""


def losses(logits: Floats, labels: NDArray[np.int64], family: Family) -> Floats:
    """The family's loss (n,) of logits (n, R): the log loss of classes, half the squared error of a number."""
    found: Floats = family.losses(torch.from_numpy(logits), torch.from_numpy(labels.copy())).numpy()
    return found


def residuals(logits: Floats, labels: NDArray[np.int64], family: Family) -> Floats:
    """The losses' derivative by the logits, (n, R): expected less observed."""
    expected = family.expected(torch.from_numpy(logits))
    found: Floats = family.residual(expected, torch.from_numpy(labels.copy())).numpy()
    return found


def logits_of(predictions: Floats, family: Family) -> Floats:
    """Logits (n, R) that give these predictions (n, C) of `Family.probabilities`, but for the very certain ones."""
    if not is_of_classes(family):
        return predictions.copy()
    if family.form.logits == 1:
        return np.asarray(logit(np.clip(predictions[:, 1:], _LEAST, 1.0 - _LEAST)), np.float64)
    return np.log(np.maximum(predictions, _LEAST))
