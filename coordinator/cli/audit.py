"""`fedward-coordinator audit`: who did what to which study, and whether the log is whole."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from coordinator.cli.options import DEFAULT, JsonOption, OperatorOption, connected, console

audit_app = typer.Typer(help="Show, export and verify the log of what people did.", no_args_is_help=True)
FirstOption = Annotated[int, typer.Option("--from", min=0, help="Number of the first entry.")]


@audit_app.command()
def show(operator: OperatorOption = DEFAULT, first: FirstOption = 0, *, as_json: JsonOption = False) -> None:
    """Print who did what to which study, when and why, and what was refused."""
    found = connected(operator).audit(first)
    if as_json:
        typer.echo(json.dumps([asdict(entry) for entry in found.entries], indent=1))
        return
    table = Table()
    for column in ("entry", "time (UTC)", "who", "action", "study", "reason", "outcome"):
        table.add_column(column, overflow="fold")
    for entry in found.entries:
        study = f"{entry.name} {entry.study[:12]}".strip()
        action = f"{entry.action} {entry.silo}".strip()
        outcome = f"{entry.outcome}: {entry.why}" if entry.why else entry.outcome
        who = entry.who.removeprefix("fedward://")
        table.add_row(str(entry.number), entry.at[:19], who, action, study, entry.reason, outcome)
    console().print(table)


@audit_app.command()
def export(
    out: Annotated[Path, typer.Argument(help="New file; an existing one is never overwritten.")],
    operator: OperatorOption = DEFAULT,
) -> None:
    """Write the whole log, with what silos signed of it, into a file that `audit verify --file` reads."""
    from common.durable import write_new
    from coordinator.audit_copy import written

    found = connected(operator).audit(0)
    write_new(out, written(found))
    typer.echo(f"{out}: {len(found.entries)} entries, signed by {len(found.cosigned)} silos")


@audit_app.command()
def verify(
    operator: OperatorOption = DEFAULT,
    *,
    file: Annotated[Path | None, typer.Option(help="A file that `audit export` wrote, in place of asking.")] = None,
    authority: Annotated[
        Path | None, typer.Option(help="With --file: the consortium's authority.pem, to check who signed.")
    ] = None,
) -> None:
    """Check that the log is one chain, and that it still has what each silo signed. Exit code 1 if not."""
    from coordinator.audit_copy import read, verdict
    from coordinator.config import OperatorConfig
    from crypto.pki.certificates import Trust

    if (file is None) != (authority is None):
        raise typer.BadParameter("give --file and --authority together, or neither", param_hint="--file")  # noqa: EM101, TRY003
    if file is None or authority is None:
        found, trusted = connected(operator).audit(0), OperatorConfig.load(operator).authority
    else:
        found, trusted = read(file), authority
    told = verdict(found, Trust(trusted.read_bytes()))
    typer.echo("\n".join(told.lines))
    if told.faults:
        typer.echo("\n".join(told.faults), err=True)
        raise typer.Exit(1)
