"""`python -m deploy.release`: make a release key, pin requirements, make a release, verify one."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from crypto.errors import CryptoError
from deploy.release import signing
from deploy.release.errors import ReleaseError
from deploy.release.locks import ROLES, lock
from deploy.release.making import make

PASSPHRASE: Final = "FEDWARD_RELEASE_PASSPHRASE"  # noqa: S105  # the name of a variable, not its content
app = typer.Typer(help="Releases of FedWard.", no_args_is_help=True, pretty_exceptions_enable=False)
KeyOption = Annotated[Path, typer.Option(help="The release key.")]


@app.command()
def key(path: Annotated[Path, typer.Argument(help="New file for the key.")]) -> None:
    """Make a release key. Its passphrase is read from FEDWARD_RELEASE_PASSPHRASE; without one it is not encrypted."""
    given = _passphrase()
    typer.echo(f"fingerprint: {signing.make_key(path, given)}")
    typer.echo("Publish this fingerprint where the release does not lie, for example on the consortium's site.")
    if given is None:
        typer.echo(f"the key has no passphrase; set {PASSPHRASE} to protect it, and make the key anew", err=True)


@app.command()
def locked() -> None:
    """Resolve the requirements of every role anew."""
    for role in ROLES:
        lock(role)
        typer.echo(f"{role.file.name} is written")


@app.command()
def build(key: KeyOption, out: Annotated[Path, typer.Option(help="New or empty folder.")] = Path("dist")) -> None:
    """Make a signed release of the last commit."""
    for name in make(out, signing.load_key(key, _passphrase())):
        typer.echo(name)


@app.command()
def verify(
    folder: Path, fingerprint: Annotated[str, typer.Option(help="The release key's, from who published it.")]
) -> None:
    """Check a release before it is installed."""
    signing.verify(folder, fingerprint)
    typer.echo("every file is as it was signed")


def _passphrase() -> bytes | None:
    return os.environ.get(PASSPHRASE, "").encode() or None


def main() -> None:
    """Run the command line. An error is one sentence on stderr and exit code 1."""
    try:
        app()
    except (ReleaseError, CryptoError, OSError) as error:
        typer.echo(f"release: {error}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
