"""`fedward-authority`: the consortium's offline root and its online issuing authority, for the people who keep them.

Guarantees: the command shows who is being certified, and for which key, before it writes. It overwrites nothing. If
something is refused, it prints one line and exits with 1. The rules are in `root` and `issuing`.

The passphrase of the authority's key is read from FEDWARD_AUTHORITY_PASSPHRASE, or asked for at a terminal.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from common.command_line import run, version_teller
from crypto.pki.authority import cli_online, root
from crypto.pki.authority.asking import diagnosed, passphrase, read, require_new, warn_unprotected
from crypto.pki.authority.building import read_request
from crypto.pki.authority.service.cli import serve
from crypto.pki.identity import Identity, Role, Subject
from crypto.pki.key_files import write_new
from crypto.pki.reading import fingerprint

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help=(__doc__ or "").partition("\n")[0],
)


@app.callback()
def _program(
    *,
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=version_teller("fedward-authority"), is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """The consortium's authorities, for the people who keep them."""


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(help="Folder of the authority, on a machine that stays offline.")],
    name: Annotated[str, typer.Option(help="Name of the authority, for people.")],
    days: Annotated[int, typer.Option(help="Days until the authority itself expires.")] = 3650,
    succeeds: Annotated[
        Path | None, typer.Option(help="Folder of the root that this one succeeds, whose register goes on here.")
    ] = None,
) -> None:
    """Make the authority: its certificate, its key and the register of what it certifies."""
    with diagnosed():
        given = passphrase(confirm=True)
        certificate = root.init(folder, name, days, passphrase=given, predecessor=succeeds)
        typer.echo(f"authority {name!r}, certificate SHA-256 {fingerprint(certificate)}")
        typer.echo(f"give {root.CERTIFICATE_FILE} to every party; keep {root.KEY_FILE} offline")
        warn_unprotected(given)


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
    institution: Annotated[
        str | None, typer.Option(help="Who runs the silo; two silos of one institution never join one study.")
    ] = None,
    host: Annotated[list[str] | None, typer.Option(help="DNS name or IP address of a coordinator; repeatable.")] = None,
    days: Annotated[int, typer.Option(help="Days until the certificate expires.")] = 90,
) -> None:
    """Certify one party."""
    with diagnosed():
        subject = Subject(Identity(role, name), data_set, institution)
        pem = read(request)
        asked = read_request(pem)
        typer.echo(f"the request is for {asked.subject}, hosts: {', '.join(asked.hosts) or 'none'}")
        typer.echo(f"its key has SHA-256 {asked.fingerprint}: compare it with the party")
        require_new(out)
        certificate = root.sign(
            folder, pem, subject=subject, days=days, hosts=host or [], passphrase=passphrase(confirm=False)
        )
        write_new(out, certificate, secret=False)
        typer.echo(f"certified {subject} for {days} days, certificate SHA-256 {fingerprint(certificate)}")


for _command in (*cli_online.COMMANDS, serve):
    app.command()(_command)


def main() -> None:
    """Run the command line."""
    fix = "install FedWard with requirements-coordinator.txt of the release, and not with a silo's"
    run("fedward-authority", app, fix=fix)


if __name__ == "__main__":
    main()
