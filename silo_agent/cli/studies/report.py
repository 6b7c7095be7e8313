"""`fedward-silo report`: a finished study for a board, as a page and a document, with this hospital's own figures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from policies.documents.policy import load_policy
from silo_agent.cli.models import charged_of, cohorts_of
from silo_agent.cli.options import DEFAULT, ConfigOption, StudyArgument, find_trained, waiting
from silo_agent.config import AgentConfig
from silo_agent.storage.errors import StateError
from silo_agent.storage.folders import StateFolder, StudyFolder

if TYPE_CHECKING:
    from policies.documents.study import Study
    from silo_agent.models.evaluate import ModelEvaluation
    from silo_agent.storage.state import State


def report(
    study: StudyArgument,
    config: ConfigOption = DEFAULT,
    *,
    out: Annotated[
        Path | None, typer.Option(help="New folder for the report; by default the study's name and -report, here.")
    ] = None,
    forecast: Annotated[
        Path | None, typer.Option(help="What `fedward-silo plan STUDY.yaml --format json` printed before the study.")
    ] = None,
) -> None:
    """Write a report of a finished study for a board, as HTML and PDF. Nothing is released.

    It has figures of this hospital's own held-out patients, which are not noised: it stays inside, and only you can
    read the files. `fedward-coordinator report` writes one without them.
    """
    from common.durable import write_folder
    from policies.reports.files import files
    from silo_agent.board_report import FinishedStudy
    from silo_agent.board_report import report as made
    from silo_agent.models.export import card_of
    from silo_agent.models.predict import load_model
    from silo_agent.storage.opening import read_state

    settings = AgentConfig.load(config)
    state = read_state(settings.state)
    digest, committed = find_trained(state, study)
    folder = StudyFolder(state.study_folder(digest))
    if not folder.model(committed).exists():
        msg = f"there is no finished round of this study in {folder.path}; run the study first"
        raise StateError(msg)
    model = load_model(folder.model(committed), personal=False)
    if committed < model.study.rounds:
        msg = f"the study is in round {committed} of {model.study.rounds}; a report is of a finished study: wait for it"
        raise StateError(msg)
    expected = None
    if forecast is not None:
        from policies.reports.forecast_section import read_forecast

        expected = read_forecast(forecast, model.study)
    charged = charged_of(StateFolder(settings.state).ledger, digest)
    target = out or Path(f"{model.study.name}-report")
    with waiting("measuring the models, and writing the report"):
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
        written = write_folder(target, files(made(found), model.study.name))
    for file in written:
        typer.echo(str(file))
    if evaluation is None:
        typer.echo(f"It has no figures of this hospital's own: {fault}", err=True)
    else:
        typer.echo("It has figures that are not noised: it stays inside this hospital.", err=True)


def _own(settings: AgentConfig, state: State, digest: str, committed: int) -> tuple[ModelEvaluation | None, str]:
    """This hospital's own figures of its held-out patients, or why there are none: a text that may quote a cell."""
    from silo_agent.data.errors import DataError
    from silo_agent.models.evaluate import NoFileError, evaluate

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
    from protos.messages import Place, Tensor

    return state.promises.binding(Place(study.digest, study.rounds + 1, 1), Tensor.METRICS)
