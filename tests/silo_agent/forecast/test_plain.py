"""The regression of one hospital."""

import numpy as np
import pytest

from deploy.local.logistic import design, logistic
from silo_agent.data.outcome import targets
from silo_agent.forecast import plain
from silo_agent.forecast.assumptions import Asked
from silo_agent.forecast.made_up_patients import Law
from silo_agent.forecast.plain import predictions

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


def losses_by_ridge(training, *, number):
    """Of the fifth that is held out, by an independent fit to the others."""
    rows = plain._design(training)
    wanted = targets(training.labels) if number else training.labels.astype(float)
    held = np.arange(len(rows)) % 5 == 0
    found = []
    for ridge in plain.RIDGES:
        said = rows[held] @ plain._fit(rows[~held], wanted[~held], ridge, number=number)
        lost = (said - wanted[held]) ** 2 if number else np.logaddexp(0, said) - wanted[held] * said
        found.append(lost.sum())
    return rows, wanted, found


@pytest.mark.parametrize("number", [False, True])
@pytest.mark.parametrize("count", [40, 600])
def test_the_ridge_that_does_best_on_the_held_out_fifth_is_fitted_to_all(raw_study, number, count):
    label = {"column": "days", "minimum": 0, "maximum": 60, "positive": [], "negative": []}
    study = raw_study(data={"label": label}, evaluation={"bins": 10}) if number else raw_study()
    law = Law(study, ASKED, 0.7, np.random.default_rng(count))
    training, test = law.patients(count), law.patients(50)
    rows, wanted, losses = losses_by_ridge(training, number=number)
    best = plain.RIDGES[int(np.argmin(losses))]
    said = plain._design(test) @ plain._fit(rows, wanted, best, number=number)
    expected = np.clip(said, -1, 1) if number else 1 / (1 + np.exp(-said))
    np.testing.assert_allclose(predictions(training, test, number=number)[:, -1], expected)
    others = [plain._fit(rows, wanted, ridge, number=number) for ridge in plain.RIDGES if ridge != best]
    assert not any(np.allclose(plain._design(test) @ other, said, atol=1e-4) for other in others)


def test_more_noise_asks_for_a_larger_ridge(raw_study):
    """By what is chosen, not by what a formula says: with few patients the largest, with many and a clear law not."""
    chosen = {}
    for count, effect in ((30, 0.55), (3000, 0.9)):
        law = Law(raw_study(), ASKED, effect, np.random.default_rng(1))
        chosen[count] = int(np.argmin(losses_by_ridge(law.patients(count), number=False)[2]))
    assert chosen[3000] < chosen[30]


def test_the_mean_risk_is_the_rate_however_strong_the_ridge(raw_study):
    training, _ = drawn(raw_study())
    rows, wanted = plain._design(training), training.labels.astype(float)
    for ridge in plain.RIDGES:
        risk = 1 / (1 + np.exp(-rows @ plain._fit(rows, wanted, ridge, number=False)))
        assert risk.mean() == pytest.approx(wanted.mean(), abs=1e-3)
        weights = plain._fit(rows, wanted, ridge, number=False)
        assert (
            np.abs(rows.T @ (risk - wanted) + np.append(np.full(len(weights) - 1, ridge), 1e-3) * weights).max() < 1e-3
        )


def test_a_number_is_said_within_its_range(raw_study):
    label = {"column": "days", "minimum": 0, "maximum": 60, "positive": [], "negative": []}
    training, test = drawn(raw_study(data={"label": label}, evaluation={"bins": 10}), 0.9)
    training.labels.setflags(write=True)
    training.labels[:] = np.where(targets(training.labels) > 0, 1 << 20, 0)
    said = predictions(training, test, number=True)
    assert (said.min(), said.max()) == (-1.0, 1.0)
