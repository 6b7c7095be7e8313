"""Made-up patients are those that a study expects, and what a simulation of them reaches is what `plan` says."""

from __future__ import annotations

import math
from statistics import fmean, stdev

import numpy as np
import pytest
from scipy.special import stdtrit

from deploy.local.simulate.engine import simulate
from deploy.local.simulate.errors import SimulationError
from deploy.local.simulate.expected_patients import PATIENTS, TEST, expected
from silo_agent.forecast.assumptions import asked_of
from silo_agent.forecast.forecast import counted, figure_of, forecast
from silo_agent.forecast.made_up_patients import Law
from silo_agent.learning.errors import LearningError
from support.studies import tiny_study

EXPECTED = {"patients": [300, 200, 100], "prevalence": 0.2, "effect": 0.8, "shares": [0.75, 0.25]}
PLAIN = {"encoder": {"rounds": 0}}


def test_sizes_shares_and_prevalence_are_those_that_the_study_expects():
    found = expected(tiny_study(expected=EXPECTED), held_out=0.25)
    assert found.sizes == (400, 267, 133)
    cohorts = found.draw(tiny_study(), 1)
    assert [len(silo.training) + len(silo.held_out) for silo in cohorts.silos.values()] == list(found.sizes)
    assert len(cohorts.silos["north"].training) == pytest.approx(300, abs=40)
    domains = np.concatenate([silo.training.domains for silo in cohorts.silos.values()])
    assert (domains == 1).mean() == pytest.approx(0.25, abs=0.06)
    labels = np.concatenate([silo.training.labels for silo in cohorts.silos.values()])
    assert labels.mean() == pytest.approx(0.2, abs=0.07)
    assert np.bincount(cohorts.test.domains).tolist() == [TEST // 2] * 2, "as many of each domain"


def test_options_replace_what_the_study_expects():
    found = expected(tiny_study(expected=EXPECTED), patients=(90,), prevalence=0.5, effect=0.7, held_out=0.1)
    assert (found.sizes, found.asked.prevalence, found.asked.effects) == ((100,) * 3, 0.5, (0.7,))
    nothing = expected(tiny_study(), held_out=0.25)
    assert (nothing.asked.patients, nothing.asked.prevalence, nothing.asked.effects) == ((PATIENTS,) * 3, 0.5, (0.7,))
    with pytest.raises(LearningError, match="--effect"):
        expected(tiny_study(), effect=0.4, held_out=0.25)


def test_a_seed_repeats_the_patients_and_a_digest_is_of_the_whole_law():
    found = expected(tiny_study(), patients=(40,), held_out=0.25)
    first, again, other = (found.draw(tiny_study(), seed).test.inputs for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    others = [{"patients": (41,)}, {"prevalence": 0.3}, {"effect": 0.75}, {"held_out": 0.3}]
    digests = {expected(tiny_study(), **{"patients": (40,), "held_out": 0.25, **one}).digest for one in others}
    assert len(digests | {found.digest}) == len(others) + 1
    assert expected(tiny_study(), patients=(40,), held_out=0.25).digest == found.digest


def test_of_a_recipe_without_a_forecast_the_best_model_reaches_the_effect():
    drawn = []
    found = expected(tiny_study(recipe="lg-fedavg"), patients=(40,), effect=0.8, held_out=0.25, done=drawn.append)
    assert (found.limit, drawn) == (0.8, [])
    solved = expected(tiny_study(), patients=(40,), effect=0.8, held_out=0.25, done=drawn.append)
    assert solved.limit > 0.8
    assert len(drawn) == 12


def test_a_study_with_images_needs_records():
    study = tiny_study(data={"image": {"column": "scan", "height": 8, "width": 8}}, model={"encoder": "cnn"})
    with pytest.raises(SimulationError, match="no images"):
        expected(study, held_out=0.25)


def test_the_law_is_the_forecasts_own(monkeypatch):
    drawn = []
    monkeypatch.setattr(
        "deploy.local.simulate.expected_patients.Law", lambda *given: drawn.append(given) or Law(*given)
    )
    found = expected(tiny_study(), patients=(40,), held_out=0.25)
    found.draw(tiny_study(), 3)
    ((study, asked, limit, _),) = drawn
    assert (study, asked, limit) == (tiny_study(), found.asked, found.limit)


# --- the same as the forecast -----------------------------------------------------------------------------------------
NUMBER = {"column": "days", "positive": [], "negative": [], "minimum": 0, "maximum": 30}
TEN = {
    "as it is": ({}, 400),
    "few patients": ({}, 120),
    "many patients": ({}, 1500),
    "a rare outcome": ({"expected": {"patients": [500], "prevalence": 0.1, "effect": 0.75}}, 500),
    "a strong effect": ({"expected": {"patients": [400], "effect": 0.9}}, 400),
    "uneven domains": ({"expected": {"patients": [400], "shares": [0.8, 0.2], "effect": 0.75}}, 400),
    "uneven silos": ({"expected": {"patients": [700, 300, 200], "effect": 0.75}}, None),
    "an encoder": ({"encoder": {"rounds": 1, "batch_size": 40}}, 400),
    "more rounds": ({"heads": {"pooled_rounds": 2, "domain_rounds": 2}}, 600),
    "a number": ({"data": {"label": NUMBER}, "evaluation": {"bins": 10}}, 600),
}
DRAWS, SEEDS = 32, 20
SAME = 0.012
"""What is not looked at as a difference: chance of the test records, and of the limit that both take from few draws."""


@pytest.mark.slow
@pytest.mark.parametrize("name", TEN)
def test_what_a_simulation_reaches_is_what_the_forecast_says(name):
    changes, count = TEN[name]
    study = tiny_study(**{**PLAIN, **changes})
    given = () if count is None else (count,)
    made_up = expected(study, patients=given, held_out=0.25)
    asked = asked_of(study, patients=given, held_out=0.25).of(made_up.asked.effects[0])
    (row,) = forecast(study, asked, draws=DRAWS).rows
    domains, figure = counted(study, asked), figure_of(study)
    runs = [simulate(study, made_up.draw(study, seed), seed=seed) for seed in range(1, SEEDS + 1)]
    came = [fmean(getattr(run.exact[m], figure) for m in domains) for run in runs]
    of_draws = (row.mean.high - row.mean.low) / (2 * stdtrit(DRAWS - 1, 0.95))
    chance = math.hypot(stdev(came) / math.sqrt(SEEDS), of_draws / math.sqrt(DRAWS))
    assert fmean(came) == pytest.approx(row.mean.middle, abs=3.0 * chance + SAME)
