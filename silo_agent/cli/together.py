"""`fedward-silo ledger together`: computes from several exports what a patient of several hospitals may have lost.

Anybody who has the exports, their signatures and the authority's public certificate can run it. Each export is audited
as by `ledger verify --export`; an invalid export ends the command. `policies.accounting.overlap` computes the bound.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from crypto.errors import CryptoError
from policies.accounting.overlap import Several, bound
from policies.errors import ExportError, LedgerError
from policies.ledger.chain import UNBOUNDED
from policies.ledger.events import costs_of
from policies.ledger.exports import Export, finite_or_word
from silo_agent.cli.options import JSON, TABLE, FormatOption, print_whole, waiting


def ledger_together(
    exports: Annotated[
        list[Path], typer.Argument(metavar="EXPORT...", help="JSON exports, with their signatures beside them.")
    ],
    authority: Annotated[Path, typer.Option(help="The consortium's authority.pem.")],
    *,
    lists: Annotated[
        Path | None,
        typer.Option(help="Revocation lists, archived ones too; by default crls.pem beside the authority's file."),
    ] = None,
    form: FormatOption = TABLE,
) -> None:
    """Bound the privacy loss of a patient of several of these hospitals."""
    with waiting("checking the exports") as tell:
        found = [_audited(path, authority, lists, tell) for path in exports]
    silos = [export.silo for export in found]
    if len(set(silos)) < len(silos):
        msg = f"two exports are of {max(silos, key=silos.count)}; give one export of each hospital"
        raise ExportError(msg)
    # At a smaller delta every epsilon is larger, so the smallest delta is right for all.
    delta = min(export.genesis.delta for export in found)
    with waiting("adding the losses up"):
        bounds = bound(
            [[cost for entry in export.entries for cost in costs_of(entry.event)] for export in found], delta
        )
    if form is JSON:
        typer.echo(json.dumps(_document(found, bounds), indent=1, allow_nan=False))
    else:
        _print(found, bounds)


def _audited(path: Path, authority: Path, lists: Path | None, tell: Callable[[str], object]) -> Export:
    from silo_agent.oversight.audit import audit
    from silo_agent.oversight.signing import SUFFIX, read_signed, stamp_beside, vouched
    from silo_agent.oversight.stamping import time_of

    tell(f"checking {path.name}")
    content, detached, trust = read_signed(path, authority, lists=lists)
    signature = path.with_name(path.name + SUFFIX)
    stamp = stamp_beside(signature)
    try:
        known = time_of(stamp.read_bytes(), signature.read_bytes(), trust) if stamp.exists() else None
        found = audit(content, detached, trust, known=known)
    except (LedgerError, CryptoError) as error:
        msg = f"{path.name}: {error}"
        raise ExportError(msg) from None
    if found.signer.expired is not None or found.signer.revoked is not None:
        typer.echo(f"{path.name}: signed by {vouched(found.signer, detached.at)}", err=True)
    return found.export


def _print(found: list[Export], bounds: Several) -> None:
    title = f"At delta {bounds.delta:g}"
    table = Table("a patient of", "at most epsilon", "exported", title=title, title_justify="left")
    for export, alone in zip(found, bounds.alone, strict=True):
        table.add_row(export.silo, _shown(alone), export.at)
    table.add_row("any two of them", _shown(bounds.two))
    if len(found) > 2:  # noqa: PLR2004 - of two hospitals, two are all
        table.add_row(f"all {len(found)} of them", _shown(bounds.all))
    print_whole(table)
    typer.echo("Hospitals do not compare their patients. A patient of several hospitals can look up this figure.")


def _document(found: list[Export], bounds: Several) -> dict[str, object]:
    hospitals = [
        {"silo": export.silo, "at": export.at, "head": export.head.sequence, "epsilon": finite_or_word(alone)}
        for export, alone in zip(found, bounds.alone, strict=True)
    ]
    return {
        "delta": bounds.delta,
        "hospitals": hospitals,
        "two": finite_or_word(bounds.two),
        "all": finite_or_word(bounds.all),
    }


def _shown(epsilon: float) -> str:
    word = finite_or_word(epsilon)
    return UNBOUNDED if isinstance(word, str) else f"{word:.4f}"
