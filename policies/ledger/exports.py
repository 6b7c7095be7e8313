"""Exports of a ledger: as JSON, which is complete and can be checked, and as CSV, which opens in a spreadsheet.

Guarantees: the JSON has the chain's rows as they are stored. So `read_export` recomputes every hash, and every epsilon
with the accountant, and refuses an epsilon that is stated below its recomputed price. The figures before the chain
(head, spent, left) must follow from it; so must the budget, if the chain says which policy is in force. Every cosigned
head must be in this chain, or charged by one of its recoveries. Signatures show whose ledger it is and who signed
recoveries and cosignatures; silo_agent/oversight/audit.py checks them.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from policies.accounting import accountant, totals
from policies.errors import CostError, ExportError, LedgerError
from policies.ledger.chain import UNBOUNDED, Entry, Genesis, check_chain, genesis_row
from policies.ledger.cosign import SILO, Cosignature, checkpoint, require_head
from policies.ledger.events import (
    NOT_COVERED,
    STOP_NOT_COVERED,
    Approved,
    Cleared,
    Debit,
    EntryRef,
    Fault,
    InForce,
    Notice,
    Rebound,
    Recovery,
    Stopped,
    costs_of,
    kind_of,
)
from policies.plan.cost import Cost, finite

FORMAT: Final = "fedward ledger export"
VERSION: Final = 1
MAX_BYTES: Final = 1 << 28
_COLUMNS: Final = (
    "entry",
    "kind",
    "at",
    "study",
    "study_name",
    "policy",
    "round",
    "attempt",
    "tensor",
    "cohort",
    "sampling_rate",
    "noise",
    "count",
    "budget",
    "remark",
    "epsilon_after",
    "previous",
    "hash",
)


@dataclass(frozen=True, slots=True)
class Export:
    """A whole ledger, and the silo that exported it."""

    silo: str
    """The silo as `fedward://silo/name`."""
    at: str
    """When it was exported, ISO 8601 in UTC."""
    budget: float
    """The budget.epsilon of the policy in force (`budget_in_force`). If there is none yet, the policy file's."""
    genesis: Genesis
    entries: tuple[Entry, ...]
    cosigned: tuple[Cosignature, ...] = ()
    """The latest cosignature of each signer. Others check the signatures."""

    @property
    def spent(self) -> float:
        """Epsilon spent with the newest entry."""
        return self.entries[-1].epsilon if self.entries else 0.0

    @property
    def left(self) -> float:
        """Epsilon between what is spent and the budget; infinite if the data are public and no budget binds."""
        return math.inf if self.genesis.public else max(0.0, self.budget - self.spent)

    @property
    def head(self) -> EntryRef:
        """The newest entry's place and hash."""
        return self.entries[-1].head if self.entries else EntryRef(0, genesis_row(self.genesis)[2])


def budget_in_force(entries: Iterable[Entry]) -> float | None:
    """Return the budget of the policy that was put into force last; None if there was none."""
    budgets = [entry.event.budget for entry in entries if isinstance(entry.event, InForce)]
    return budgets[-1] if budgets else None


def to_json(export: Export) -> bytes:
    """Return the complete ledger as JSON, for programs."""
    rows = [genesis_row(export.genesis), *(entry.row for entry in export.entries)]
    names = ("sequence", "previous", "hash", "body")
    document = {
        **_summary(export),
        "countersigned": [item.content for item in export.cosigned],
        "chain": [dict(zip(names, row, strict=True)) for row in rows],
    }
    return (json.dumps(document, indent=1, allow_nan=False) + "\n").encode()


def read_export(content: bytes) -> Export:
    """Read a JSON export and check everything that needs no keys: chain, figures, prices, cosigned heads.

    Raises `ExportError` if the file is no export or its figures do not follow from its chain, `LedgerTamperedError`
    that names the first invalid entry, and what `require_cosigned` raises.
    """
    try:
        document: dict[str, Any] = json.loads(content) if len(content) <= MAX_BYTES else {}
        if (document["format"], document["version"]) != (FORMAT, VERSION):
            raise ValueError  # noqa: TRY301 - everything that is no export leaves by the same except clause
        if not all(isinstance(document[name], str) for name in ("silo", "at")):
            raise ValueError  # noqa: TRY301 - as above
        rows = [(row["sequence"], row["previous"], row["hash"], row["body"]) for row in document["chain"]]
        genesis, entries = check_chain(rows)
        cosigned = tuple(Cosignature.read(item) for item in document["countersigned"])
        export = Export(document["silo"], document["at"], document["budget"], genesis, entries, cosigned)
        stated = {name: value for name, value in document.items() if name not in ("chain", "countersigned")}
        follows = stated == _summary(export)
    except LedgerError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        msg = "the file is no ledger export in JSON; ask the silo for `fedward-silo ledger export --format json`"
        raise ExportError(msg) from None
    if not follows:
        msg = "the export's figures (head, spent, left) do not follow from its entries; ask the silo for a new export"
        raise ExportError(msg)
    _check_budget(export)
    _check_prices(export)
    require_cosigned(export)
    return export


def require_cosigned(export: Export) -> None:
    """Return if every cosigned head is in this chain with the same figures, or was lost and is charged for.

    The chain does not say what was spent with a lost head, but all of it must be charged. Raises
    `LedgerRolledBackError` if the chain lacks a head, because it is an older copy or has another history. Raises
    `ExportError` for a cosignature of another ledger or with other figures.
    """
    silo, genesis = export.silo.removeprefix(SILO), export.genesis
    charged = [cost for entry in export.entries for cost in costs_of(entry.event)]
    for item in export.cosigned:
        said = item.checkpoint
        if (said.silo, said.data_set) != (silo, genesis.data_set):
            msg = (
                f"{item.signer} cosigned the ledger of {said.data_set} at {said.silo}, not this one; ask the silo"
                " for a new export"
            )
            raise ExportError(msg)
        require_head(genesis, export.entries, said.head)
        held = checkpoint(silo, genesis, export.entries[: said.head.sequence], said.at)
        if held.head != said.head:
            if totals.beyond(said.totals, charged) or said.epsilon > export.spent:
                msg = (
                    f"the ledger lost entry {said.head.sequence}, which {item.signer} cosigned, and its recovery"
                    " charges less than was spent with that entry; ask the silo how it was recovered"
                )
                raise ExportError(msg)
        elif (held.epsilon, held.totals, held.covers) != (said.epsilon, said.totals, said.covers):
            msg = (
                f"the checkpoint of entry {said.head.sequence} that {item.signer} cosigned has other figures than the"
                " chain; ask the silo and the cosigner how the entry was accounted for"
            )
            raise ExportError(msg)


def recomputed(export: Export) -> float:
    """Return the epsilon of all entries together, by the accountant."""
    return accountant.epsilon([cost for e in export.entries for cost in costs_of(e.event)], export.genesis.delta)


def to_csv(export: Export, names: Mapping[str, str] | None = None) -> bytes:
    """Return a CSV table with one line for each release, and one for each entry that releases nothing.

    `names` are those of studies by digest, as far as the silo knows them. The ledger itself has digests alone.
    """
    out = io.StringIO()
    table = csv.DictWriter(out, _COLUMNS, restval="", lineterminator="\n")
    table.writeheader()
    for line in (line for entry in export.entries for line in _lines(entry)):
        table.writerow({**line, "study_name": _cell((names or {}).get(str(line.get("study", "")), ""))})
    return out.getvalue().encode()


def _summary(export: Export) -> dict[str, object]:
    genesis = export.genesis
    return {
        "format": FORMAT,
        "version": VERSION,
        "silo": export.silo,
        "at": export.at,
        "data_set": genesis.data_set,
        "holdout": genesis.holdout,
        "delta": genesis.delta,
        "public": genesis.public,
        "budget": export.budget,
        "spent": finite_or_word(export.spent),
        "left": finite_or_word(export.left),
        "head": [export.head.sequence, export.head.hash],
    }


def _check_budget(export: Export) -> None:
    """Raise `ExportError` if the budget is no limit, or is not the budget in force."""
    if not finite(export.budget) or export.budget <= 0:
        msg = "the export's budget is not a finite number above 0; ask the silo for a new export"
        raise ExportError(msg)
    bound = budget_in_force(export.entries)
    if bound not in (None, export.budget):
        msg = (
            f"the export's budget is {export.budget:g}, but the policy that its entries put into force last has"
            f" {bound:g}; ask the silo for a new export"
        )
        raise ExportError(msg)


def _check_prices(export: Export) -> None:
    """Raise `ExportError` for the first entry that states less than it costs.

    An entry keeps the figure of the version that wrote it, and older versions added no allowance for rounding.
    """
    costs: list[Cost] = []
    for entry in export.entries:
        charged = costs_of(entry.event)
        if not charged:
            continue
        costs += charged
        try:
            price = accountant.least_stated(costs, export.genesis.delta)
        except CostError as error:
            msg = f"the export's prices cannot be recomputed: {error}"
            raise ExportError(msg) from None
        if not entry.epsilon >= price * (1 - accountant.ROUNDING):
            msg = (
                f"entry {entry.sequence} states epsilon {entry.epsilon:.6g}, but what was charged up to it costs"
                f" {price:.6g}; ask the silo how it was accounted for"
            )
            raise ExportError(msg)


def _lines(entry: Entry) -> list[dict[str, object]]:  # noqa: PLR0911  # one for each kind
    event = entry.event
    common: dict[str, object] = {
        "entry": entry.sequence,
        "kind": kind_of(event),
        "at": entry.at,
        "epsilon_after": finite_or_word(entry.epsilon),
        "previous": entry.previous,
        "hash": entry.hash,
    }
    match event:
        case Debit():
            place = {"study": event.study, "policy": event.policy, "round": event.round, "attempt": event.attempt}
            return [common | place | {"tensor": tensor} | _cost(cost) for tensor, cost in event.costs.items()]
        case Recovery():
            remark = f"{event.signer}, {event.responsible}; covers " + (
                ", ".join(f"{head.sequence} {head.hash}" for head in event.covers) or "unknown entries"
            )
            line = common | {"remark": _cell(remark)}
            return [line | {"tensor": "lost"} | _cost(cost) for cost in event.costs] or [line]
        case InForce():
            return [common | {"policy": event.policy, "budget": event.budget}]
        case Fault():
            place = {"study": event.study, "round": event.round, "attempt": event.attempt, "tensor": event.tensor}
            return [common | place | {"remark": NOT_COVERED}]
        case Cleared() | Rebound():
            return [common | {"remark": _cell(event.responsible)}]
        case Approved():
            remark = f"{event.verdict}, by the certificate {event.certificate}"
            return [common | {"study": event.study, "remark": remark}]
        case Stopped():
            return [common | {"study": event.study, "remark": STOP_NOT_COVERED}]
        case Notice():
            return [common | {"remark": _cell(event.reference)}]


def _cost(cost: Cost) -> dict[str, object]:
    return {"cohort": cost.cohort, "sampling_rate": cost.sampling_rate, "noise": cost.noise, "count": cost.count}


def _cell(text: str) -> str:
    """Return the text in a form that no spreadsheet takes for a formula."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text


def finite_or_word(epsilon: float) -> float | str:
    """Return an epsilon in a form that JSON can express."""
    return epsilon if math.isfinite(epsilon) else UNBOUNDED
