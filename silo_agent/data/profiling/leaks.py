"""Whether a single column gives the label away, by one statistical rule.

The rule. The values of the column are parted: codes and at most `PARTS` different numbers stand for themselves, more
numbers are cut at their quantiles, and a missing cell is a part of its own. Patients are divided in two halves. Of each
half, every part's share of a class is the score of the other half's records in that part, so no record scores itself.
The AUC of these scores is compared with `LIMIT`: the column gives the class away if even the lower end of the AUC's
one-sided 99 % interval (Hanley and McNeil 1982, with patients as the units) reaches it. A class is looked at if at
least `LEAST` patients have it and as many have it not. A number as a label is looked at as above or below its median.

It finds a column that alone says what should be predicted, such as a code that is entered after the diagnosis, or one
that is recorded of the ill only. It does not find columns that do so only together, and it says nothing about images.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

LIMIT: Final = 0.95
LEAST: Final = 10
PARTS: Final = 32
_Z: Final = 2.326
"""Of one-sided 99 %."""
_MISSING: Final = -1
Places = NDArray[np.int64]


def parted(values: NDArray[np.float64]) -> Places:
    """The part of each number (n,); NaN is missing."""
    known = np.isfinite(values)
    found = np.unique(values[known])
    if len(found) > PARTS:
        found = np.unique(np.quantile(values[known], np.linspace(0, 1, PARTS + 1)[:-1]))
    parts = np.searchsorted(found, np.where(known, values, 0.0), side="right") - 1
    return np.where(known, parts, _MISSING).astype(np.int64)


def gives_away(parts: Places, labels: Places, patients: Places) -> float | None:
    """The lower end of the AUC's interval, of the class that the column tells best.

    `parts` (n,) of the column, `labels` (n,) classes, `patients` (n,) numbers of the records' patients. None if no
    class has enough patients.
    """
    lower = [_lower(parts, labels == one, patients) for one in np.unique(labels) if _enough(labels == one, patients)]
    return max(lower, default=None)


def above_median(labels: Places) -> Places:
    """A number as two classes: above its median or not."""
    return (labels > np.median(labels)).astype(np.int64) if len(labels) else labels


def _sizes(has: NDArray[np.bool_], patients: Places) -> tuple[int, int]:
    """Patients with a record of the class, and patients with a record of another."""
    return len(np.unique(patients[has])), len(np.unique(patients[~has]))


def _enough(has: NDArray[np.bool_], patients: Places) -> bool:
    return min(_sizes(has, patients)) >= LEAST


def _lower(parts: Places, has: NDArray[np.bool_], patients: Places) -> float:
    area = _auc(_scores(parts, has, patients % 2 == 0), has)
    positive, negative = _sizes(has, patients)
    one, other = area / (2 - area), 2 * area**2 / (1 + area)
    spread = area * (1 - area) + (positive - 1) * (one - area**2) + (negative - 1) * (other - area**2)
    return area - _Z * math.sqrt(max(0.0, spread) / (positive * negative))


def _scores(parts: Places, has: NDArray[np.bool_], half: NDArray[np.bool_]) -> NDArray[np.float64]:
    """The share of the class in a record's part among the other half; of a part that is not there, among all of it."""
    places = parts - _MISSING
    scores = np.zeros(len(parts))
    for own in (half, ~half):
        seen = np.bincount(places[~own], minlength=places.max() + 1)
        hits = np.bincount(places[~own], weights=has[~own], minlength=places.max() + 1)
        base = has[~own].mean() if (~own).any() else 0.0
        scores[own] = ((hits + base) / (seen + 1))[places[own]]
    return scores


def _auc(scores: NDArray[np.float64], has: NDArray[np.bool_]) -> float:
    """The chance that a record of the class scores higher than another; ties count half."""
    _, place = np.unique(scores, return_inverse=True)
    of_class = np.bincount(place[has], minlength=place.max() + 1)
    others = np.bincount(place[~has], minlength=place.max() + 1)
    below = np.cumsum(others) - others
    return float((of_class * (below + others / 2)).sum() / (has.sum() * (~has).sum()))
