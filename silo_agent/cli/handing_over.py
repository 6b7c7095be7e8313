"""`fedward-silo hand-over` and `import`: a shared model for a silo that has not trained it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from policies.documents.policy import load_policy
from silo_agent.cli.models import model_path
from silo_agent.cli.options import DEFAULT, ConfigOption, StudyArgument
from silo_agent.config import AgentConfig
from silo_agent.storage.folders import StateFolder


def hand_over(
    study: StudyArgument,
    config: ConfigOption = DEFAULT,
    *,
    out: Annotated[Path, typer.Option(help="Folder for the model and the consents; made if it is not there.")],
) -> None:
    """Write the shared model of a finished study, with this silo's signed consent that others may have it.

    Every silo of the study does this, with the policy's hand_over: true. Put all consents beside the model, and the
    silo that gets it runs `fedward-silo import FOLDER`.
    """
    from silo_agent.models import handing_over

    settings = AgentConfig.load(config)
    path, _ = model_path(config, study, personal=False)
    consent = handing_over.hand_over(path, load_policy(settings.policy), settings.credential(), out)
    typer.echo(f"{out / handing_over.MODEL}\n{consent}")


def take(
    folder: Annotated[Path, typer.Argument(help="Folder with model.safetensors and the consents of its silos.")],
    config: ConfigOption = DEFAULT,
) -> None:
    """Take a shared model that its silos hand over. Studies with `continues` then start from it here."""
    from silo_agent.models import handing_over

    settings = AgentConfig.load(config)
    files = StateFolder(settings.state)
    model = handing_over.take(folder, settings.authority, files)
    typer.echo(f"{model.digest}: the model of study {model.study.name}, round {model.round}")
    typer.echo(f"Kept as {files.imported(model.digest)}. A study goes on from it with continues: {model.digest}")
