"""`fedward-silo data`: `check` says which records a study would leave out, `withdraw` takes a person out for good.

`check` reads what the agent would read for the study, with the agent's own reader, and charges nothing. Its output
quotes patients' values and counts their records, so it is only for this hospital's console: first what does not fit by
column and reason, then examples. The exit code is 3 if any record would be left out.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from policies.documents.study import load_study
from silo_agent.cli.options import DEFAULT, JSON, TABLE, ConfigOption, FormatOption, counting, on_terminal, waiting
from silo_agent.cli.policy import ATTENTION
from silo_agent.config import AgentConfig
from silo_agent.storage.errors import StateError
from silo_agent.storage.folders import StateFolder

if TYPE_CHECKING:
    from silo_agent.data.reader import Reading

data_app = typer.Typer(
    help="Check the hospital's data against a study, or take a person out. The output must stay in the hospital.",
    no_args_is_help=True,
)


@data_app.command("check")
def data_check(
    study_file: Annotated[Path, typer.Argument(metavar="STUDY", help="study.yaml")],
    config: ConfigOption = DEFAULT,
    *,
    data: Annotated[str | None, typer.Option(help="Name of the data in agent.yaml, if the study has none yet.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Most faults that are listed; all are counted.")] = 20,
    form: FormatOption = TABLE,
) -> None:
    """Say which records do not fit the study and would be left out. Exit code 3 if there are any."""
    # Decoders and the Parquet reader take a while to load; the other commands stay quick.
    from silo_agent.review.data_check import checked

    study, settings = load_study(study_file), AgentConfig.load(config)
    with counting("rows read") as seen:
        path, reading = checked(settings, study, data, limit, seen)
    shown = str(path) if isinstance(path, Path) else path.name
    if form is JSON:
        document = {"study": study.digest, "file": shown, **_document(reading)}
        typer.echo(json.dumps(document, indent=1))
    else:
        reasons = reading.found.reasons()
        if reading.total > len(reasons):
            typer.echo("\n".join([*map(str, reasons), "for example:"]))
        for fault in reading.faults:
            typer.echo(str(fault))
        if reading.total > len(reading.faults):
            typer.echo(f"and {reading.total - len(reading.faults)} more; --limit shows more of them")
        typer.echo(f"{shown}: of {study.name}, {reading.kept} records fit and {reading.left_out} would be left out")
    if reading.left_out:
        raise typer.Exit(ATTENTION)


@data_app.command("withdraw")
def data_withdraw(
    who: Annotated[
        list[str],
        typer.Argument(
            metavar="CELL...", help="The cells that identify the person: one for each column of data_set.identified_by."
        ),
    ],
    config: ConfigOption = DEFAULT,
) -> None:
    """Take a person out of the rows that studies keep, and out of every later reading. This cannot be undone.

    The agent may run: it follows at its next reading of the rows. What was computed before stays, and so does its
    charge.
    """
    from crypto.entropy import SystemEntropy
    from silo_agent.data.sources.snapshot import forget, keeps
    from silo_agent.data.table import name_of
    from silo_agent.oversight.approval import policy_of_agent
    from silo_agent.storage.rows import Withdrawals, alone, rows_of

    settings = AgentConfig.load(config)
    files = StateFolder(settings.state)
    data_set = policy_of_agent(files.ledger, settings.policy).data_set
    columns = ", ".join(data_set.identified_by)
    if len(who) != len(data_set.identified_by):
        msg = f"a person is identified by {columns}; give a cell for each, {len(data_set.identified_by)} in all"
        raise StateError(msg)
    if data_set.unit == "patient" and not who[0].strip():
        msg = f"a person has an identifier; give the cell of {columns}"
        raise StateError(msg)
    credential, entropy, removed = settings.credential(), SystemEntropy(), 0
    name = name_of(who, by_patient=data_set.unit == "patient")
    if on_terminal():
        with waiting("looking for the person in what studies keep"):
            known = any(keeps(rows_of(folder, credential, entropy), name) for folder in files.studies())
        if not known:
            typer.echo(f"no row that studies keep has this person; {columns} must stand here as in the data")
            typer.confirm("Withdraw the person all the same, from every later reading, for good?", abort=True)
    with waiting("taking the person out of what studies keep"), alone(files):
        first = Withdrawals(files, credential, entropy).add(name)
        for folder in files.studies():
            removed += forget(rows_of(folder, credential, entropy), [name])
    if removed:
        before = "" if first else " (who had withdrawn before)"
        typer.echo(
            f"withdrawn{before}; {removed} rows are removed from what studies keep, and no later reading has any"
        )
    elif first:
        typer.echo(
            "no row that studies keep was this person's. What you gave is on the list of who has withdrawn now, so no"
            f" later reading has such a person. Check the cells: {columns}, as they stand in the data"
        )
    else:
        typer.echo("this person had withdrawn before, and no row that studies keep was left to remove")


def _document(reading: Reading) -> dict[str, object]:
    """What a check found, as JSON has it."""
    faults = [asdict(fault) for fault in reading.faults]
    reasons = [asdict(reason) for reason in reading.found.reasons()]
    counts = {"total": reading.total, "kept": reading.kept, "left_out": reading.left_out}
    return {"reasons": reasons, "faults": faults, **counts}
