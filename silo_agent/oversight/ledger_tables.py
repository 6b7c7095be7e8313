"""A ledger as tables for a console: each study by its name and the beginning of its digest.

Guarantees: nothing is computed here. A name comes from the agent's own state, because a ledger holds digests alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from rich.table import Table

from policies.ledger.chain import UNBOUNDED, Entry
from policies.ledger.events import (
    NOT_COVERED,
    STOP_NOT_COVERED,
    Approved,
    Cleared,
    Debit,
    Fault,
    InForce,
    Notice,
    Rebound,
    Recovery,
    Stopped,
)
from policies.ledger.summary import SpentPart, Summary


def called(digest: str, names: Mapping[str, str]) -> str:
    """A study's name, if one is known, and the first twelve digits of its digest."""
    return f"{names[digest]} {digest[:12]}" if digest in names else digest[:12]


def by_entry(entries: Iterable[Entry], names: Mapping[str, str]) -> Table:
    """A line for each entry. `names` are the studies', by digest; one that is not known is its digest alone."""
    table = Table("entry", "study", "round", "attempt", "releases", "epsilon after")
    for entry in entries:
        match entry.event:
            case Debit() as debit:
                costs = debit.costs.items()
                releases = ", ".join(f"{tensor} ({cost.count} x noise {cost.noise:g})" for tensor, cost in costs)
                place = (called(debit.study, names), str(debit.round), str(debit.attempt), releases)
            case Fault(study, number, attempt, tensor):
                place = (called(study, names), str(number), str(attempt), f"{NOT_COVERED} ({tensor})")
            case Approved(study, verdict, certificate):
                place = (called(study, names), "", "", f"{verdict} by a person (certificate {certificate[:12]})")
            case Stopped(_, study):
                place = (called(study, names), "", "", STOP_NOT_COVERED)
            case other:
                place = ("", "", "", _of_no_study(other))
        table.add_row(str(entry.sequence), *place, shown(entry.epsilon))
    return table


def _of_no_study(event: InForce | Recovery | Notice | Cleared | Rebound) -> str:
    match event:
        case InForce(policy, budget):
            return f"policy {policy[:12]} in force, budget {budget:g}"
        case Recovery() as recovery:
            return f"lost entries charged again; {recovery.responsible} answers"
        case Notice(kind, reference):
            return f"{kind}, {reference}"
        case Cleared(responsible):
            return f"faults cleared; {responsible} answers"
        case Rebound() as rebound:
            return f"bound anew, before anything was charged; {rebound.responsible} answers"


def by_part(summary: Summary, names: Mapping[str, str], *, studies: bool) -> Table:
    """A line for each study and its tensors, or for each tensor of all studies."""
    table = Table("study", "tensor", "charges", "releases", "epsilon alone")
    if studies:
        for study in summary.studies:
            table.add_row(called(study.whole.name, names), "all", *_figures(study.whole))
            for part in study.tensors:
                table.add_row("", part.name, *_figures(part))
    else:
        for part in summary.tensors:
            table.add_row("all", part.name, *_figures(part))
    if summary.recovered is not None:
        table.add_row("(lost entries)", "all", *_figures(summary.recovered))
    return table


def _figures(part: SpentPart) -> tuple[str, str, str]:
    return str(part.charges), str(part.releases), shown(part.epsilon)


def shown(epsilon: float) -> str:
    """An epsilon in four decimals, or the word for one without a bound."""
    return f"{epsilon:.4f}" if math.isfinite(epsilon) else UNBOUNDED
