"""`fedward-coordinator study`: create, start, watch and stop studies."""

from __future__ import annotations

import base64
import json
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.table import Table

from common.figure_words import MOVED, told
from coordinator.cli import listing, validating
from coordinator.cli.options import (
    DEFAULT,
    JSON,
    TABLE,
    FormatOption,
    OperatorOption,
    ReasonOption,
    confirm,
    connected,
    console,
    person,
)

if TYPE_CHECKING:
    from protos.messages import StudyResults
    from protos.status import MemberStatus, StudyStatus

study_app = typer.Typer(help="Create, start, watch and stop studies.", no_args_is_help=True)
StudyArgument = Annotated[str, typer.Argument(help="Name of a study, or at least twelve digits of its digest.")]
_SILENT: Final = timedelta(minutes=1)
"""An agent calls every ten seconds; of one that is waited for and has not called for so long, the status says so."""


@study_app.command()
def sign(study: Path, operator: OperatorOption = DEFAULT) -> None:
    """Sign a study as its author, after reading it, in a file beside it. It is over the study's content and purpose.

    The configuration is the author's. The coordinator is not called.
    """
    from common.durable import write_whole
    from coordinator.client.signing import signature_file
    from crypto.authorship import sign_study
    from policies.documents.study import load_study

    text, credential = load_study(study), person(operator)
    target = signature_file(study, credential.identity.name)
    write_whole(target, sign_study(credential, text.digest, text.purpose).text.encode())
    typer.echo(f"{target}: {credential.identity} signed study {text.digest}")


@study_app.command()
def create(study: Path, operator: OperatorOption = DEFAULT) -> None:
    """Hand in a study file and print its digest. An author signs it by that; an operator hands in a signed one."""
    typer.echo(connected(operator).submit(study))


@study_app.command()
def start(study: StudyArgument, operator: OperatorOption = DEFAULT, reason: ReasonOption = "") -> None:
    """Ask the silos to join, and begin the study."""
    connected(operator).start(study, reason)


@study_app.command()
def abort(
    study: StudyArgument,
    reason: Annotated[str, typer.Option(help="Shown to every silo, and in the audit log.")],
    operator: OperatorOption = DEFAULT,
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Stop a study for good. Silos have been charged for what it did."""
    client = connected(operator)
    one = client.status(study)
    confirm(f"Abort {one.name} ({one.study[:12]}, {one.state}, round {one.round}/{one.rounds}) for good?", yes=yes)
    client.abort(one.study, reason)


study_app.command("validate")(validating.validate)


@study_app.command()
def delete(
    study: StudyArgument,
    operator: OperatorOption = DEFAULT,
    reason: ReasonOption = "",
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Forget a study that was never started; no silo has heard of it. One that ran is archived."""
    client = connected(operator)
    one = client.status(study)
    confirm(f"Delete {one.name} ({one.study[:12]}, {one.state})?", yes=yes)
    client.delete(one.study, reason)


@study_app.command()
def archive(study: StudyArgument, operator: OperatorOption = DEFAULT, reason: ReasonOption = "") -> None:
    """Leave a study that is over out of lists. It is kept as it is; `study list --archived` shows it."""
    connected(operator).archive(study, reason)


study_app.command("list")(listing.list_studies)
study_app.command("watch")(listing.watch)


@study_app.command()
def pause(study: StudyArgument, operator: OperatorOption = DEFAULT, reason: ReasonOption = "") -> None:
    """Hand out no more work until the study is resumed. Results that silos still send count; time stands still."""
    connected(operator).pause(study, reason)


@study_app.command()
def resume(study: StudyArgument, operator: OperatorOption = DEFAULT, reason: ReasonOption = "") -> None:
    """Go on with a study that is paused or waits for silos."""
    connected(operator).resume(study, reason)


@study_app.command()
def forgive(study: StudyArgument, silo: str, operator: OperatorOption = DEFAULT, reason: ReasonOption = "") -> None:
    """Ask a silo again that is not asked because attempts have ended at its silence, and wait for it as before."""
    connected(operator).forgive(study, silo, reason)


@study_app.command()
def results(
    study: StudyArgument,
    operator: OperatorOption = DEFAULT,
    *,
    form: FormatOption = TABLE,
) -> None:
    """Show the figures of a finished study on which enough silos agree, and who signed. JSON has the proofs, too."""
    found = connected(operator).results(study)
    if form is JSON:
        typer.echo(json.dumps(asdict(found), default=_plain, indent=1))
        return
    console().print(_figures(found))


@study_app.command()
def status(
    study: Annotated[str | None, typer.Argument(help="Name or digest of a study; all studies if absent.")] = None,
    operator: OperatorOption = DEFAULT,
    *,
    form: FormatOption = TABLE,
) -> None:
    """Show the state of studies and whom they wait for."""
    client = connected(operator)
    found = client.statuses() if study is None else [client.status(study)]
    if form is JSON:
        typer.echo(json.dumps([asdict(one) for one in found], indent=1))
        return
    terminal = console()
    for one in found:
        terminal.print(_table(one))


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
    moved = {
        (one.figure.domain, one.figure.metric.removesuffix(MOVED)): one.figure.value
        for one in found.agreed
        if one.figure.metric.endswith(MOVED)
    }
    beside = ["one hospital may move it by"] if moved else []
    for column in ("domain", "metric", "value", "95 % interval", *beside, "silos"):
        table.add_column(column)
    patients = {one.figure.domain: one.figure.value for one in found.agreed if one.figure.metric == "patients"}
    for one in found.agreed:
        figure = one.figure
        if figure.metric.endswith(MOVED):
            continue
        known = patients.get(figure.domain)
        value = told(figure.metric, figure.value, figure.high, form=".4g", patients=known)
        interval, far = f"{figure.low:.4g} to {figure.high:.4g}", moved.get((figure.domain, figure.metric))
        by = ["-" if far is None else f"{far:.4g}"] if moved else []
        table.add_row(figure.domain, figure.metric, value, interval, *by, str(one.silos))
    return table


def _plain(value: object) -> str:
    """Return bytes as base64 for JSON, so that signed bytes come out unchanged."""
    if not isinstance(value, bytes):
        msg = f"{type(value).__name__} has no JSON form"
        raise TypeError(msg)
    return base64.b64encode(value).decode()
