"""`plan` forecasts what a study will be worth if somebody says how many patients are expected."""

import json
from functools import partial

import pytest
from typer.testing import CliRunner

from silo_agent.cli import main
from silo_agent.cli.forecast import HOW
from silo_agent.learning.errors import LearningError
from silo_agent.learning.forecast import forecast as forecasts
from silo_agent.learning.forecast import verdict
from support.small_cohort import write_yaml
from support.studies import tiny_document

EXPECTED = {"patients": [60], "prevalence": 0.3, "effect": 0.8}
RAW = {
    "model": {"encoder": "raw", "hidden": [], "representation": 2},
    "encoder": {"rounds": 0},
    "evaluation": {"noise": 0.5},
}


def invoke(*arguments):
    return CliRunner().invoke(main.app, ["plan", *(str(a) for a in arguments)])


@pytest.fixture(autouse=True)
def _elsewhere(quick_path, monkeypatch):
    """No agent.yaml lies around, and two draws are enough."""
    monkeypatch.chdir(quick_path)
    monkeypatch.delenv("FEDWARD_AGENT_CONFIG", raising=False)
    monkeypatch.setattr(forecasts, "forecast", partial(forecasts.forecast, draws=2))
    monkeypatch.setattr(verdict, "reached", lambda *_, times: 0.5 + times / 100)


@pytest.fixture
def write(quick_path):
    return lambda **changes: write_yaml(quick_path / "study.yaml", tiny_document(**RAW, **changes))


def test_without_expectations_it_says_how_to_get_a_forecast(write):
    assert invoke(write()).output.rstrip().endswith(HOW)
    assert "forecast" not in json.loads(invoke(write(), "--json").output)


def test_expectations_of_the_study_give_a_forecast(write):
    shown = invoke(write(expected=EXPECTED)).output
    assert "Forecast of AUC from made-up patients: 180 who train at 3" in shown
    for row in ("mean of the domains", "worst domain", "one hospital alone", "width of a published interval"):
        assert row in shown
    assert HOW not in shown


def test_programs_get_the_same_figures(write):
    told = json.loads(invoke(write(expected=EXPECTED), "--json", "--effect", "0.6").output)["forecast"]
    (row,) = told["rows"]
    assert (told["figure"], told["draws"], row["effect"]) == ("auc", 2, 0.6)
    assert row["mean"]["low"] <= row["mean"]["middle"] <= row["mean"]["high"]
    assert row["coin_toss"] in {True, False}
    assert isinstance(told["sentences"], list)


def test_a_forecast_can_be_left_out(write):
    shown = invoke(write(expected=EXPECTED), "--no-forecast").output
    assert "Forecast" not in shown
    assert HOW not in shown


def test_what_does_not_fit_is_named(write):
    done = invoke(write(), "--patients", "10", "--patients", "20")
    assert isinstance(done.exception, LearningError)
    assert "--patients has 2 numbers" in str(done.exception)
