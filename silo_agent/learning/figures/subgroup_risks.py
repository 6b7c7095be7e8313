"""Which groups of patients are predicted at another risk than they have: expected over observed by every listed column.

A model can be right in the mean and in each domain, and wrong for the patients of one column: a clipped sum biases the
coefficient of a rare yes or no, and a new intercept does not mend it (docs/design/heads.md, "Clip"). So each code of a
column, each group of a protected one, and both ends of a number that is yes or no are held against what happened.
Figures are exact and private. Intervals are a jackknife's over groups of patients, of the ratio's logarithm.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from policies.documents.study import CategoryFeature, DataSchema
from silo_agent.data.cells import text
from silo_agent.data.inputs import Inputs
from silo_agent.data.records import Records

Floats = NDArray[np.float64]
_GROUPS: Final = 100
FEWEST: Final = 10
"""Patients with the outcome below which a group is not judged."""
_LEVEL: Final = 0.05


@dataclass(frozen=True)
class SubgroupRisk:
    """One group. `ratio` is what was predicted over what happened, with a 95 % interval; None with too few patients.

    `stands_out`: 1 lies outside of an interval that holds for all groups of the table at once (Bonferroni).
    """

    column: str
    group: str
    patients: int
    events: int
    """Patients with the outcome."""
    ratio: tuple[float, float, float] | None
    stands_out: bool


def subgroup_risks(schema: DataSchema, records: Records, risks: Floats) -> tuple[SubgroupRisk, ...]:
    """Every group of these records, under risks (n,) of the second of two classes."""
    found = [(column, name, rows) for column, name, rows in _groups(schema, records) if rows.any()]
    counted = [_events(records, rows) for _, _, rows in found]
    judged = max(sum(events >= FEWEST for _, events in counted), 1)
    told = []
    for (column, name, rows), (patients, events) in zip(found, counted, strict=True):
        ratio = _ratio(records, risks, rows, _LEVEL) if events >= FEWEST else None
        wide = _ratio(records, risks, rows, _LEVEL / judged) if ratio is not None else None
        stands_out = wide is not None and not wide[1] <= 1.0 <= wide[2]
        told.append(SubgroupRisk(column, name, patients, events, ratio, stands_out))
    return tuple(told)


def _groups(schema: DataSchema, records: Records) -> Iterator[tuple[str, str, NDArray[np.bool_]]]:
    """Column, name and rows of every group."""
    if records.protected is not None:
        for place, factor in enumerate(schema.protected):
            for number, name in enumerate(factor.names):
                yield factor.column, name, records.protected[:, place] == number
    if not isinstance(records.inputs, Inputs):
        return
    cells = records.inputs.held(slice(None))
    for place, feature in enumerate(schema.features):
        own = cells[:, place]
        if isinstance(feature, CategoryFeature):
            names = [text(code) for code in feature.values] + (["absent"] if feature.optional else [])
            for number, name in enumerate(names):
                yield feature.column, name, own == number
            continue
        there = own[~np.isnan(own)]
        if len(there) and np.isin(there, (-1.0, 1.0)).all():  # the ends of its range alone: yes or no
            yield feature.column, f"{feature.minimum:g}", own == -1.0
            yield feature.column, f"{feature.maximum:g}", own == 1.0


def _events(records: Records, rows: NDArray[np.bool_]) -> tuple[int, int]:
    ill = rows & (records.labels == 1)
    return len(np.unique(records.patients[rows])), len(np.unique(records.patients[ill]))


def _ratio(records: Records, risks: Floats, rows: NDArray[np.bool_], level: float) -> tuple[float, float, float] | None:
    """Expected over observed with the ends of its interval; None if a part of the patients has all outcomes."""
    index = np.unique(records.patients[rows], return_inverse=True)[1]
    groups = min(int(index.max()) + 1, _GROUPS)
    part = index % groups
    expected = np.bincount(part, weights=risks[rows], minlength=groups)
    observed = np.bincount(part, weights=records.labels[rows], minlength=groups)
    left = observed.sum() - observed
    if (left <= 0).any() or expected.sum() <= 0.0:
        return None
    value = float(expected.sum() / observed.sum())
    without = np.log((expected.sum() - expected) / left)
    half = float(stdtrit(groups - 1, 1.0 - level / 2.0)) * math.sqrt((groups - 1) * float(np.var(without)))
    return value, value * math.exp(-half), value * math.exp(half)
