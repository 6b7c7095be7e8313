"""`fedward-coordinator`: the server, enrolment, the report.

Commands on studies and on the audit log have files of their own.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from common.command_line import run, version_teller
from coordinator.cli.audit import audit_app
from coordinator.cli.console import console_app
from coordinator.cli.machine import backup, drain, restore
from coordinator.cli.options import DEFAULT, ConfigOption, OperatorOption, connected, waiting
from coordinator.cli.studies import study_app
from coordinator.config import CoordinatorConfig
from coordinator.errors import CoordinatorError
from crypto.errors import CryptoError
from crypto.pki.identity import Identity, Role, Subject
from policies.errors import PolicyError

app = typer.Typer(help="The blind coordinator of a federation.", no_args_is_help=True, pretty_exceptions_enable=False)
app.add_typer(study_app, name="study")
app.add_typer(audit_app, name="audit")
app.add_typer(console_app, name="console")
app.command()(drain)
app.command()(backup)
app.command()(restore)


@app.callback()
def _program(
    *,
    _version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=version_teller("fedward-coordinator"),
            is_eager=True,
            help="Print the version and exit.",
        ),
    ] = False,
) -> None:
    """The blind coordinator of a federation."""


@app.command()
def serve(config: ConfigOption = Path("coordinator.yaml")) -> None:
    """Serve silos and operators until stopped."""
    import logging

    import structlog

    from common.memory import give_back_freed
    from coordinator.lease.turns import serve as serve_until_stopped
    from protos.core_log import diverted

    give_back_freed()
    with diverted() as lines:
        structlog.configure(
            processors=[
                structlog.processors.add_log_level,
                structlog.processors.TimeStamper(fmt="iso"),
                structlog.processors.format_exc_info,
                structlog.processors.JSONRenderer(),
            ],
            wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
            logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        )
        serve_until_stopped(CoordinatorConfig.load(config), lines)


@app.command()
def enrol(  # noqa: PLR0917  # typer calls it, by name
    folder: Annotated[Path, typer.Argument(help="New folder for the key and the certificate or request.")],
    token: Annotated[str | None, typer.Option(help="The one-time token. It stays in the shell's history.")] = None,
    token_file: Annotated[Path | None, typer.Option(help="File with the token; - reads the standard input.")] = None,
    authority: Annotated[
        str | None, typer.Option(help="The issuing authority as https://host:port, if the token does not say.")
    ] = None,
    key_passphrase: Annotated[
        Path | None, typer.Option(help="File with a passphrase, mode 0600, under which the key is kept.")
    ] = None,
    role: Annotated[
        Role | None, typer.Option(help="Without a token: coordinator, operator, author, viewer or approver.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Without a token: name of this party in the federation.")] = None,
    host: Annotated[
        list[str] | None, typer.Option(help="DNS name or IP address that silos connect to; repeatable.")
    ] = None,
) -> None:
    """Make a key, and have it certified: by a one-time token, or by a request that people carry.

    The key never leaves this machine.
    """
    from crypto.errors import EnrolmentError
    from crypto.pki.enrolment import create_request
    from crypto.pki.joining import enrol_commands
    from crypto.pki.joining.enrol import enrol as redeem
    from crypto.pki.key_files import read_passphrase

    if role is Role.SILO:
        raise typer.BadParameter("a silo must enrol with `fedward-silo enrol`", param_hint="--role")  # noqa: EM101, TRY003
    secret = None if key_passphrase is None else read_passphrase(key_passphrase)
    offline = role is not None or name is not None or bool(host)
    if offline and (token is not None or token_file is not None or role is None or name is None):
        msg = "give a token, which says who this party is, or both --role and --name for a request"
        raise EnrolmentError(msg)
    if role is not None and name is not None:
        request = create_request(folder, Subject(Identity(role, name)), host or (), passphrase=secret)
        typer.echo(f"Send {request} to the consortium's authority and put the certificate it returns beside it.")
        return
    given = enrol_commands.read_token(token, token_file)
    if given.admission.subject.identity.role is Role.SILO:
        msg = f"the token is for {given.admission.subject}; enrol that party with `fedward-silo enrol`"
        raise EnrolmentError(msg)
    done = redeem(folder, given, url=authority, passphrase=secret)
    typer.echo("\n".join(enrol_commands.lines(done)))
    kind = "coordinator.yaml" if done.hosts else "operator.yaml"
    typer.echo(f"next: write {folder / kind} with `authority_url: {done.url}`, so that the certificate is renewed")


@app.command()
def report(
    study: Annotated[Path, typer.Argument(help="The file with which the study was created.")],
    operator: OperatorOption = DEFAULT,
    *,
    out: Annotated[
        Path | None, typer.Option(help="New folder for the report; by default the study's name and -report, here.")
    ] = None,
    forecast: Annotated[
        Path | None, typer.Option(help="What `fedward-silo plan STUDY.yaml --format json` printed before the study.")
    ] = None,
) -> None:
    """Write a report of a finished study for a board, as HTML and PDF, from what the study publishes."""
    from common.durable import write_folder
    from coordinator.reporting import report as made
    from coordinator.reporting import require_finished
    from policies.documents.study import load_study
    from policies.reports.files import files
    from policies.reports.forecast_section import read_forecast

    document = load_study(study)
    expected = None if forecast is None else read_forecast(forecast, document)
    client = connected(operator)
    status = client.status(document.digest)
    require_finished(document, status)
    with waiting("writing the report"):
        found = made(document, status, client.results(document.digest) if document.publish else None, expected)
        written = write_folder(out or Path(f"{document.name}-report"), files(found, document.name))
    for file in written:
        typer.echo(str(file))


def main() -> None:
    """Run the command line. An error is one sentence on stderr and exit code 1."""
    run("fedward-coordinator", app, (CoordinatorError, CryptoError, PolicyError, OSError))


if __name__ == "__main__":
    main()
