"""The decision curve: whether acting on a model's risks does more good than acting on everybody or on nobody.

Net benefit at a threshold t is the share of patients who are treated rightly, less the share treated in vain times
t / (1 - t), which is what acting from t on says of the two errors (Vickers and Elkin 2006, Medical Decision Making 26).
Acting on nobody has 0. Figures are exact and private; intervals are a jackknife's over groups of patients.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit, stdtrit

Floats = NDArray[np.float64]
_GROUPS: Final = 100
_AROUND: Final = np.linspace(-1.5, 1.5, 7)
"""Where the curve is drawn: so far from the public threshold in logits."""
FEWEST: Final = 10
"""Patients with the outcome, and without it, below which there is no curve."""


@dataclass(frozen=True)
class NetBenefit:
    """The net benefit at one threshold.

    `gain` is the model's less the better of acting on everybody and on nobody, with the ends of its 95 % interval.
    """

    threshold: float
    model: float
    everybody: float
    gain: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        """better, worse, or not told apart."""
        if self.low > 0.0:
            return "better"
        return "worse" if self.high < 0.0 else "not told apart"


def decision_curve(
    risks: Floats, labels: NDArray[np.int64], patients: NDArray[np.int64], threshold: float
) -> tuple[NetBenefit, ...]:
    """The curve around a public threshold, for risks (n,) of the second of two classes; empty with too few patients.

    The middle point is that of the threshold itself. Each patient counts once: the records share the weight.
    """
    if min(len(np.unique(patients[labels == one])) for one in (0, 1)) < FEWEST:
        return ()
    index = np.unique(patients, return_inverse=True)[1]
    weights = 1.0 / np.bincount(index)[index]
    groups = min(int(index.max()) + 1, _GROUPS)
    part = index % groups
    middle = len(_AROUND) // 2
    cuts = expit(logit(threshold) + _AROUND)
    cuts[middle] = threshold
    return tuple(_at(float(cut), risks, labels, weights=weights, part=part, groups=groups) for cut in cuts)


def _at(
    cut: float, risks: Floats, labels: NDArray[np.int64], *, weights: Floats, part: NDArray[np.int64], groups: int
) -> NetBenefit:
    cost = cut / (1.0 - cut)
    worth = np.where(labels == 1, 1.0, -cost) * weights
    acted = np.bincount(part, weights=worth * (risks >= cut), minlength=groups)
    everybody = np.bincount(part, weights=worth, minlength=groups)
    size = np.bincount(part, weights=weights, minlength=groups)
    whole = size.sum()
    model, everyone = float(acted.sum() / whole), float(everybody.sum() / whole)
    left = whole - size
    without = (acted.sum() - acted) / left - np.maximum((everybody.sum() - everybody) / left, 0.0)
    gain = model - max(everyone, 0.0)
    half = float(stdtrit(groups - 1, 0.975)) * math.sqrt((groups - 1) * float(np.var(without)))
    return NetBenefit(cut, model, everyone, gain, gain - half, gain + half)
