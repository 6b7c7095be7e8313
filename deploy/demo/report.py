"""The report of a demo, and a summary for the terminal. A board's report is made by the same code (`policies.reports`).

What the demo adds is what no hospital has: public test patients, other methods beside FedWard, every hospital's ledger,
bytes and times. The numbers come as `ReportData`; nothing is computed here but means and sizes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from typing import Final

from rich.console import Console
from rich.table import Table

from common.figure_words import TOO_FEW, told
from deploy.demo.report_data import MethodRow, ReportData
from policies.reports import published, study_sections, tripod
from policies.reports.blocks import (
    BarRow,
    Bars,
    Block,
    BoardReport,
    Card,
    Cards,
    Cell,
    Dot,
    DotRow,
    Dots,
    Paragraph,
    Section,
    grid,
)
from policies.reports.guarantee import guarantee, unit_of

_UNITS: Final = ("B", "KiB", "MiB", "GiB")
_SOURCE: Final = (
    "The same question, answered by the hospitals without showing a patient: each counted the scores of the patients it"
    " holds out, added its share of noise, if the study has any, and sealed the counts. Only the sum over all hospitals"
    " was opened."
)
_DISAGREES: Final = (
    "A ledger disagrees with what another accountant finds in the training log. Do not use this budget before it is"
    " explained."
)


def report(result: ReportData) -> BoardReport:
    """Put the report together."""
    study = result.study
    price = guarantee(study, None)
    made_up = ("made-up patients",) if result.synthetic else ()
    sections = [
        Section("In short", (Cards(tuple(_cards(result))),)),
        study_sections.asked(study),
        study_sections.who_took_part(study, ()),
        *_methods(result),
        *(published.sections(study, result.sealed, source=_SOURCE) if result.sealed else ()),
        study_sections.price(price),
        *_budgets(result),
        study_sections.protected(price),
        *_travelled(result),
        *_times(result),
        *_personal(result),
        *_settings(result),
        tripod.section(study, price, result.sealed, version=version("fedward")),
    ]
    facts = (*study_sections.facts(study), *made_up)
    return BoardReport(result.title, study.purpose, study.digest, facts, tuple(sections))


def size(count: int) -> str:
    """A number of bytes for people: three digits and a unit."""
    value, unit = float(count), 0
    while value >= 1000 and unit < len(_UNITS) - 1:  # noqa: PLR2004  # three digits before the point
        value, unit = value / 1024, unit + 1
    return f"{value:.0f} {_UNITS[unit]}" if unit == 0 or value >= 100 else f"{value:.1f} {_UNITS[unit]}"  # noqa: PLR2004


def _cards(result: ReportData) -> Iterator[Card]:
    """The headline numbers."""
    if result.methods:
        ours, others = result.methods[0], result.methods[1:]
        yield Card("Mean AUC over domains", f"{ours.mean:.3f}", " · ".join(f"{m.name} {m.mean:.3f}" for m in others))
        against = " · ".join(f"{m.name} {m.worst:.3f}" for m in others)
        yield Card(f"Worst domain ({result.worst_domain})", f"{ours.worst:.3f}", against)
    if result.noised:
        aside = f"of a budget of {result.budget:g}, delta {result.study.privacy.delta:g}"
        yield Card(f"Epsilon spent per {unit_of(result.study)}", f"{result.spent:.2f}", aside)
    else:
        yield Card("Noise", "none", "every hospital declares these data public")
    if result.rounds:
        aside = f"{len(result.rounds)} rounds in {result.seconds:.0f} s"
        yield Card("Sent by one hospital", size(result.sent), aside)


def _methods(result: ReportData) -> Iterator[Section]:
    """AUC by domain of every method on public test patients. The best means and each worst domain stand out."""
    methods = result.methods
    if not methods:
        return
    best_mean, best_worst = max(m.mean for m in methods), max(m.worst for m in methods)
    rows: list[tuple[str | Cell, ...]] = []
    for number, one in enumerate(methods):
        epsilon = "none" if one.epsilon is None else f"{one.epsilon:.2f}"
        areas = [Cell(f"{area:.3f}", "worst" if area == one.worst else "") for area in one.auc]
        mean = Cell(f"{one.mean:.3f}", "best" if one.mean == best_mean else "")
        worst = Cell(f"{one.worst:.3f}", "best" if one.worst == best_worst else "")
        rows.append((Cell(one.name, "first" if number == 0 else "", one.note), epsilon, *areas, mean, worst))
    heads = ("Method", "Epsilon", *result.domains, "Mean", "Worst")
    drawn = []
    for m, domain in enumerate(result.domains):
        dots = [_dot(one, m, number) for number, one in reversed(list(enumerate(methods)))]
        drawn.append(DotRow(domain, tuple(dots), " · ".join(f"{one.auc[m]:.3f}" for one in methods)))
    lowest = min(min((low for low, _ in one.spread), default=one.worst) for one in methods)
    start = min(0.5, math.floor(lowest * 10.0) / 10.0)
    blocks: list[Block] = [
        Paragraph("AUC per domain on public test patients whom no hospital knows. The worst domain is underlined."),
        Dots("AUC", start, 1.0, tuple(drawn), tuple(one.name for one in methods)),
        grid(heads, rows, numbers=len(heads) - 1),
    ]
    if any(one.spread for one in methods):
        text = "Pale lines: from the lowest to the highest of the hospitals on their own."
        blocks.insert(2, Paragraph(text, "small"))
    yield Section("How well every group is served", tuple(blocks))


def _dot(method: MethodRow, domain: int, series: int) -> Dot:
    low, high = method.spread[domain] if method.spread else (None, None)
    return Dot(method.auc[domain], low, high, series)


def _budgets(result: ReportData) -> Iterator[Section]:
    if not result.noised:
        return
    bars = tuple(BarRow(b.silo, b.spent, f"{b.spent:.2f} of {b.budget:g}", b.budget) for b in result.budgets)
    rows: list[tuple[str | Cell, ...]] = [
        (b.silo, f"{b.spent:.3f}", f"{b.recomputed:.3f}", f"{b.budget:g}", f"{b.left:.3f}") for b in result.budgets
    ]
    agree = Paragraph("Every ledger agrees with what another accountant finds in the training log.", "small")
    if not result.ledgers_agree():
        agree = Paragraph(_DISAGREES, "warning")
    table = grid(("Hospital", "Spent", "Counted again", "Budget", "Left"), rows, numbers=4)
    yield Section("What it cost each hospital's budget", (Bars("epsilon", bars), table, agree))


def _travelled(result: ReportData) -> Iterator[Section]:
    blocks: list[Block] = []
    if result.uploads:
        rows: list[tuple[str | Cell, ...]] = [
            (u.tensor, u.ring, f"{u.values:,}", f"{u.bytes:,}", str(u.times), f"{u.bytes * u.times:,}")
            for u in result.uploads
        ]
        heads = ("Upload", "Sealed by", "Values", "Bytes each", "Times", "Bytes in all")
        blocks.append(grid(heads, rows, numbers=4))
    if result.rounds:
        bars = [
            BarRow(f"round {r.round}", r.sent, f"{size(r.sent)} sent, {size(r.fetched)} fetched") for r in result.rounds
        ]
        blocks.append(Bars("bytes that one hospital sent", tuple(bars)))
    if blocks:
        yield Section("What travelled", tuple(blocks))


def _times(result: ReportData) -> Iterator[Section]:
    if result.phases:
        text = (
            f"{result.seconds:.0f} seconds from the first offer to the last opening; phases of different hospitals"
            " overlap."
        )
        bars = tuple(BarRow(one.name, one.seconds, f"{one.seconds:.1f} s") for one in result.phases)
        yield Section("Where the time went", (Paragraph(text), Bars("seconds", bars)))


def _personal(result: ReportData) -> Iterator[Section]:
    if result.personal:
        text = (
            "Each hospital may fit its own model around the shared one, for its own patients. Mean AUC over all domains"
            " on the public test patients, so a model that fits one hospital's mixture of patients may lose here."
        )
        rows: list[tuple[str | Cell, ...]] = [
            (p.silo, f"{p.shared:.3f}", f"{p.personal:.3f}", f"{p.personal - p.shared:+.3f}") for p in result.personal
        ]
        heads = ("Hospital", "Shared model", "Personal model", "Change")
        yield Section("The personal models that never leave", (Paragraph(text), grid(heads, rows, numbers=3)))


def _settings(result: ReportData) -> Iterator[Section]:
    if result.settings:
        yield Section("Settings", (grid(("", ""), list(result.settings)),))


# --- terminal -------------------------------------------------------------------------------------------------------
def print_terminal(result: ReportData, console: Console | None = None) -> None:
    """Print the summary: AUC per domain, sealed figures, budgets, sizes and times."""
    out = console or Console()
    out.print(f"\n[bold]{result.title}[/bold]  [dim]study {result.study.digest[:16]}[/dim]")
    if result.methods:
        out.print(_auc_table(result))
    if result.sealed:
        out.print(_sealed_table(result))
    if result.noised:
        out.print(_budget_table(result))
    else:
        out.print("No noise was used: every hospital's policy declares these data public.")
    for upload in result.uploads:
        out.print(f"{upload.tensor}: {upload.values:,} values, {size(upload.bytes)} sealed by {upload.ring}")
    out.print(f"one hospital sent {size(result.sent)}; the study took {result.seconds:.0f} s")


def _sealed_table(result: ReportData) -> Table:
    """What the sealed sums say by domain, with 95 % intervals."""
    table = Table(title="From sealed sums over held-out patients, 95 % intervals", title_justify="left")
    by_place = {(one.domain, one.metric): one for one in result.sealed}
    there = {one.metric for one in result.sealed}
    metrics = ["patients", *(name for name in published.NAMES if name in there - {"patients", "false_negatives"})]
    table.add_column("domain")
    for metric in metrics:
        table.add_column(published.NAMES[metric], justify="right")
    for domain in dict.fromkeys(one.domain for one in result.sealed):
        table.add_row(domain, *(_sealed_cell(by_place.get((domain, metric))) for metric in metrics))
    return table


def _sealed_cell(one: published.PublishedFigure | None) -> str:
    """The estimate and its interval, or that too few patients are held out to tell."""
    if one is None or one.value is None:
        return TOO_FEW
    if one.metric == "patients":
        return f"{one.value:.0f}"
    return f"{told(one.metric, one.value, one.high)} ({one.low:.3f} to {one.high:.3f})"


def _budget_table(result: ReportData) -> Table:
    """What every ledger says."""
    title = f"Epsilon at delta {result.study.privacy.delta:g}, per {unit_of(result.study)}"
    table = Table(title=title, title_justify="left")
    for name in ("hospital", "spent", "counted again", "budget", "left"):
        table.add_column(name, justify="left" if name == "hospital" else "right")
    for b in result.budgets:
        table.add_row(b.silo, f"{b.spent:.3f}", f"{b.recomputed:.3f}", f"{b.budget:g}", f"{b.left:.3f}")
    return table


def _auc_table(result: ReportData) -> Table:
    """AUC of every method per domain, mean and worst at the end."""
    table = Table(title="AUC on public test patients", title_justify="left")
    table.add_column("method")
    for name in (*result.domains, "mean", "worst"):
        table.add_column(name, justify="right")
    for number, method in enumerate(result.methods):
        cells: Iterable[str] = (
            f"[underline]{a:.3f}[/underline]" if a == method.worst else f"{a:.3f}" for a in method.auc
        )
        style = "bold green" if number == 0 else None
        table.add_row(method.name, *cells, f"{method.mean:.3f}", f"{method.worst:.3f}", style=style)
    return table
