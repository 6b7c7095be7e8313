import numpy as np
import pytest

from policies.documents.study import NUMBER
from silo_agent.learning.outcomes.links import logits_of, losses, residuals
from silo_agent.learning.outcomes.registry import family_of

LABELS = {2: [0, 1, 1], 3: [0, 1, 2], NUMBER: [0, 1 << 19, 1 << 20]}


@pytest.mark.parametrize("classes", LABELS)
def test_logits_are_those_that_give_the_predictions(classes):
    family = family_of(classes)
    logits = np.random.default_rng(0).uniform(-0.9, 0.9, (5, family.form.logits))
    said = family.probabilities(logits)
    np.testing.assert_allclose(family.probabilities(logits_of(said, family)), said, rtol=1e-12)


def test_a_certain_prediction_has_a_finite_logit():
    for classes in (2, 3):
        certain = np.eye(classes)
        assert np.isfinite(logits_of(certain, family_of(classes))).all()


@pytest.mark.parametrize("classes", LABELS)
def test_residuals_are_the_slopes_of_the_losses(classes):
    family, labels = family_of(classes), np.array(LABELS[classes])
    logits = np.random.default_rng(1).normal(size=(3, family.form.logits)) / 2
    for place in range(family.form.logits):
        step = np.zeros_like(logits)
        step[:, place] = 1e-6
        slope = (losses(logits + step, labels, family) - losses(logits - step, labels, family)) / 2e-6
        np.testing.assert_allclose(residuals(logits, labels, family)[:, place], slope, atol=1e-6)
