"""`fedward-coordinator study validate`: is a study whole, and would its silos take part? Nothing is created."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.table import Table

from coordinator.cli.options import DEFAULT, JSON, TABLE, FormatOption, OperatorOption, connected, console
from protos.messages import ALLOWED, PERSON, REFUSED, SILENT

ATTENTION: Final = 3
"""Exit code if a silo refuses."""
_PACE: Final = 1.0
_MEANS: Final = {
    ALLOWED: "would take part",
    PERSON: "a person of the hospital has to decide",
    REFUSED: "its policy refuses the study",
    SILENT: "does not answer polls, or no more of yours today",
    "": "has not answered: its agent may not run",
}


def validate(
    study: Path,
    operator: OperatorOption = DEFAULT,
    *,
    local: Annotated[bool, typer.Option("--local", help="Look at the file alone, and ask no silo.")] = False,
    seconds: Annotated[float, typer.Option(min=0, max=600, help="How long to wait for silos.")] = 45.0,
    form: FormatOption = TABLE,
) -> None:
    """Check a study, and ask its silos whether they would take part, before it has a name at the coordinator.

    A silo answers in a word, and not with its limits. What is spent there does not enter the answer, so a study that is
    allowed may still be refused because a budget does not suffice. Exit code 3 if a silo refuses.
    """
    from coordinator.client.signing import signed_by
    from policies.documents.study import load_study, require_bounds

    text = load_study(study)
    require_bounds(text)
    if local:
        typer.echo(
            json.dumps({"study": text.digest, "answers": {}}) if form is JSON else f"{text.name} {text.digest} is whole"
        )
        return
    client = connected(operator)
    signed = signed_by(client.credential, study, text)
    answers = asked(lambda: client.poll(text.canonical(), signed), seconds, time.monotonic, time.sleep)
    if form is JSON:
        typer.echo(json.dumps({"study": text.digest, "answers": answers}, indent=1))
    else:
        table = Table("silo", "answer", "", title=f"{text.name} {text.digest[:12]} is whole", title_justify="left")
        for silo, verdict in answers.items():
            table.add_row(silo, verdict or "-", _MEANS.get(verdict, "answers in a word of another version"))
        console().print(table)
    if REFUSED in answers.values():
        raise typer.Exit(ATTENTION)


def asked(
    ask: Callable[[], dict[str, str]], seconds: float, clock: Callable[[], float], wait: Callable[[float], object]
) -> dict[str, str]:
    """Ask until all silos have answered, or the seconds are over. Says on a terminal how many have."""
    end = clock() + seconds
    while True:
        answers = ask()
        missing = [silo for silo, verdict in answers.items() if not verdict]
        if not missing or clock() >= end:
            return answers
        if sys.stderr.isatty():
            typer.echo(f"\r{len(answers) - len(missing)} of {len(answers)} silos have answered", err=True, nl=False)
        wait(_PACE)
