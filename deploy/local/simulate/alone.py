"""What the silos would reach alone: each one's logistic regression on its own records, without privacy.

The ridge is chosen by cross-validation on the silo's own patients (`deploy.local.logistic`). A regression reads the
study's inputs, and no domain.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import expit

from deploy.local.logistic import Array, design, logistic
from deploy.local.simulate.errors import SimulationError
from deploy.local.simulate.outcome import Exact, RunMetrics, measure
from deploy.local.simulate.silos import Cohorts
from policies.documents.study import BINARY, Study
from silo_agent.data.records import Records


def alone(study: Study, cohorts: Cohorts, *, seed: int) -> RunMetrics:
    """Metrics of the mean silo: each silo's regression on the same test records, averaged over the silos.

    A silo whose training records are all of one class says its rate. Raises `SimulationError` for a study with images
    or with more than two classes.
    """
    if study.data.label.count != BINARY or study.data.image is not None:
        msg = (
            "what a silo would reach alone is a logistic regression: of two classes, without images; leave out --alone"
        )
        raise SimulationError(msg)
    parts, found = cohorts.measured, []
    for silo in cohorts.silos.values():
        said = _risks(silo.training, parts)
        found.append(measure(study, parts, [np.stack([1.0 - own, own], axis=1) for own in said]))
    by_domain = [_mean([own[m] for own, _ in found]) for m in range(len(study.data.domains))]
    return RunMetrics(study, seed, tuple(by_domain), _mean([own for _, own in found]))


def _risks(training: Records, tests: Sequence[Records]) -> list[Array]:
    """Predicted risks (n,) of each part of the test records."""
    rate = float(training.labels.mean()) if len(training) else 0.5
    if not 0 < rate < 1:
        return [np.full(len(test), rate) for test in tests]
    weights = logistic(training)
    return [np.asarray(expit(design(test) @ weights), np.float64) for test in tests]


def _mean(own: Sequence[Exact]) -> Exact:
    """Exact metrics of the same records, averaged over models."""

    def average(values: Sequence[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return float(np.mean(known)) if known else None

    return Exact(
        average([one.auc for one in own]),
        average([one.accuracy for one in own]),
        average([one.calibration for one in own]),
        own[0].records,
        own[0].least,
    )
