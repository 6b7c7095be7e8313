"""What several groups of commands share: options, the terminal, the connection, and the question before a deed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from common.output_format import OutputFormat
from coordinator.config import OperatorConfig
from coordinator.errors import CoordinatorError

if TYPE_CHECKING:
    from coordinator.client.plain import CoordinatorClient
    from crypto.pki.certificates import Credential

OperatorOption = Annotated[Path, typer.Option("--operator", "-o", envvar="FEDWARD_OPERATOR_CONFIG")]
ConfigOption = Annotated[Path, typer.Option("--config", "-c", envvar="FEDWARD_COORDINATOR_CONFIG")]
FormatOption = Annotated[OutputFormat, typer.Option("--format", help="For people, or for programs.")]
TABLE, JSON = OutputFormat.TABLE, OutputFormat.JSON
ReasonOption = Annotated[
    str, typer.Option(help="Why, for the audit log. Needed for a study that is not your own, by your certificate.")
]
DEFAULT = Path("operator.yaml")


class UnconfirmedError(CoordinatorError):
    """Nobody has confirmed what cannot be undone. Nothing changed."""


def console() -> Console:
    """Return the terminal. What others wrote is text, even if it looks like markup."""
    return Console(markup=False, emoji=False)


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Say on the terminal what lasts; nothing where nobody looks. The line is gone at the end."""
    terminal = Console(stderr=True)
    if not terminal.is_terminal:
        yield
        return
    with terminal.status(what):
        yield


def connected(path: Path) -> CoordinatorClient:
    """Return the connection of a person's configuration file."""
    from coordinator.client.plain import CoordinatorClient

    return CoordinatorClient(OperatorConfig.load(path), lambda level, text: typer.echo(f"{level}: {text}", err=True))


def person(path: Path) -> Credential:
    """Return the credential of a person's configuration file, renewed if it is time."""
    from coordinator.client.plain import credential_of

    return credential_of(OperatorConfig.load(path), lambda level, text: typer.echo(f"{level}: {text}", err=True))


def confirm(question: str, *, yes: bool) -> None:
    """Return if a person says yes, on the terminal or with `--yes`. Raises `UnconfirmedError`."""
    if yes:
        return
    if not sys.stdin.isatty():
        msg = f"{question} Nobody can be asked here: give --yes"
        raise UnconfirmedError(msg)
    if not typer.confirm(question, err=True):
        msg = "nothing was done"
        raise UnconfirmedError(msg)
