"""`python -m deploy.demo`: what `make demo` runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from coordinator.errors import OperatorError
from deploy.demo.run import Demo, DemoRequest
from deploy.local.processes import FederationError
from policies.documents.document import DocumentError


def main(
    study: Annotated[Path, typer.Option(help="Folder of the study.")] = Path("deploy/demo/exam"),
    data: Annotated[Path | None, typer.Option(help="Folder of real files, if the study reads some.")] = None,
    out: Annotated[Path, typer.Option(help="Where everything goes; emptied first.")] = Path("demo-out"),
    seed: Annotated[int, typer.Option(help="Of the made-up patients.")] = 100,
) -> None:
    """Run a whole private study on this machine."""
    console = Console()
    try:
        Demo(DemoRequest(study, data, out, seed), console).result()
    except (FederationError, OperatorError, DocumentError) as error:
        console.print(f"[red]the demo failed:[/red] {error}")
        sys.exit(1)


if __name__ == "__main__":
    typer.run(main)
