"""`fedward-coordinator drain`, `backup` and `restore`: for whoever runs the coordinator's machine."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from coordinator.cli.options import DEFAULT, ConfigOption, OperatorOption, connected, waiting
from coordinator.config import CoordinatorConfig

_PACE_SECONDS = 2.0


def drain(
    operator: OperatorOption = DEFAULT,
    reason: Annotated[str, typer.Option(help="Why, for the audit log.")] = "",
    *,
    undo: Annotated[bool, typer.Option("--undo", help="Begin rounds again.")] = False,
    wait: Annotated[bool, typer.Option(help="Wait until no study is within a round.")] = True,
) -> None:
    """Begin no further round of any study, so that the coordinator can be restarted between rounds.

    Rounds that have begun end as usual, and no time limit runs meanwhile. A coordinator that is started again begins
    rounds again.
    """
    client = connected(operator)
    within = client.drain(reason, undo=undo)
    if undo:
        typer.echo("rounds begin again")
        return
    said: list[str] = []
    while within:
        lines = [f"{one.name}: round {one.round}, {one.phase}" for one in client.statuses() if one.study in within]
        if lines != said:
            typer.echo("within a round: " + "; ".join(lines))
            said = lines
        if not wait:
            return
        time.sleep(_PACE_SECONDS)
        within = client.drain(reason)
    typer.echo("no study is within a round; restart the coordinator now, or `fedward-coordinator drain --undo`")


def backup(
    out: Annotated[Path, typer.Argument(help="New file for the backup.")],
    config: ConfigOption = Path("coordinator.yaml"),
) -> None:
    """Write all that the database stores into one file, also while the coordinator serves.

    Keys, certificates and the spool are not in it: silos send again what a spool lacks.
    """
    from coordinator.lease.turns import database_of
    from coordinator.storage.copying import back_up

    database = database_of(CoordinatorConfig.load(config))
    try:
        with waiting("copying the database"):
            studies = back_up(database, out)
    finally:
        database.engine.dispose()
    typer.echo(f"{out}: {studies} {'study' if studies == 1 else 'studies'}, {out.stat().st_size} bytes")


def restore(
    file: Annotated[Path, typer.Argument(help="A file that `backup` wrote.")],
    config: ConfigOption = Path("coordinator.yaml"),
) -> None:
    """Put a backup into the empty database that the configuration names. No coordinator may serve it meanwhile."""
    from coordinator.lease.turns import lease_of
    from coordinator.storage.alone import alone_in
    from coordinator.storage.closing import close_to_others
    from coordinator.storage.copying import CopyError, put_back

    settings = CoordinatorConfig.load(config)
    close_to_others(settings.data)
    with alone_in(settings.data):
        lease = lease_of(settings)
        if not lease.attempt():
            row = lease.row()
            msg = f"a coordinator serves this database ({row.at if row else 'another'}); stop it first"
            raise CopyError(msg)
        try:
            with waiting("putting the backup back"):
                studies = put_back(lease.database, file)
        finally:
            lease.give_back()
    typer.echo(f"{studies} {'study' if studies == 1 else 'studies'} put back; start the coordinator now")
