"""`fedward`: a study on this machine, as a whole federation or simulated, before hospitals are asked to join it."""

from __future__ import annotations

import math
import signal
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from common.command_line import run, version_teller
from coordinator.errors import OperatorError
from deploy.local.dry_round import dry_round
from deploy.local.federation import Federation
from deploy.local.folders import begin, find_data
from deploy.local.ledgers import SpentBudget, budgets
from deploy.local.processes import FederationError
from deploy.local.silo_policies import read_policies
from deploy.local.simulate.command import simulate
from deploy.local.simulate.errors import SimulationError
from deploy.local.watching import bars, stage, watch
from policies.documents.study import load_study
from policies.errors import PolicyError
from silo_agent.cli.options import waiting
from silo_agent.errors import SiloError

app = typer.Typer(help="A study on one machine.", no_args_is_help=True, pretty_exceptions_enable=False)
app.command()(simulate)


@app.callback()
def _program(
    *,
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=version_teller("fedward"), is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """A study on one machine."""


@app.command()
def local(
    study: Annotated[Path, typer.Argument(metavar="STUDY", help="study.yaml")],
    data: Annotated[Path, typer.Option(help="Folder with one file for each silo: SILO.csv or SILO.parquet.")],
    policy: Annotated[
        Path,
        typer.Option(
            help="Every silo's policy, or a folder of SILO.yaml; \"{data_set}\" in it stands for the silo's name."
        ),
    ],
    out: Annotated[Path, typer.Option(help="New folder for certificates, ledgers, models and logs.")],
    limit: Annotated[float, typer.Option(min=1, help="Seconds after which a study is given up.")] = 3600.0,
) -> None:
    """Start authority, coordinator and every silo on loopback, run the study, and stop them again."""
    silos = load_study(study).silos
    files = find_data(data, silos)
    policies = read_policies(policy, silos)
    begin(out)
    console, federation = Console(), Federation(out, study, files, policies)
    with bars(console) as progress:
        with stage(progress, "certificates"):
            federation.prepare()
        try:
            with stage(progress, "coordinator and agents start"):
                federation.start()
            federation.begin()
            watch(federation, progress, limit=limit)
            federation.wait_for_silos()
        finally:
            federation.stop()
        with stage(progress, "ledgers"):
            found = budgets(federation)
    console.print(shown(found))
    for silo in silos:
        typer.echo(f"{silo}: models, results.json and training log in {federation.state(silo)}")


@app.command("dry-round")
def dry_round_command(
    study: Annotated[Path, typer.Argument(metavar="STUDY", help="study.yaml")],
    silo: Annotated[str, typer.Option(help="This hospital's silo; it takes part if the study lists it.")] = "",
    device: Annotated[str, typer.Option(help="auto, cpu or cuda, as in agent.yaml.")] = "auto",
    limit: Annotated[float, typer.Option(min=1, help="Seconds after which it is given up.")] = 600.0,
) -> None:
    """Run a study's first rounds among throw-away parties with made-up records, on loopback; nothing is kept."""
    with waiting("throw-away parties run two rounds"):
        ran = dry_round(load_study(study), silo, device=device, limit=limit)
    typer.echo(f"{ran.rounds} rounds of {ran.silos} silos with made-up records in {ran.seconds:.0f} s")


def shown(found: Sequence[SpentBudget]) -> Table:
    """A table of every silo's budget and what is spent of it."""
    title = f"Epsilon at delta {found[0].delta:g}"
    table = Table("silo", "spent", "budget", "left", title=title, title_justify="left")
    for one in found:
        left = max(0.0, one.budget - one.spent) if math.isfinite(one.spent) else 0.0
        table.add_row(one.silo, f"{one.spent:.3f}", f"{one.budget:g}", f"{left:.3f}")
    return table


def main() -> None:
    """Run the command. An error is printed as one sentence on stderr, with exit code 1."""
    # If this command is ended, the processes that it has started must end too.
    signal.signal(signal.SIGTERM, _interrupt)
    run("fedward", app, (FederationError, OperatorError, PolicyError, SimulationError, SiloError, OSError))


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
