"""`fedward-coordinator`: the server, and the operator's commands on studies."""

from __future__ import annotations

import base64
import json
import sys
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Console
from rich.table import Table

from common.command_line import run, version_teller
from common.figure_words import told
from coordinator.config import CoordinatorConfig, OperatorConfig
from coordinator.errors import CoordinatorError
from crypto.errors import CryptoError
from crypto.pki.identity import Identity, Role, Subject
from policies.documents.study import load_study
from policies.errors import PolicyError

if TYPE_CHECKING:
    from coordinator.operating import Operator
    from protos.messages import StudyResults
    from protos.status import MemberStatus, StudyStatus

app = typer.Typer(help="The blind coordinator of a federation.", no_args_is_help=True, pretty_exceptions_enable=False)
study_app = typer.Typer(help="Create, start, watch and stop studies.", no_args_is_help=True)
app.add_typer(study_app, name="study")
ConfigOption = Annotated[Path, typer.Option("--config", "-c", envvar="FEDWARD_COORDINATOR_CONFIG")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
_SILENT: Final = timedelta(minutes=1)
"""An agent calls every ten seconds; of one that is waited for and has not called for so long, the status says so."""
OperatorOption = Annotated[Path, typer.Option("--operator", "-o", envvar="FEDWARD_OPERATOR_CONFIG")]


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
    from coordinator.server import serve as serve_until_stopped
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
    role: Annotated[Role | None, typer.Option(help="Without a token: coordinator or operator.")] = None,
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
    operator: OperatorOption = Path("operator.yaml"),
    *,
    out: Annotated[
        Path | None, typer.Option(help="New folder for the report; by default the study's name and -report, here.")
    ] = None,
    forecast: Annotated[
        Path | None, typer.Option(help="What `fedward-silo plan STUDY.yaml --json` printed before the study.")
    ] = None,
) -> None:
    """Write a report of a finished study for a board, as HTML and PDF, from what the study publishes."""
    from common.durable import write_folder
    from coordinator.reporting import report as made
    from coordinator.reporting import require_finished
    from policies.reports.files import files
    from policies.reports.forecast_section import read_forecast

    document = load_study(study)
    expected = None if forecast is None else read_forecast(forecast, document)
    client = _operator(operator)
    status = client.status(document.digest)
    require_finished(document, status)
    found = made(document, status, client.results(document.digest) if document.publish else None, expected)
    for file in write_folder(out or Path(f"{document.name}-report"), files(found, document.name)):
        typer.echo(str(file))


@study_app.command()
def create(study: Path, operator: OperatorOption = Path("operator.yaml")) -> None:
    """Hand in a study file and print its digest."""
    typer.echo(_operator(operator).create(load_study(study).canonical()))


@study_app.command()
def start(study: str, operator: OperatorOption = Path("operator.yaml")) -> None:
    """Ask the silos to join, and begin the study."""
    _operator(operator).start(study)


@study_app.command()
def abort(
    study: str,
    reason: Annotated[str, typer.Option(help="Shown to every silo.")],
    operator: OperatorOption = Path("operator.yaml"),
) -> None:
    """Stop a study for good."""
    _operator(operator).abort(study, reason)


@study_app.command()
def pause(study: str, operator: OperatorOption = Path("operator.yaml")) -> None:
    """Hand out no more work until the study is resumed. Results that silos still send count; time stands still."""
    _operator(operator).pause(study)


@study_app.command()
def resume(study: str, operator: OperatorOption = Path("operator.yaml")) -> None:
    """Go on with a study that is paused or waits for silos."""
    _operator(operator).resume(study)


@study_app.command()
def forgive(study: str, silo: str, operator: OperatorOption = Path("operator.yaml")) -> None:
    """Ask a silo again that is not asked because attempts have ended at its silence, and wait for it as before."""
    _operator(operator).forgive(study, silo)


@study_app.command()
def results(
    study: str,
    operator: OperatorOption = Path("operator.yaml"),
    *,
    as_json: JsonOption = False,
) -> None:
    """Show the figures of a finished study on which enough silos agree, and who signed. --json adds the proofs."""
    found = _operator(operator).results(study)
    if as_json:
        typer.echo(json.dumps(asdict(found), default=_plain, indent=1))
        return
    _console().print(_figures(found))


@study_app.command()
def status(
    study: Annotated[str | None, typer.Argument(help="Name or digest of a study; all studies if absent.")] = None,
    operator: OperatorOption = Path("operator.yaml"),
    *,
    as_json: JsonOption = False,
) -> None:
    """Show the state of studies and whom they wait for."""
    client = _operator(operator)
    found = client.statuses() if study is None else [client.status(study)]
    if as_json:
        typer.echo(json.dumps([asdict(one) for one in found], indent=1))
        return
    console = _console()
    for one in found:
        console.print(_table(one))


def _console() -> Console:
    """Return the terminal. What others wrote is text, even if it looks like markup."""
    return Console(markup=False, emoji=False)


def _operator(path: Path) -> Operator:
    from coordinator.operating import Operator

    return Operator(OperatorConfig.load(path), lambda level, text: typer.echo(f"{level}: {text}", err=True))


def _table(one: StudyStatus) -> Table:
    title = f"{one.name}  {one.state}  round {one.round}/{one.rounds}, attempt {one.attempt}, {one.phase or '-'}"
    table = Table(title=title, caption=one.why or None, title_justify="left", caption_justify="left")
    for column in ("silo", "state", "waited for", "slow", "why"):
        table.add_column(column)
    for member in one.members:
        waited = "yes" if member.silo in one.waiting_for else ""
        state = _member_state(member, bool(waited), datetime.now(UTC))
        table.add_row(member.silo, state, waited, _slow(member), member.why)
    return table


def _slow(member: MemberStatus) -> str:
    """Return what waiting for a silo has cost, if it has cost anything."""
    parts = [f"{member.slow_seconds:.0f} of {member.slow_budget:.0f} s"] if member.slow_seconds >= 1 else []
    parts += [f"{member.lost_attempts} attempts"] if member.lost_attempts else []
    return ", ".join(parts)


def _member_state(member: MemberStatus, waited: bool, now: datetime) -> str:  # noqa: FBT001  # private
    if not member.last_seen:
        return member.state
    heard = datetime.fromtimestamp(member.last_seen, UTC)
    if member.state == "away":
        return f"away since {heard:%Y-%m-%d %H:%M} UTC"
    if waited and now - heard > _SILENT:
        return f"{member.state}, silent since {heard:%Y-%m-%d %H:%M} UTC"
    return member.state


def _figures(found: StudyResults) -> Table:
    signers = ", ".join(one.silo for one in found.publications)
    caption = f"signed by {signers}; the table shows figures on which at least {found.needed} of them agree"
    table = Table(title=found.name, caption=caption, title_justify="left", caption_justify="left")
    for column in ("domain", "metric", "value", "95 % interval", "silos"):
        table.add_column(column)
    patients = {one.figure.domain: one.figure.value for one in found.agreed if one.figure.metric == "patients"}
    for one in found.agreed:
        figure = one.figure
        known = patients.get(figure.domain)
        value = told(figure.metric, figure.value, figure.high, form=".4g", patients=known)
        table.add_row(figure.domain, figure.metric, value, f"{figure.low:.4g} to {figure.high:.4g}", str(one.silos))
    return table


def _plain(value: object) -> str:
    """Return bytes as base64 for JSON, so that signed bytes come out unchanged."""
    if not isinstance(value, bytes):
        msg = f"{type(value).__name__} has no JSON form"
        raise TypeError(msg)
    return base64.b64encode(value).decode()


def main() -> None:
    """Run the command line. An error is one sentence on stderr and exit code 1."""
    run("fedward-coordinator", app, (CoordinatorError, CryptoError, PolicyError, OSError))


if __name__ == "__main__":
    main()
