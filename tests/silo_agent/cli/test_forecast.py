"""`plan` forecasts what a study will be worth if somebody says how many patients are expected."""

import json
from dataclasses import replace
from functools import partial

import pytest
from typer.testing import CliRunner

from policies.documents.study import Study
from policies.ledger.ledger import Ledger
from silo_agent.cli import main
from silo_agent.cli.forecast import HOW
from silo_agent.forecast import earlier_study, verdict
from silo_agent.forecast import forecast as forecasts
from silo_agent.learning.errors import LearningError
from silo_agent.storage.errors import StateError
from silo_agent.storage.state import State
from support.ledgers import NORTH
from support.small_cohort import policy_document, write_yaml
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
    assert "forecast" not in json.loads(invoke(write(), "--format", "json").output)


def test_expectations_of_the_study_give_a_forecast(write, told):
    shown = invoke(write(expected=EXPECTED)).output
    assert told[:2] == ["pricing the study", "runs of the forecast"]
    assert told[2:] == [1] * (12 + 2), "those that set the law, and as many as this test has runs"
    assert "Forecast of AUC from made-up patients: 180 who train at 3" in shown
    for row in ("mean of the domains", "worst domain", "one hospital alone", "width of a published interval"):
        assert row in shown
    assert HOW not in shown


def test_programs_get_the_same_figures(write):
    told = json.loads(invoke(write(expected=EXPECTED), "--format", "json", "--effect", "0.6").output)["forecast"]
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


TABLE = [
    "patient,group,ill,age,lactate",
    *(f"p{n},{'ab'[n % 2]},{n % 3 // 2},{20 * (n % 5)},{n % 7}" for n in range(300)),
]


@pytest.fixture
def hospital(quick_path, homes, monkeypatch):
    """A hospital that took part in a study of 300 patients; its state has what the silos opened."""
    monkeypatch.setattr(earlier_study, "reached_without_noise", lambda _study, _asked, limit, _about: limit)
    monkeypatch.setattr(earlier_study, "outcomes", lambda _study, _asked, effect, **_: [effect - 0.11, effect - 0.09])
    write_yaml(quick_path / "policy.yaml", policy_document("north-ward"))
    (quick_path / "north.csv").write_text("\n".join(TABLE))
    credential = {name: str(homes["north"] / f"{name}.pem") for name in ("certificate", "key", "authority")}
    places = {"policy": "policy.yaml", "state": "state", "data": {"tiny": "north.csv"}}
    state = State(quick_path / "state")
    Ledger.create(quick_path / "state" / "ledger.sqlite3", NORTH)
    before = Study.model_validate(tiny_document(**RAW, name="before"))
    state.add_study(before.digest, before.canonical())
    folder = state.files.study(before.digest)
    state.study_folder(before.digest)
    state.close()
    folder.counts.write_text("[75.0, 225.0]")
    folder.classes.write_text("[30.0, 10.0]")
    told = {"auc": {"value": 0.7, "low": 0.65, "high": 0.75}}
    folder.results.write_text(json.dumps({"study": before.digest, "by_domain": [told, told]}))
    write_yaml(quick_path / "agent.yaml", {"coordinator": "localhost:1", **credential, **places})
    return before.digest


def test_an_earlier_study_says_what_to_expect(write, hospital):
    found = invoke(write(), "-c", "agent.yaml", "--after", hospital[:12], "--format", "json")
    told = json.loads(found.output)["forecast"]
    asked = told["asked"]
    assert (asked["patients"], asked["shares"], asked["prevalence"]) == ([100] * 3, [0.25, 0.75], 0.25)
    assert asked["effects"] == pytest.approx([0.8])
    assert told["known"]["notes"][0].startswith("After before (")


def test_no_private_file_changes_a_forecast(write, hospital, quick_path):
    given = (write(), "-c", "agent.yaml", "--after", hospital)
    first = invoke(*given).output
    secret = quick_path / "state" / "studies" / hospital / "releases"
    secret.mkdir()
    (secret / "0-counts-1.i64").write_bytes(b"\1" * 16)
    (quick_path / "north.csv").write_text("patient,group,ill\np1,a,1\n")
    assert invoke(*given).output == first
    assert "Forecast of AUC" in first


@pytest.mark.usefixtures("hospital")
def test_private_data_are_refused_with_the_fix(write):
    done = invoke(write(expected=EXPECTED), "-c", "agent.yaml", "--data")
    assert isinstance(done.exception, LearningError)
    assert "data_set.public is false, and a forecast never reads private records" in str(done.exception)


@pytest.mark.usefixtures("hospital")
def test_a_public_file_says_what_to_expect(write, quick_path):
    write_yaml(quick_path / "policy.yaml", policy_document("north-ward", public=True))
    (quick_path / "state" / "ledger.sqlite3").unlink()
    Ledger.create(quick_path / "state" / "ledger.sqlite3", replace(NORTH, public=True))
    done = invoke(write(), "-c", "agent.yaml", "--data", "--format", "json")
    assert done.exception is None, done.exception
    told = json.loads(done.output)["forecast"]
    assert told["asked"]["patients"] == [240] * 3
    assert told["asked"]["prevalence"] == pytest.approx(1 / 3)


@pytest.mark.usefixtures("hospital")
@pytest.mark.parametrize(
    ("given", "said"),
    [(["--data", "--after", "ab"], "give one of them"), (["--after", "ab" * 32], "0 studies match")],
)
def test_what_an_earlier_study_needs_is_named(write, given, said):
    done = invoke(write(), "-c", "agent.yaml", *given)
    assert isinstance(done.exception, StateError)
    assert said in str(done.exception)


def test_without_a_configuration_there_is_no_earlier_study(write):
    assert "give --config" in str(invoke(write(), "--after", "ab").exception)
