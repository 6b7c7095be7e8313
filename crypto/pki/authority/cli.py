"""`fedward-authority`: the consortium's offline root, for the person who keeps it.

Guarantees: the command shows who is being certified, and for which key, before it writes. It overwrites nothing. If
something is refused, it prints one line and exits with 1. The rules are in `authority`.

The passphrase of the authority's key is read from FEDWARD_AUTHORITY_PASSPHRASE, or asked for at a terminal.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from crypto.errors import CryptoError, EnrolmentError
from crypto.pki.authority import root as authority
from crypto.pki.identity import Identity, Role, Subject
from crypto.pki.key_files import write_new
from crypto.pki.reading import fingerprint

PASSPHRASE_VARIABLE = "FEDWARD_AUTHORITY_PASSPHRASE"  # noqa: S105  # the name of a variable, not its content

app = typer.Typer(no_args_is_help=True, add_completion=False, help=(__doc__ or "").partition("\n")[0])


def _tell_version(asked: bool) -> None:  # noqa: FBT001  # typer calls it so
    if asked:
        typer.echo(f"fedward-authority {version('fedward')}")
        raise typer.Exit


@app.callback()
def _program(
    *,
    _version: Annotated[
        bool, typer.Option("--version", callback=_tell_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """The consortium's offline root, for the person who keeps it."""


@contextmanager
def _diagnosed() -> Iterator[None]:
    try:
        yield
    except CryptoError as error:
        typer.echo(f"refused: {error}", err=True)
        raise typer.Exit(1) from None


def _at_terminal() -> bool:
    return sys.stdin.isatty()


def _passphrase(*, confirm: bool) -> bytes | None:
    """The passphrase, from the variable or a person; None if it is empty. With `confirm` somebody must have said so."""
    given = os.environ.get(PASSPHRASE_VARIABLE)
    if given is None and confirm and not _at_terminal():
        msg = f"nobody can be asked for the new key's passphrase; set {PASSPHRASE_VARIABLE} (empty: no passphrase)"
        raise EnrolmentError(msg)
    if given is None and _at_terminal():
        given = typer.prompt(
            "Passphrase of the authority's key", default="", hide_input=True, confirmation_prompt=confirm
        )
    return given.encode() if given else None


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(help="Folder of the authority, on a machine that stays offline.")],
    name: Annotated[str, typer.Option(help="Name of the authority, for people.")],
    days: Annotated[int, typer.Option(help="Days until the authority itself expires.")] = 3650,
) -> None:
    """Make the authority: its certificate, its key and the register of what it certifies."""
    with _diagnosed():
        passphrase = _passphrase(confirm=True)
        certificate = authority.init(folder, name, days, passphrase=passphrase)
        typer.echo(f"authority {name!r}, certificate SHA-256 {fingerprint(certificate)}")
        typer.echo(f"give {authority.CERTIFICATE_FILE} to every party; keep {authority.KEY_FILE} offline")
        if passphrase is None:
            typer.echo(f"the key has no passphrase; set {PASSPHRASE_VARIABLE} to protect it", err=True)


@app.command()
def sign(  # noqa: PLR0917  # typer calls it, by name
    folder: Annotated[Path, typer.Argument(help="Folder of the authority.")],
    request: Annotated[Path, typer.Argument(help="The party's request (.csr).")],
    role: Annotated[Role, typer.Option(help="What the party is; must be what the request asks for.")],
    name: Annotated[str, typer.Option(help="Who the party is; must be what the request asks for.")],
    out: Annotated[Path, typer.Option(help="Where to write the certificate; an existing file is never overwritten.")],
    data_set: Annotated[
        str | None,
        typer.Option(help="The data set whose budget the silo keeps. For silos only; it cannot be changed later."),
    ] = None,
    host: Annotated[list[str] | None, typer.Option(help="DNS name or IP address of a coordinator; repeatable.")] = None,
    days: Annotated[int, typer.Option(help="Days until the certificate expires.")] = 90,
) -> None:
    """Certify one party."""
    with _diagnosed():
        subject = Subject(Identity(role, name), data_set)
        pem = _read(request)
        asked = authority.read_request(pem)
        typer.echo(f"the request is for {asked.subject}, hosts: {', '.join(asked.hosts) or 'none'}")
        typer.echo(f"its key has SHA-256 {asked.fingerprint}: compare it with the party")
        if out.exists():
            msg = f"{out.name} exists already and is never overwritten; choose another path with --out"
            raise EnrolmentError(msg)
        certificate = authority.sign(
            folder, pem, subject=subject, days=days, hosts=host or [], passphrase=_passphrase(confirm=False)
        )
        write_new(out, certificate, secret=False)
        typer.echo(f"certified {subject} for {days} days, certificate SHA-256 {fingerprint(certificate)}")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        msg = f"{path.name} cannot be read ({error.strerror}); fix the path"
        raise EnrolmentError(msg) from None


def main() -> None:
    """Run the command line."""
    app()


if __name__ == "__main__":
    main()
