"""`fedward-coordinator console`: a link to the coordinator's console."""

from __future__ import annotations

import json

import typer

from coordinator.cli.options import DEFAULT, JSON, TABLE, FormatOption, OperatorOption, connected

console_app = typer.Typer(help="The coordinator's console in a browser.", no_args_is_help=True)


@console_app.callback()
def _console() -> None:
    """The coordinator's console in a browser."""


@console_app.command()
def link(operator: OperatorOption = DEFAULT, *, form: FormatOption = TABLE) -> None:
    """Print a link that signs you in at the console, with the rights of your certificate.

    It works once, and for five minutes. A browser that shows your certificate needs no link.
    """
    found = connected(operator).link_console()
    typer.echo(json.dumps({"url": found}) if form is JSON else found)
