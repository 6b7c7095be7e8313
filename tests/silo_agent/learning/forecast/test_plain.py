"""The regression of one hospital."""

import numpy as np
import pytest

from deploy.local.logistic import design, logistic
from silo_agent.data.outcome import targets
from silo_agent.learning.forecast.asked import Asked
from silo_agent.learning.forecast.law import Law
from silo_agent.learning.forecast.plain import predictions

ASKED = Asked((1000,), (0.5, 0.5), 0.3, (0.8,))


def drawn(study, effect=0.8):
    law = Law(study, ASKED, effect, np.random.default_rng(2))
    return law.patients(600), law.patients(400)


def test_it_says_what_another_ridge_regression_says(raw_study):
    training, test = drawn(raw_study())
    risks = predictions(training, test, number=False)
    assert risks.sum(axis=1) == pytest.approx(1.0)
    other = design(test) @ logistic(training)
    assert np.corrcoef(np.log(risks[:, 1] / risks[:, 0]), other)[0, 1] > 0.97


def test_numbers_are_fitted_by_least_squares(raw_study):
    label = {"column": "days", "minimum": 0, "maximum": 60, "positive": [], "negative": []}
    training, test = drawn(raw_study(data={"label": label}, evaluation={"bins": 10}), 0.7)
    said = predictions(training, test, number=True)
    assert said.shape == (400, 1)
    assert np.corrcoef(said[:, 0], targets(test.labels))[0, 1] ** 2 > 0.55


def test_one_class_alone_is_no_fault(raw_study):
    training, test = drawn(raw_study())
    training.labels.setflags(write=True)
    training.labels[:] = 0
    assert (predictions(training, test, number=False)[:, 1] < 0.1).all()
