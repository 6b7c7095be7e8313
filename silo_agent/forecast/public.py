"""What public records say of the data: patients, shares, prevalence, effect.

It reads no file. `silo_agent.models.expecting` does, and refuses records that are not declared public.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from policies.documents.study import BINARY, Study
from silo_agent.data.outcome import targets
from silo_agent.data.records import Records
from silo_agent.forecast import plain
from silo_agent.forecast.assumptions import UNSURE, KnownData
from silo_agent.forecast.sampling import area_variance
from silo_agent.learning.figures.evaluation import auc

FOLDS: Final = 5
_FEWEST: Final = 20
"""Patients of the rarer class (of a number: patients) in each fold with whom an effect is told."""


def known_of(study: Study, records: Records, held_out: float) -> KnownData:
    """What public records say, at least one. The effect is that of a regression, cross-validated by patients."""
    domains, label = len(study.data.domains), study.data.label
    shares = np.bincount(records.domains, records.weights, minlength=domains) / records.patient_count
    patients = max(round(records.patient_count * (1.0 - held_out)), 1)
    rate = float(np.average(records.labels, weights=records.weights)) if label.count == BINARY else None
    if rate is not None and not 0.0 < rate < 1.0:
        rate = None
    effect, unsure = None, UNSURE
    if label.count == BINARY:
        effect, unsure = _area(records)
    elif label.number is not None:
        effect, unsure = _explained(records)
    told = "do not tell the effect: it is what the study expects, or --effect"
    if effect is not None:
        told = f"tell an effect of {effect:.3f}, give or take {unsure:.3f} (regression, {FOLDS} folds)"
    notes = (
        f"From the public file: {records.patient_count:,} patients, as many expected at every hospital. They {told}.",
    )
    return KnownData((patients,), tuple(map(float, shares)), rate, effect, unsure, notes)


def _area(records: Records) -> tuple[float | None, float]:
    """AUC within domains, in the mean weighted by pairs, and the deviation of its sampling."""
    said, fold = _predicted(records, number=False)
    areas, weights, variances = [], [], []
    for m in np.unique(records.domains):
        for number in range(FOLDS):
            rows = (records.domains == m) & (fold == number)
            positive = int(records.labels[rows].sum())
            negative = int(rows.sum()) - positive
            value = auc(said[rows], records.labels[rows])
            if value is not None:
                areas.append(value)
                weights.append(float(positive * negative))
                variances.append((positive, negative))
    rarer = min(int(records.labels.sum()), int((records.labels == 0).sum()))
    if not areas or rarer < FOLDS * _FEWEST:
        return None, UNSURE
    area = float(np.average(areas, weights=weights))
    parts = np.array(weights) / sum(weights)
    spread = sum(part**2 * area_variance(area, *counts) for part, counts in zip(parts, variances, strict=True))
    return min(max(area, 0.5 + 1e-3), 1.0 - 1e-3), max(math.sqrt(spread), UNSURE)


def _explained(records: Records) -> tuple[float | None, float]:
    """Share of the variance of a number that is explained, and its deviation."""
    if records.patient_count < FOLDS * _FEWEST:
        return None, UNSURE
    said, _ = _predicted(records, number=True)
    wanted = targets(records.labels)
    whole = float(((wanted - wanted.mean()) ** 2).sum())
    if whole == 0.0:
        return None, UNSURE
    value = 1.0 - float(((wanted - said) ** 2).sum()) / whole
    # The large-sample deviation of a squared correlation.
    spread = 2.0 * math.sqrt(max(value, 0.0)) * (1.0 - value) / math.sqrt(len(wanted))
    return min(max(value, 1e-3), 1.0 - 1e-3), max(spread, UNSURE)


def _predicted(records: Records, *, number: bool) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Predictions (n,) of models that were fitted to the other folds' patients, and the fold (n,) of each record."""
    of_patients = np.random.default_rng(0).permutation(records.patient_count) % FOLDS
    fold, said = of_patients[records.patients], np.zeros(len(records))
    for own in range(FOLDS):
        training, test = (records.of_patients(chosen) for chosen in (of_patients != own, of_patients == own))
        if len(training) and len(test):
            said[fold == own] = plain.predictions(training, test, number=number)[:, -1]
    return said, fold
