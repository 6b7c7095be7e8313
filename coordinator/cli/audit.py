"""`fedward-coordinator audit`: who did what to which study, and whether the log is whole."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coordinator.cli.options import DEFAULT, JSON, TABLE, FormatOption, OperatorOption, connected, console, waiting

if TYPE_CHECKING:
    from protos.audit import AuditEntry

audit_app = typer.Typer(help="Show, export and verify the log of what people did.", no_args_is_help=True)
FirstOption = Annotated[int, typer.Option("--from", min=0, help="Number of the first entry.")]


@audit_app.command()
def show(operator: OperatorOption = DEFAULT, first: FirstOption = 0, *, form: FormatOption = TABLE) -> None:
    """Print who did what to which study, when and why, and what was refused."""
    found = connected(operator).audit(first)
    if form is JSON:
        typer.echo(json.dumps([asdict(entry) for entry in found.entries], indent=1))
        return
    terminal = console()
    for entry in found.entries:
        terminal.print("\n".join(_lines(entry)), soft_wrap=True, highlight=False)


def _lines(entry: AuditEntry) -> Iterator[str]:
    """Return an entry as lines that are as long as they are, so that nothing is cut and `grep` finds them."""
    who = entry.who.removeprefix("fedward://") or "the coordinator"
    about = " ".join(part for part in (entry.name, entry.study[:12], entry.silo) if part)
    yield f"{entry.number:>5}  {entry.at[:19].replace('T', ' ')} UTC  {who}  {entry.action}  {about}  {entry.outcome}"
    if entry.reason:
        yield f"       reason: {entry.reason}"
    if entry.why:
        yield f"       why: {entry.why}"


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
    form: FormatOption = TABLE,
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
    with waiting("checking the chain"):
        told = verdict(found, Trust(trusted.read_bytes()))
    if form is JSON:
        typer.echo(json.dumps({"holds": told.lines, "faults": told.faults}, indent=1))
    else:
        typer.echo("\n".join(told.lines))
        typer.echo("\n".join(told.faults), err=True, nl=bool(told.faults))
    if told.faults:
        raise typer.Exit(1)
