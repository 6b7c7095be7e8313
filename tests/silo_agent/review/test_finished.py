"""A finished study with a hospital's own figures, and when there are none."""

from __future__ import annotations

from datetime import date

import pytest

from policies.reports.forecast_section import ForecastFileError
from silo_agent.config import AgentConfig
from silo_agent.review.charged import charged_of
from silo_agent.review.finished import finished
from silo_agent.storage.errors import StateError
from silo_agent.storage.folders import StateFolder
from silo_agent.storage.state import Ending, State
from support.finished import IN_THE_LAST_SUM, finished_hospital
from support.models import random_model
from support.studies import tiny_study

STUDY = tiny_study()


@pytest.fixture
def settings(quick_path, homes):
    return AgentConfig.load(finished_hospital(quick_path, homes["north"], STUDY))


def test_a_study_comes_with_figures_charges_and_who_was_in_its_last_sum(settings):
    found, fault = finished(settings, "tiny")
    assert (found.study, fault, found.took_part, found.budget) == (STUDY, "", IN_THE_LAST_SUM, 4.0)
    assert found.charged == charged_of(StateFolder(settings.state).ledger, STUDY.digest) != []
    assert found.forecast is None
    assert found.evaluation.personal is not None
    assert found.card["study"]["digest"] == STUDY.digest


def test_what_is_wrong_with_the_records_is_told_beside(settings):
    settings.data["tiny"].write_text("patient,group,age,lactate,ill\nann,a,a-secret,1,0\n")
    found, fault = finished(settings, STUDY.digest)
    assert found.evaluation is None
    assert "a-secret" in fault
    without = settings.model_copy(update={"data": {}})
    assert "agent.yaml names no data" in finished(without, STUDY.digest)[1]


def test_a_personal_model_whose_removal_has_begun_is_not_looked_for(settings):
    state = State(settings.state)
    state.finish(STUDY.digest, "finished", date(2026, 1, 1))
    state.begin_removal(Ending(STUDY.digest, date(2026, 1, 1), removed=date(2026, 2, 1)))
    state.close()
    assert finished(settings, "tiny")[0].evaluation.personal is None


def test_only_a_finished_study_with_its_model_has_a_report(settings, tmp_path):
    state = State(settings.state)
    state.commit(STUDY.digest, 1)
    folder = state.study_folder(STUDY.digest)
    state.close()
    with pytest.raises(StateError, match=r"^there is no finished round of this study in .*; run the study first$"):
        finished(settings, "tiny")
    random_model(STUDY).save(folder / "model-1.safetensors")
    with pytest.raises(StateError, match=r"^the study is in round 1 of 2; a report is of a finished study: wait for"):
        finished(settings, "tiny")


def test_a_forecast_is_read_for_this_study(settings, tmp_path):
    (tmp_path / "plan.json").write_text("{}")
    with pytest.raises(ForecastFileError, match="holds no"):
        finished(settings, "tiny", tmp_path / "plan.json")
