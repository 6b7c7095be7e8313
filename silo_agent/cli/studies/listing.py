"""`fedward-silo studies`: every study that asked this silo or has begun here, with verdict and reason."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from silo_agent.cli.options import DEFAULT, JSON, TABLE, ConfigOption, FormatOption, print_whole

if TYPE_CHECKING:
    from silo_agent.config import AgentConfig
    from silo_agent.review.asking import AskingStudy
    from silo_agent.storage.offered import Said

_SHORT = 12


def studies(config: ConfigOption = DEFAULT, *, form: FormatOption = TABLE) -> None:
    """List every study that asked this silo or has begun here, with what the silo says of it, and why."""
    from rich.table import Table

    from silo_agent.config import AgentConfig
    from silo_agent.review.asking import asking

    settings = AgentConfig.load(config)
    _warn_of_certificate(settings)
    found = asking(settings)
    if form is JSON:
        typer.echo(json.dumps([_document(one) for one in found], indent=1))
        return
    if not found:
        typer.echo("This silo has begun no study yet.")
        return
    table = Table("study", "digest", "author", "model of round", "state", pad_edge=False)
    for one in found:
        known = one.study
        rounds = str(known.committed) if known.committed >= 0 else "none yet"
        stands = one.stands if one.begun else f"{one.stands}, offered last {one.asked}"
        table.add_row(known.name, known.digest[:_SHORT], _short(one.author), rounds, stands)
    print_whole(table)
    for one in found:
        for label, text in one.said:
            typer.echo(f"{one.study.name} {one.study.digest[:_SHORT]}: {label}: {text}")
    if not all(one.begun for one in found):
        typer.echo("Read one, then approve or decline it: fedward-silo study show DIGEST")
    for one in found:
        for warning in one.warnings:
            typer.echo(f"warning: {one.study.name}: {warning}")


def _document(one: AskingStudy) -> dict[str, object]:
    """A study as JSON has it."""
    about = {"warnings": list(one.warnings), "author": one.author}
    if not one.begun:
        about = {"asked": one.asked, "author": one.author, "verdict": one.stands}
    return asdict(one.study) | about | _reasons(one.said)


def _reasons(said: Said) -> dict[str, object]:
    return {"reasons": [{"reason": label, "text": text} for label, text in said]}


def _short(uri: str) -> str:
    """An author's name, without what all of them begin with."""
    return uri.rpartition("/")[2] or "nobody"


def _warn_of_certificate(settings: AgentConfig) -> None:
    """Say on the standard error if the certificate ends soon. Whether it counts is for `run` and `preflight`."""
    from datetime import UTC, datetime

    from crypto.errors import CertificateError
    from crypto.pki.joining.renewal import WARN_FROM, due
    from crypto.pki.reading import valid

    try:
        begins, ends = valid(settings.certificate.read_bytes())
    except (OSError, CertificateError):
        return
    if due(begins, ends, datetime.now(UTC), WARN_FROM):
        typer.echo(f"warning: this silo's certificate expires on {ends:%Y-%m-%d %H:%M} UTC; see its log", err=True)
