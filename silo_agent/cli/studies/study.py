"""`fedward-silo study`: write a study, from answers or from a draft. Nothing here reads records.

`approving.py` has the commands with which a hospital reads a study that it was offered, and approves it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from silo_agent.cli.options import on_terminal, waiting
from silo_agent.cli.studies import approving

if TYPE_CHECKING:
    from collections.abc import Mapping

    from policies.documents.draft import Draft

study_app = typer.Typer(help="Write a study; or read, approve and stop one.", no_args_is_help=True)

Many = list[str] | None
Out = Annotated[Path, typer.Option(help="New file for the study; an existing one is never overwritten.")]


study_app.command("show")(approving.show)
study_app.command("sign")(approving.sign)
study_app.command("approve")(approving.approve)
study_app.command("decline")(approving.decline)
study_app.command("approvals")(approving.approvals)
study_app.command("withdraw-approval")(approving.withdraw_approval)


@study_app.command("schema")
def study_schema_command() -> None:
    """Print the JSON Schema of a study, for an editor that completes and checks YAML."""
    from policies.documents.schema import study_schema

    typer.echo(study_schema(), nl=False)


@study_app.command("new")
def study_new_command(
    *,
    name: Annotated[str | None, typer.Option(help="Of the study: a-z, 0-9 and hyphens.")] = None,
    purpose: Annotated[str | None, typer.Option(help="For the people who approve it.")] = None,
    silo: Annotated[Many, typer.Option(metavar="NAME", help="A hospital; once for each.")] = None,
    patient: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Says which records are one patient's. Else each is its own.")
    ] = None,
    label: Annotated[
        str | None, typer.Option(help="The outcome: ill:yes=1:no=0, stage:classes=1/2/3,4 or days:number:0:60.")
    ] = None,
    domain: Annotated[
        Many, typer.Option(help="Groups with a head of their own: sex:code:F,M or age:edges:40,65. Up to three.")
    ] = None,
    feature: Annotated[
        Many,
        typer.Option(
            help="A column with its public range or codes: age:number:0:120 or sex:code:F,M; then :log, :log1p, :clip,"
            " :fill=5, :missing=-9, :optional. Ranges come from the literature, never from hospitals' records."
        ),
    ] = None,
    columns: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.csv",
            help="A public data dictionary, a line for each feature: column,kind,minimum,maximum,values,unit. No file"
            " of records: ranges that are made of records would publish something about them.",
        ),
    ] = None,
    missing: Annotated[
        Many, typer.Option(metavar="CELL", help='Means "not recorded" in every column, such as NA.')
    ] = None,
    patients: Annotated[
        str | None, typer.Option(help="Expected for training, of a hospital (6000) or of each (6000,4000,900).")
    ] = None,
    shares: Annotated[
        str | None, typer.Option(help="Expected share of each domain (0.7,0.2,0.1). Else all alike.")
    ] = None,
    prevalence: Annotated[float | None, typer.Option(help="Expected share with the outcome, of two classes.")] = None,
    effect: Annotated[float | None, typer.Option(help="Expected AUC, or R^2 of a number, without noise.")] = None,
    epsilon: Annotated[float | None, typer.Option(help="The most that the whole study may cost a patient.")] = None,
    delta: Annotated[
        float | None,
        typer.Option(help="By default a power of ten: 1e-5 and a tenth of 1 / all expected patients at most."),
    ] = None,
    mode: Annotated[
        str | None, typer.Option(help="local, or distributed noise; by default distributed if that makes it smaller.")
    ] = None,
    colluders: Annotated[int | None, typer.Option(help="Hospitals that may pool what they know. By default 1.")] = None,
    publish: Annotated[Many, typer.Option(metavar="METRIC", help="A figure to be signed and shown.")] = None,
    own_models: Annotated[
        bool | None,
        typer.Option(
            "--own-models/--no-own-models",
            help="Each hospital trains a model of its own, too, which never leaves, and predicts with what is better.",
        ),
    ] = None,
    out: Out = Path("study.yaml"),
) -> None:
    """Write a whole, commented study. What no option answers is asked for on a terminal.

    Rounds, clips and noises follow from the answers by a public rule, and stand in the file as numbers.
    """
    from silo_agent.cli.drafting import Answers, draft_of
    from silo_agent.cli.studies.asking import ask

    said = Answers(
        name=name, purpose=purpose, silos=silo or [], features=feature or [], columns=columns, label=label,
        domains=domain or [], patient=patient, missing=missing or [], patients=patients, shares=shares,
        prevalence=prevalence, effect=effect, epsilon=epsilon, delta=delta, mode=mode, colluders=colluders,
        publish=publish, own_models=own_models,
    )  # fmt: skip
    taken = _taken(out)
    if not taken and said.lacking() and on_terminal():
        ask(said)
    draft, units = draft_of(said, taken)
    _write(draft, out, "Written by `fedward-silo study new`", units, by_option=True)


@study_app.command("complete")
def study_complete_command(
    draft: Annotated[Path, typer.Argument(help="A study with privacy.epsilon instead of noises.")], out: Out
) -> None:
    """Write the study of a draft. What the draft leaves out is derived by a public rule and written as numbers."""
    from policies.documents.draft import load_draft
    from silo_agent.cli.drafting import FaultyAnswersError

    if taken := _taken(out):
        raise FaultyAnswersError(taken)
    _write(load_draft(draft), out, "Completed by `fedward-silo study complete`", {}, origin=draft)


def _taken(out: Path) -> list[str]:
    return [f"--out {out}: there is such a file already; choose another name"] if out.exists() else []


def _write(
    draft: Draft, out: Path, by: str, units: Mapping[str, str], *, origin: Path | None = None, by_option: bool = False
) -> None:
    """Write the study of a draft, and say what it costs and what to do next."""
    from common import durable
    from policies.accounting import planning
    from policies.accounting.completing import complete
    from policies.documents.document import DocumentError
    from policies.documents.writing import write_study
    from silo_agent.cli import drafting

    try:
        with waiting("looking for the noises that the price allows"):
            study = complete(draft, origin or out)
    except DocumentError as error:
        raise drafting.FaultyAnswersError(list(drafting.by_option(error))) if by_option else error from None
    prices = planning.price(study, study.privacy.delta)
    costs = ", ".join(f"{cohort} {cost:.4g}" for cohort, cost in prices.cohorts.items())
    price = f"at most epsilon {draft.privacy.epsilon:g} at delta {study.privacy.delta:g}, one repeated round included"
    price += f" (without one: {costs} patients)"
    text = write_study(study, head=[f"{by}: costs {price}."], notes=units)
    try:
        durable.write_new(out, text.encode())
    except FileExistsError:
        raise drafting.FaultyAnswersError(_taken(out)) from None
    data = study.data
    typer.echo(f"{out}: {len(study.silos)} silos, {data.inputs} inputs, {len(data.domains)} domains")
    typer.echo(f"It costs {price}, with {study.privacy.mode} noise and {study.rounds} rounds.")
    typer.echo(f"Read it, then see what it may be worth: fedward-silo plan {out}")
