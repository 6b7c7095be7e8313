"""A ledger as one page for an ethics board: plain words, tables, a plot of what is spent and left.

Guarantees: the page is self-contained (it has no script, font or picture from elsewhere, and forbids them). It can be
read aloud (headings, captions, header cells, a text for the plot), printed, and read without colours. It says nothing
that the ledger does not say. All text that a person wrote is escaped.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Final

from policies.documents.words.factors import times
from policies.ledger.chain import UNBOUNDED, Entry, bound
from policies.ledger.events import (
    NOT_COVERED,
    STOP_NOT_COVERED,
    Approved,
    Cleared,
    Fault,
    InForce,
    Notice,
    Rebound,
    Recovery,
    Stopped,
    kind_of,
)
from policies.ledger.exports import Export
from policies.ledger.summary import SpentPart, Summary

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP, _RIGHT = 720, 300, 60, 40, 16, 16
_STYLE: Final = """
body{font:16px/1.5 system-ui,sans-serif;color:#1a1a1a;background:#fff;max-width:52rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.6rem;margin-bottom:.2rem}h2{font-size:1.2rem;margin-top:2rem}
table{border-collapse:collapse;width:100%;margin:.5rem 0}caption{text-align:left;color:#444;padding-bottom:.3rem}
th,td{border-bottom:1px solid #bbb;padding:.25rem .5rem;text-align:left;vertical-align:top}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}code{font-size:.85em;overflow-wrap:anywhere}
svg{width:100%;height:auto}.big{font-size:1.15rem;border-left:4px solid #1f5fa8;padding-left:.8rem}
@media print{body{margin:0;max-width:none}}
"""
_KINDS: Final = {
    "policy": "a policy was put into force",
    "withdrawal": "patients withdrew",
    "refresh": "the data were refreshed",
    "recovery": "lost entries were charged again",
    "fault": "a computation failed, and noise was sent in its place",
    "cleared": "a person looked into the faults before",
    "rebound": "the ledger was bound anew, before anything was charged",
    "approval": "a person decided about a study",
    "stop": "a person stopped a study",
}

_UNITS: Final = {
    "patient": ("patient", "What is protected is the patient, with all records of that person here."),
    "record": (
        "record",
        "What is protected is the single record; a person behind several records is protected less.",
    ),
    None: (
        "protected unit",
        "The hospital's policy says whether the patient or the single record is protected; this ledger is too old to.",
    ),
}
"""By what the genesis says of the unit: its name, and a sentence about it."""


def statement_page(export: Export, summary: Summary, names: Mapping[str, str] | None = None) -> bytes:
    """Return the page as HTML in UTF-8. `names` are the studies', by digest, as this silo knows them."""
    title = f"Privacy budget of {export.genesis.data_set}"
    body = [
        f"<h1>{escape(title)}</h1>",
        f"<p>Statement of {escape(export.silo)}, made on {escape(export.at)}.</p>",
        f'<p class="big">{escape(_verdict(export))}</p>',
        "<h2>What these figures mean</h2>",
        *(f"<p>{escape(text)}</p>" for text in _meaning(export)),
        "<h2>Spent and left, entry by entry</h2>",
        _plot(export),
        "<h2>By study</h2>",
        _studies(summary, names or {}),
        "<h2>By kind of release</h2>",
        _parts("Each line is what all releases of that kind cost alone, over all studies.", "release", summary.tensors),
        "<h2>What else happened</h2>",
        _others(export.entries),
        "<h2>How to check this statement</h2>",
        *_checking(export),
    ]
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    head = (
        f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style>"
    )
    text = f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head>\n<body><main>\n' + "\n".join(body)
    return (text + "\n</main></body></html>\n").encode()


def _verdict(export: Export) -> str:
    if export.genesis.public:
        return (
            f"These data are declared public, so no budget binds. Spent: epsilon {_shown(export.spent)} at delta"
            f" {export.genesis.delta:g}, in {len(export.entries)} entries."
        )
    return (
        f"Epsilon {_shown(export.spent)} of {export.budget:g} is spent at delta {export.genesis.delta:g};"
        f" {_shown(export.left)} is left. {len(export.entries)} entries."
    )


def _meaning(export: Export) -> Iterable[str]:
    genesis = bound(export.genesis, export.entries)
    unit, protected = _UNITS[genesis.unit]
    noise = (
        "The data are declared public: studies may use them without noise, and where one did, the spent epsilon is"
        f" {UNBOUNDED} and says nothing against anybody."
        if genesis.public
        else "Random noise is added to every value that leaves."
    )
    yield (
        "Before a hospital computes anything from its data for a study, its agent writes into a ledger what that will"
        f" cost in privacy. {noise} Nothing leaves without an entry."
    )
    if not genesis.public:
        yield protected
    if not genesis.public and math.isfinite(export.spent):
        yield (
            f"Epsilon says how much all those values together can tell about any one {unit}. With what is spent now,"
            f" whoever sees all of them can become at most {times(export.spent)} more (or less) sure"
            f" whether some {unit} was used than without them, except with a probability of at most"
            f" {genesis.delta:g} (delta). That holds whatever else is known about the {unit}."
        )
    yield (
        "Epsilons do not add up: studies together cost less than the sum of what each costs alone. What is spent never"
        " comes back: not after a year, not when a study fails, not when people withdraw or records are added."
    )
    yield (
        f"A fixed part of the {unit}s ({genesis.holdout:.0%}), chosen by a public rule, is used for testing only. No"
        f" {unit} is in both parts, so the figure is that of the part that spent more."
    )


def _plot(export: Export) -> str:
    finite = [entry.epsilon for entry in export.entries if math.isfinite(entry.epsilon)]
    budgets = _budgets(export)
    top = max([*finite, *budgets, 1e-9]) * 1.08
    last = max(1, len(export.entries))

    def x(entry: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * entry / last

    def y(epsilon: float) -> float:
        return _HEIGHT - _BOTTOM - (_HEIGHT - _BOTTOM - _TOP) * min(epsilon, top) / top

    spent = [0.0, *(entry.epsilon for entry in export.entries)]
    floor = _HEIGHT - _BOTTOM
    line = _steps([(x(n), y(epsilon)) for n, epsilon in enumerate(spent)])
    area = f"M{_LEFT},{floor} L{line[1:]} L{x(len(spent) - 1):.1f},{floor} Z"
    description = f"The spent epsilon rises from 0 to {_shown(export.spent)} over {len(export.entries)} entries"
    parts = [f'<path d="{area}" fill="#cfe0f3"/>', f'<path d="{line}" fill="none" stroke="#1f5fa8" stroke-width="2"/>']
    if budgets:
        limit = _steps([(x(n), y(budget)) for n, budget in enumerate(budgets)])
        parts.append(f'<path d="{limit}" fill="none" stroke="#a33" stroke-width="2" stroke-dasharray="7 4"/>')
        parts.append(f'<text x="{_LEFT + 6}" y="{y(budgets[0]) - 5:.1f}" fill="#a33">budget</text>')
        description += f"; the budget is {export.budget:g}, so {_shown(export.left)} is left"
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        value = top / 1.08 * share
        parts.append(
            f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}" stroke="#ddd"/>'
            f'<text x="{_LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{value:.2f}</text>'
        )
    parts.append(f'<text x="{_LEFT}" y="{_HEIGHT - 12}">entry 0</text>')
    parts.append(f'<text x="{_WIDTH - _RIGHT}" y="{_HEIGHT - 12}" text-anchor="end">entry {len(export.entries)}</text>')
    return (
        f'<figure><svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-labelledby="plot-title plot-text"'
        ' font-size="13" font-family="system-ui,sans-serif"><title id="plot-title">Epsilon spent and budget</title>'
        f'<desc id="plot-text">{escape(description)}.</desc>{"".join(parts)}</svg>'
        f"<figcaption>{escape(description)}. Filled: spent. Dashed: the budget. Between them: left.</figcaption>"
        "</figure>"
    )


def _budgets(export: Export) -> list[float]:
    """Return the budget after each entry, from the genesis on; empty for public data."""
    if export.genesis.public:
        return []
    stated = [entry.event.budget for entry in export.entries if isinstance(entry.event, InForce)]
    now = stated[0] if stated else export.budget
    budgets = [now]
    for entry in export.entries:
        now = entry.event.budget if isinstance(entry.event, InForce) else now
        budgets.append(now)
    return budgets


def _steps(points: Sequence[tuple[float, float]]) -> str:
    first, *rest = points
    path, height = [f"M{first[0]:.1f},{first[1]:.1f}"], first[1]
    for across, up in rest:
        path.append(f"L{across:.1f},{height:.1f} L{across:.1f},{up:.1f}")
        height = up
    return " ".join(path)


def _studies(summary: Summary, names: Mapping[str, str]) -> str:
    rows = []
    for study in summary.studies:
        digest = f"<code>{escape(study.whole.name)}</code>"
        named = f"{escape(names[study.whole.name])} {digest}" if study.whole.name in names else digest
        rows.append((named, "all", *_figures(study.whole)))
        rows += [("", escape(part.name), *_figures(part)) for part in study.tensors]
    if summary.recovered is not None:
        rows.append(("lost entries, charged again", "all", *_figures(summary.recovered)))
    caption = (
        "A study is named as this silo knows it, and by the SHA-256 of its document, which alone stands in the ledger."
        " Each epsilon is what these releases cost alone."
    )
    return _table(caption, ("study", "release", "charges", "releases", "epsilon alone"), rows, numbers=3)


def _parts(caption: str, name: str, parts: Sequence[SpentPart]) -> str:
    rows = [(escape(part.name), *_figures(part)) for part in parts]
    return _table(caption, (name, "charges", "releases", "epsilon alone"), rows, numbers=3)


def _others(entries: Sequence[Entry]) -> str:
    rows = []
    for entry in entries:
        match entry.event:
            case InForce(policy, budget):
                more = f"<code>{escape(policy)}</code>, budget {budget:g}"
            case Notice(_, reference):
                more = f"reference {escape(reference)}"
            case Fault(study, number, attempt, tensor):
                more = f"{escape(NOT_COVERED)}; {escape(tensor)} of study <code>{escape(study)}</code>,"
                more += f" round {number}, attempt {attempt}"
            case Cleared(responsible):
                more = f"{escape(responsible)} answers for it"
            case Rebound() as rebound:
                more = (
                    f"told by {escape(', '.join(rebound.identified_by))}; {escape(rebound.responsible)} answers for it"
                )
            case Approved(study, verdict, certificate):
                more = f"{escape(verdict)}: study <code>{escape(study)}</code>, by the certificate"
                more += f" <code>{escape(certificate)}</code>"
            case Stopped(name, study):
                more = f"{escape(STOP_NOT_COVERED)}; study {escape(name)} <code>{escape(study)}</code>"
            case Recovery():
                covers = ", ".join(str(head.sequence) for head in entry.event.covers) or "of unknown number"
                more = f"up to entry {covers}; {escape(entry.event.responsible)} answers for it"
            case _:
                continue
        rows.append((str(entry.sequence), escape(entry.at), _KINDS[kind_of(entry.event)], more))
    return _table("Entries that are no debits.", ("entry", "when", "what", "more"), rows, numbers=0)


def _checking(export: Export) -> Iterable[str]:
    yield (
        f"<p>The ledger is a chain: every entry holds the SHA-256 of the one before it. This statement ends at entry"
        f" {export.head.sequence} with the hash <code>{export.head.hash}</code>.</p>"
    )
    signed = ", ".join(f"{item.signer} up to entry {item.checkpoint.head.sequence}" for item in export.cosigned)
    yield (
        f"<p>Others signed how far the ledger had come, so that an older copy would show: {escape(signed)}.</p>"
        if signed
        else "<p>Nobody else has signed how far the ledger had come.</p>"
    )
    yield (
        "<p>A signature by the silo's certificate lies beside this file (<code>.sig</code>). The JSON export of the"
        " same ledger has every entry in full; with the consortium's public certificate anybody can recompute its"
        " hashes and epsilons, and check who signed recoveries and cosigned:"
        " <code>fedward-silo ledger verify --export ledger.json --authority authority.pem</code>.</p>"
    )


def _table(caption: str, heads: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: int) -> str:
    """Return a table whose last `numbers` columns are numbers. Cells are HTML."""
    first = len(heads) - numbers
    head = "".join(
        f'<th scope="col"{" class=n" if place >= first else ""}>{escape(text)}</th>' for place, text in enumerate(heads)
    )
    lines = [
        "<tr>" + "".join(f"<td{' class=n' if p >= first else ''}>{cell}</td>" for p, cell in enumerate(row)) + "</tr>"
        for row in rows
    ]
    body = "".join(lines) or f'<tr><td colspan="{len(heads)}">none</td></tr>'
    return f"<table><caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _figures(part: SpentPart) -> tuple[str, str, str]:
    return str(part.charges), str(part.releases), _shown(part.epsilon)


def _shown(epsilon: float) -> str:
    return f"{epsilon:.4f}" if math.isfinite(epsilon) else UNBOUNDED
