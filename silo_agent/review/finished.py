"""A finished study with this hospital's own figures, put together for a report. Nothing is released or charged."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from policies.documents.policy import load_policy
from policies.documents.study import Study
from policies.reports.forecast_section import read_forecast
from protos.messages import Place, Tensor
from silo_agent.board_report import FinishedStudy
from silo_agent.config import AgentConfig
from silo_agent.data.errors import DataError
from silo_agent.models.evaluate import ModelEvaluation, NoFileError, evaluate
from silo_agent.models.export import card_of
from silo_agent.models.predict import load_model
from silo_agent.review.charged import charged_of
from silo_agent.review.cohorts import cohorts_of
from silo_agent.review.known import find_trained
from silo_agent.storage.errors import StateError
from silo_agent.storage.folders import StateFolder, StudyFolder
from silo_agent.storage.opening import read_state
from silo_agent.storage.state import State


def finished(settings: AgentConfig, wanted: str, forecast: Path | None = None) -> tuple[FinishedStudy, str]:
    """Return a finished study, and why it has no figures of this hospital's own: empty if it has.

    That sentence may quote a cell, so it stays inside. Raises `StateError` if the study has not finished here.
    """
    state = read_state(settings.state)
    digest, committed = find_trained(state, wanted)
    folder = StudyFolder(state.study_folder(digest))
    if not folder.model(committed).exists():
        msg = f"there is no finished round of this study in {folder.path}; run the study first"
        raise StateError(msg)
    model = load_model(folder.model(committed), personal=False)
    if committed < model.study.rounds:
        msg = f"the study is in round {committed} of {model.study.rounds}; a report is of a finished study: wait for it"
        raise StateError(msg)
    expected: Mapping[str, Any] | None = None if forecast is None else read_forecast(forecast, model.study)
    charged = charged_of(StateFolder(settings.state).ledger, digest)
    evaluation, fault = _own(settings, state, digest, committed)
    found = FinishedStudy(
        study=model.study,
        took_part=_of_last_sum(state, model.study),
        card=card_of(model, folder=folder.path, files={}, charged=charged),
        charged=charged,
        budget=load_policy(settings.policy).budget.epsilon,
        forecast=expected,
        evaluation=evaluation,
    )
    return found, fault


def _own(settings: AgentConfig, state: State, digest: str, committed: int) -> tuple[ModelEvaluation | None, str]:
    """This hospital's own figures of its held-out patients, or why there are none: a text that may quote a cell."""
    kept = state.removed(digest) is None
    try:
        found = evaluate(
            state.study_folder(digest), committed, None, cohorts_of(settings), held_out=True, personal_kept=kept
        )
    except (NoFileError, DataError) as error:
        return None, str(error)
    return found, ""


def _of_last_sum(state: State, study: Study) -> tuple[str, ...]:
    """The hospitals of the study's last sum; empty if this agent does not know them any more."""
    return state.promises.binding(Place(study.digest, study.rounds + 1, 1), Tensor.METRICS)
