"""What all records in one place would reach, without privacy: a logistic regression, and gradient boosting.

The regression reads the study's inputs, its ridge chosen by cross-validation over patients. Boosting also reads the
domain. Both weigh records so that every patient counts 1, as the study does.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.ensemble import HistGradientBoostingClassifier

from bench.accuracy.hospitals import pooled
from deploy.local.logistic import design, logistic
from deploy.local.simulate.outcome import RunMetrics, measure
from deploy.local.simulate.silos import Cohorts
from policies.documents.study import Study
from silo_agent.data.records import Records

Floats = NDArray[np.float64]


def regression(cohorts: Cohorts, *, seed: int) -> list[Floats]:  # noqa: ARG001 - as of `boosting`
    """Risks (n,) of each part of the test records, by the pooled logistic regression."""
    weights = logistic(pooled([silo.training for silo in cohorts.silos.values()]))
    return [np.asarray(expit(design(test) @ weights)) for test in cohorts.measured]


def boosting(cohorts: Cohorts, *, seed: int) -> list[Floats]:
    """The same by gradient boosting of trees, as scikit-learn ships it, with early stopping."""
    training = pooled([silo.training for silo in cohorts.silos.values()])
    model = HistGradientBoostingClassifier(
        learning_rate=0.05, max_leaf_nodes=15, early_stopping=True, max_iter=500, random_state=seed
    )
    model.fit(_with_domain(training), training.labels, sample_weight=training.weights)
    return [np.asarray(model.predict_proba(_with_domain(test))[:, 1]) for test in cohorts.measured]


def measured(study: Study, cohorts: Cohorts, seed: int, risks: Sequence[Floats]) -> RunMetrics:
    """The metrics of risks (n,) of each part of the test records."""
    said = [np.stack([1.0 - own, own], axis=1) for own in risks]
    return RunMetrics(study, seed, *measure(study, cohorts.measured, said))


def _with_domain(records: Records) -> Floats:
    return np.column_stack([np.asarray(records.inputs, np.float64), records.domains])
