"""`fedward-coordinator study list` and `study watch`: many studies on one screen, and one study as it goes on."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.table import Table

from coordinator.cli.options import DEFAULT, JSON, TABLE, FormatOption, OperatorOption, connected, console
from coordinator.core.filtering import StudyFilter
from coordinator.core.outlook import ends, per_cent

if TYPE_CHECKING:
    from protos.status import StudyStatus

_SHORT: Final = 12
_SCREEN: Final = 20
"""Studies on a page: a screen of 24 lines holds them with head and foot."""
_SHOWN: Final = 3
"""Silos that are named in a line."""
OVER: Final = frozenset({"finished", "ended", "aborted"})


def list_studies(
    operator: OperatorOption = DEFAULT,
    *,
    state: Annotated[
        list[str] | None,
        typer.Option(help="created, running, paused, waiting, finished, ended or aborted; once for each."),
    ] = None,
    name: Annotated[str, typer.Option(help="A pattern, with * for any text.")] = "",
    owner: Annotated[str, typer.Option(help="Who created them, such as fedward://author/ann.")] = "",
    archived: Annotated[bool, typer.Option("--archived", help="Archived ones, too.")] = False,
    most: Annotated[int, typer.Option(min=1, max=1000, help="Studies on a page.")] = _SCREEN,
    after: Annotated[str, typer.Option(metavar="DIGEST", help="Of the last study on the page before.")] = "",
    form: FormatOption = TABLE,
) -> None:
    """List studies in the order of their creation, one line for each, in pages."""
    wanted = StudyFilter(frozenset(state or ()), name, owner, archived, most, after)
    found, more = connected(operator).page(wanted)
    if form is JSON:
        typer.echo(json.dumps({"studies": [asdict(one) for one in found], "more": more}, indent=1))
        return
    if not found:
        typer.echo("No study fits.")
        return
    table = Table(box=None, pad_edge=False)
    for column in ("study", "digest", "owner", "state", "round", "waits for"):
        table.add_column(column, no_wrap=True)
    for one in found:
        called = one.name if one.revision <= 1 else f"{one.name} (revision {one.revision})"
        table.add_row(
            called, one.study[:_SHORT], one.owner.rpartition("/")[2], one.state, f"{one.round}/{one.rounds}", waits(one)
        )
    console().print(table)
    if more:
        typer.echo(f"{more} more: --after {found[-1].study}")


def waits(one: StudyStatus) -> str:
    """Whom a study waits for, in few words."""
    names = one.waiting_for
    rest = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + rest


def watch(
    study: Annotated[str, typer.Argument(help="Name of a study, or at least twelve digits of its digest.")],
    operator: OperatorOption = DEFAULT,
    *,
    seconds: Annotated[float, typer.Option(min=0.2, max=3600, help="Between two looks.")] = 1.0,
    form: FormatOption = TABLE,
) -> None:
    """Show a study as it goes on, until it is over: a line on a terminal, else a line for each change."""
    client = connected(operator)
    digest = client.status(study).study
    follow(
        lambda: client.status(digest),
        seconds,
        json_lines=form is JSON,
        live=sys.stdout.isatty() and form is TABLE,
        wait=time.sleep,
    )


def follow(
    look: Callable[[], StudyStatus], seconds: float, *, json_lines: bool, live: bool, wait: Callable[[float], object]
) -> None:
    """Print how a study stands until it is over."""
    from rich.live import Live

    terminal = console()
    with Live(console=terminal, transient=False, auto_refresh=False) as screen:
        last = ""
        while True:
            one = look()
            text = json.dumps(facts(one)) if json_lines else line(one, datetime.now(UTC))
            # What changes with the clock alone is no news where lines are kept.
            news = json.dumps({name: value for name, value in facts(one).items() if name != "ends"})
            if live:
                screen.update(text, refresh=True)
            elif news != last:
                typer.echo(text)
            last = news
            if one.state in OVER:
                return
            wait(seconds)


def facts(one: StudyStatus) -> dict[str, object]:
    """How a study stands, in stable names."""
    return {
        "study": one.study,
        "name": one.name,
        "state": one.state,
        "why": one.why,
        "round": one.round,
        "rounds": one.rounds,
        "attempt": one.attempt,
        "phase": one.phase,
        "tensor": one.tensor,
        "per_cent": per_cent(one),
        "waiting_for": list(one.waiting_for),
        "until": one.until,
        "bytes": sum(upload.bytes for upload in one.uploads),
        "ends": ends(one),
    }


def line(one: StudyStatus, now: datetime) -> str:
    """How a study stands, in a line."""
    parts = [f"{one.name} {one.state}, {per_cent(one)} %, round {one.round}/{one.rounds}, attempt {one.attempt}"]
    if one.phase and one.state not in OVER:
        parts.append(f"{one.phase} {one.tensor}" if one.tensor else one.phase)
    if one.waiting_for:
        parts.append(f"waits for {waits(one)}{f' until {_clock(one.until, now)}' if one.until else ''}")
    parts.append(f"{sum(upload.bytes for upload in one.uploads) / 1e6:.1f} MB received")
    end = ends(one)
    if end is not None:
        parts.append(f"ends about {_clock(end, now)}")
    if one.why:
        parts.append(one.why)
    return "; ".join(parts)


def _clock(at: float, now: datetime) -> str:
    when = datetime.fromtimestamp(at, UTC)
    return f"{when:%H:%M:%S} UTC" if when.date() == now.date() else f"{when:%Y-%m-%d %H:%M} UTC"
