"""`fedward-silo hand-over`, `import`, `adapt`: a shared model for a hospital that comes after its study."""

from __future__ import annotations

import json
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from silo_agent.cli.evaluated import difference
from silo_agent.cli.models import model_path
from silo_agent.cli.options import DEFAULT, JSON, TABLE, ConfigOption, FormatOption, StudyArgument, waiting
from silo_agent.config import AgentConfig
from silo_agent.storage.folders import StateFolder

if TYPE_CHECKING:
    from silo_agent.models.adapt import Adaptation


class PartOption(StrEnum):
    """The same as `composition.Part`, for the options."""

    ENCODER = "encoder"
    HEADS = "heads"


def adapt(
    model: Annotated[Path, typer.Argument(help="The file of a shared model, as it was handed over.")],
    data: Annotated[
        Path | None, typer.Argument(help="A labelled file of this hospital; by default the one that agent.yaml names.")
    ] = None,
    config: ConfigOption = DEFAULT,
    *,
    out: Annotated[Path, typer.Option(help="A new .safetensors file, readable by you alone. It stays here.")],
    part: Annotated[
        PartOption | None,
        typer.Option(help="What to train. A recipe that keeps a part decides it; otherwise heads, if not said."),
    ] = None,
    most: Annotated[
        int, typer.Option("--epochs", min=1, max=4096, help="Most epochs; cross-validation chooses how many.")
    ] = 64,
    form: FormatOption = TABLE,
) -> None:
    """Train this hospital's own part of a model under the frozen shared part. Nothing is released.

    Only patients of the training cohort train. If no training helps by cross-validation, the file holds the shared
    model. The held-out patients then say how the adapted model does beside the shared one, with paired 95 % intervals.
    Predict with it by `predict STUDY DATA --model FILE --personal`.
    """
    from silo_agent.models.adapt import adapt as adapt_model
    from silo_agent.models.adapt import check_output
    from silo_agent.review.cohorts import cohorts_of

    check_output(out)
    settings = AgentConfig.load(config)
    with waiting("training, and choosing by cross-validation"):
        found = adapt_model(
            model,
            data,
            cohorts_of(settings),
            part=None if part is None else part.value,
            most=most,
            device=settings.device,
        )
        found.adapted.model.save(out)
    if form is JSON:
        typer.echo(json.dumps(_document(found, out), indent=1, allow_nan=False))
        return
    for line in _lines(found, out):
        typer.echo(line)


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
    from silo_agent.oversight.approval import policy_in_force

    settings = AgentConfig.load(config)
    path, _ = model_path(config, study, personal=False)
    policy = policy_in_force(StateFolder(settings.state).ledger, settings.policy)
    consent, digest = handing_over.hand_over(path, policy, settings.credential(), out)
    typer.echo(f"{out / handing_over.MODEL}\n{consent}")
    typer.echo(f"A study goes on from this model with continues: {digest}")


def take(
    folder: Annotated[Path, typer.Argument(help="Folder with model.safetensors and the consents of its silos.")],
    config: ConfigOption = DEFAULT,
) -> None:
    """Take a shared model that its silos hand over. Studies with `continues` then start from it here."""
    from silo_agent.models import handing_over

    settings = AgentConfig.load(config)
    files = StateFolder(settings.state)
    model = handing_over.take(folder, settings.authority, files, lists=settings.crls, tell=typer.echo)
    typer.echo(f"{model.digest}: the model of study {model.study.name}, round {model.round}")
    typer.echo(f"Kept as {files.imported(model.digest)}. A study goes on from it with continues: {model.digest}")


def _name(found: Adaptation) -> str:
    return f"adapted {found.adapted.part}" if found.adapted.epochs else "shared"


def _lines(found: Adaptation, out: Path) -> list[str]:
    adapted, paired = found.adapted, found.held_out
    lines = [f"{out}: the model of {adapted.model.study.name}, round {adapted.model.round}: {_name(found)}."]
    lines.append(f"Why: {adapted.why}.")
    pairs = (("AUC", paired.auc), ("loss", paired.loss)) if adapted.epochs else ()
    figures = ", ".join(f"{figure} {difference(own)}" for figure, own in pairs if own is not None)
    if figures:
        lines.append(f"On {paired.patients} held-out patients of {found.file}, adapted less shared: {figures}.")
    if found.skipped:
        lines.append(f"Skipped: {found.skipped} records that do not fit the study, such as")
        lines += [f"  {fault}" for fault in found.faults]
    return lines


def _document(found: Adaptation, out: Path) -> dict[str, Any]:
    adapted = found.adapted
    return {
        "study": adapted.model.study.digest,
        "round": adapted.model.round,
        "model": _name(found),
        "part": adapted.part,
        "epochs": adapted.epochs,
        "why": adapted.why,
        "patients": adapted.patients,
        "compared": [asdict(one) for one in adapted.compared],
        "file": found.file,
        "skipped": found.skipped,
        "faults": found.faults,
        "held_out": asdict(found.held_out),
        "out": str(out),
    }
