"""What the silos would reach alone: each one's logistic regression on its own records, without privacy.

The ridge is chosen by cross-validation on the silo's own patients (`deploy.local.logistic`). A regression reads the
study's inputs, and no domain.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import expit

from deploy.local.logistic import design, logistic
from deploy.local.simulate.errors import SimulationError
from deploy.local.simulate.outcome import Exact, Measured, measure
from deploy.local.simulate.silos import Cohorts
from policies.documents.study import BINARY, Study


def alone(study: Study, cohorts: Cohorts, *, seed: int) -> Measured:
    """Metrics of the mean silo: each silo's regression on the same test records, averaged over the silos.

    A silo whose training records are all of one class says its rate. Raises `SimulationError` for a study with images
    or with more than two classes.
    """
    if study.data.label.count != BINARY or study.data.image is not None:
        msg = (
            "what a silo would reach alone is a logistic regression: of two classes, without images; leave out --alone"
        )
        raise SimulationError(msg)
    test = cohorts.measured
    inputs = design(test)
    found = []
    for silo in cohorts.silos.values():
        labels = silo.training.labels
        rate = float(labels.mean()) if len(labels) else 0.5
        said = expit(inputs @ logistic(silo.training)) if 0 < rate < 1 else np.full(len(test), rate)
        found.append(measure(study, test, np.stack([1.0 - said, said], axis=1)))
    by_domain = [_mean([own[m] for own, _ in found]) for m in range(len(study.data.domains))]
    return Measured(study, seed, tuple(by_domain), _mean([own for _, own in found]))


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
