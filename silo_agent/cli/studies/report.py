"""`fedward-silo report`: a finished study for a board, as a page and a document, with this hospital's own figures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from silo_agent.cli.options import DEFAULT, ConfigOption, StudyArgument, waiting
from silo_agent.config import AgentConfig


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

    settings = AgentConfig.load(config)
    with waiting("measuring the models, and writing the report"):
        # What learns takes seconds to load.
        from silo_agent.board_report import report as made
        from silo_agent.review.finished import finished

        found, fault = finished(settings, study, forecast)
        name = found.study.name
        written = write_folder(out or Path(f"{name}-report"), files(made(found), name))
    for file in written:
        typer.echo(str(file))
    if found.evaluation is None:
        typer.echo(f"It has no figures of this hospital's own: {fault}", err=True)
    else:
        typer.echo("It has figures that are not noised: it stays inside this hospital.", err=True)
