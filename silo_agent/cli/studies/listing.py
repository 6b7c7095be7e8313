"""`fedward-silo studies`: every study that asked this silo or has begun here, with verdict and reason."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from silo_agent.cli.options import (
    DEFAULT,
    JSON,
    TABLE,
    ConfigOption,
    FormatOption,
    OfferedStudy,
    known_studies,
    print_whole,
)

if TYPE_CHECKING:
    from silo_agent.config import AgentConfig
    from silo_agent.storage.approvals import Approval
    from silo_agent.storage.folders import StateFolder
    from silo_agent.storage.offered import Offered, Said

_SHORT = 12


def studies(config: ConfigOption = DEFAULT, *, form: FormatOption = TABLE) -> None:
    """List every study that asked this silo or has begun here, with what the silo says of it, and why."""
    from rich.table import Table

    from silo_agent.config import AgentConfig
    from silo_agent.storage.approvals import approvals
    from silo_agent.storage.folders import StateFolder
    from silo_agent.storage.model_warnings import kept
    from silo_agent.storage.offered import author_uri, offered, verdict_of

    settings = AgentConfig.load(config)
    folder = StateFolder(settings.state)
    _warn_of_certificate(settings)
    known = _begun(folder)
    begun = {one.digest for one in known}
    asking = [one for one in offered(folder) if one.digest not in begun]
    warned = {one.digest: kept(folder.study(one.digest).warnings) for one in known}
    said = {one.digest: verdict_of(folder, one.digest) or () for one in known if not one.why}
    said |= {one.digest: one.said or () for one in asking}
    decided = approvals(folder).bound
    if form is JSON:
        began = [
            asdict(one)
            | {"warnings": [each.text for each in warned[one.digest]], "author": author_uri(folder, one.digest)}
            | _reasons(said.get(one.digest, ()))
            for one in known
        ]
        waits = [
            asdict(OfferedStudy(one.name, one.digest, -1, ""))
            | {"asked": one.asked, "author": one.author, "verdict": _verdict(one, decided.get(one.digest))}
            | _reasons(said[one.digest])
            for one in asking
        ]
        typer.echo(json.dumps([*began, *waits], indent=1))
        return
    if not known and not asking:
        typer.echo("This silo has begun no study yet.")
        return
    table = Table("study", "digest", "author", "model of round", "state", pad_edge=False)
    for one in known:
        rounds = str(one.committed) if one.committed >= 0 else "none yet"
        author = _short(author_uri(folder, one.digest))
        table.add_row(one.name, one.digest[:_SHORT], author, rounds, _stands(one, said.get(one.digest, ())))
    for ask in asking:
        stands = f"{_verdict(ask, decided.get(ask.digest))}, offered last {ask.asked}"
        table.add_row(ask.name, ask.digest[:_SHORT], _short(ask.author), "none yet", stands)
    print_whole(table)
    names = [(one.name, one.digest) for one in known] + [(one.name, one.digest) for one in asking]
    for name, digest in names:
        for label, text in said.get(digest, ()):
            typer.echo(f"{name} {digest[:_SHORT]}: {label}: {text}")
    if asking:
        typer.echo("Read one, then approve or decline it: fedward-silo study show DIGEST")
    for one in known:
        for warning in warned[one.digest]:
            typer.echo(f"warning: {one.name}: {warning.text}")


def _begun(folder: StateFolder) -> list[OfferedStudy]:
    from silo_agent.storage.opening import read_state

    if not folder.database.is_file():
        return []
    state = read_state(folder.path)
    try:
        return known_studies(state)
    finally:
        state.close()


def _stands(one: OfferedStudy, said: Said) -> str:
    """How a study stands that has begun here."""
    if one.why:
        return f"over: {one.why}"
    return f"refused: {_labels(said)}" if said else "runs"


def _verdict(one: Offered, decided: Approval | None) -> str:
    """What becomes of a study that asked."""
    from silo_agent.oversight.asking_figures import verdict

    found = verdict(one, decided)
    if found == "declined":
        return "declined" if decided is not None and decided.declined else "its approval was taken back"
    if found == "waiting":
        return "waits for your decision"
    if found in ("refused", "no_data"):
        return f"refused: {_labels(one.said or ())}"
    return "not decided yet" if decided is None else f"may use {decided.data}"


def _labels(said: Iterable[tuple[str, str]]) -> str:
    return ", ".join(dict.fromkeys(label for label, _ in said))


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
