"""What the commands of `fedward-authority` share: the passphrase, the reading of files, one line for a refusal."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

from crypto.errors import CryptoError, EnrolmentError
from crypto.pki.authority.folder import PASSPHRASE_VARIABLE


@contextmanager
def diagnosed() -> Iterator[None]:
    """Print one line and exit with 1 if something is refused."""
    try:
        yield
    except CryptoError as error:
        typer.echo(f"refused: {error}", err=True)
        raise typer.Exit(1) from None


def at_terminal() -> bool:
    """Whether a person can be asked."""
    return sys.stdin.isatty()


def passphrase(*, confirm: bool) -> bytes | None:
    """The passphrase, from the variable or a person; None if it is empty. With `confirm` somebody must have said so."""
    given = os.environ.get(PASSPHRASE_VARIABLE)
    if given is None and confirm and not at_terminal():
        msg = f"nobody can be asked for the new key's passphrase; set {PASSPHRASE_VARIABLE} (empty: no passphrase)"
        raise EnrolmentError(msg)
    if given is None and at_terminal():
        given = typer.prompt(
            "Passphrase of the authority's key", default="", hide_input=True, confirmation_prompt=confirm
        )
    return given.encode() if given else None


def warn_unprotected(given: bytes | None) -> None:
    """Say that a new key has no passphrase, if it has none."""
    if given is None:
        typer.echo(f"the key has no passphrase; set {PASSPHRASE_VARIABLE} to protect it", err=True)


def read(path: Path) -> bytes:
    """Read a file. Raises `EnrolmentError`."""
    try:
        return path.read_bytes()
    except OSError as error:
        msg = f"{path.name} cannot be read ({error.strerror}); fix the path"
        raise EnrolmentError(msg) from None


def require_new(path: Path) -> None:
    """Raise `EnrolmentError` if the file exists."""
    if path.exists():
        msg = f"{path.name} exists already and is never overwritten; choose another path with --out"
        raise EnrolmentError(msg)
