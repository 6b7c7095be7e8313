"""The report of a study: one HTML file, and a summary for the terminal.

Guarantees: the page is self-contained (inline style and SVG, a content policy that forbids any request), every text
is escaped, and the same data gives the same page. The numbers come as `ReportData`; nothing is computed here but
means and sizes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import jinja2
from markupsafe import Markup
from rich.console import Console
from rich.table import Table

from common.figure_words import TOO_FEW, told
from deploy.demo import charts
from deploy.demo.report_data import ReportData, SealedDomain
from deploy.local.drawing import COLOURS

_TEMPLATES: Final = Path(__file__).parent / "templates"
_UNITS: Final = ("B", "KiB", "MiB", "GiB")


def render(result: ReportData, html: Path) -> None:
    """Write the page. The folder is created; an older page of that name is replaced."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    page = environment.get_template("report.html").render(
        data=result,
        style=Markup((_TEMPLATES / "report.css").read_text(encoding="utf-8")),  # noqa: S704  # a file of this package
        cards=_cards(result),
        charts=_charts(result),
        colours=COLOURS,
        best_mean=max((m.mean for m in result.methods), default=0.0),
        best_worst=max((m.worst for m in result.methods), default=0.0),
        spread=any(m.spread for m in result.methods),
        sealed_names=sealed_names(result),
        sealed_rows=[
            (domain, sealed_patients(one), sealed_cells(one, result))
            for domain, one in zip(result.domains, result.sealed, strict=False)
        ],
        agree=result.ledgers_agree(),
    )
    html.parent.mkdir(parents=True, exist_ok=True)
    html.write_text(page, encoding="utf-8")


def size(count: int) -> str:
    """A number of bytes for people: three digits and a unit."""
    value, unit = float(count), 0
    while value >= 1000 and unit < len(_UNITS) - 1:  # noqa: PLR2004  # three digits before the point
        value, unit = value / 1024, unit + 1
    return f"{value:.0f} {_UNITS[unit]}" if unit == 0 or value >= 100 else f"{value:.1f} {_UNITS[unit]}"  # noqa: PLR2004


def _charts(result: ReportData) -> dict[str, Markup]:
    """The drawings whose data is there; all of them are made by this package from numbers and escaped names."""
    wanted = {
        "auc": (charts.auc_chart, bool(result.methods)),
        "sealed": (charts.sealed_chart, bool(result.sealed)),
        "budget": (charts.budget_chart, result.noised),
        "bytes": (charts.bytes_chart, bool(result.rounds)),
        "time": (charts.time_chart, bool(result.phases)),
    }
    return {name: Markup(draw(result)) for name, (draw, there) in wanted.items() if there}  # noqa: S704


def _cards(result: ReportData) -> list[dict[str, str]]:
    """The headline numbers."""
    cards = []
    if result.methods:
        ours, others = result.methods[0], result.methods[1:]
        against = " · ".join(f"{m.name} {m.mean:.3f}" for m in others)
        against_worst = " · ".join(f"{m.name} {m.worst:.3f}" for m in others)
        cards = [
            {"label": "Mean AUC over domains", "value": f"{ours.mean:.3f}", "aside": against},
            {"label": f"Worst domain ({result.worst_domain})", "value": f"{ours.worst:.3f}", "aside": against_worst},
        ]
    if result.noised:
        cards.append(
            {
                "label": f"Epsilon spent per {result.unit}",
                "value": f"{result.spent:.2f}",
                "aside": f"of a budget of {result.budget:g}, delta {result.delta:g}",
            }
        )
    else:
        cards.append({"label": "Noise", "value": "none", "aside": "every hospital declares these data public"})
    if result.rounds:
        cards.append(
            {
                "label": "Sent by one hospital",
                "value": size(result.sent),
                "aside": f"{len(result.rounds)} rounds in {result.seconds:.0f} s",
            }
        )
    return cards


def print_terminal(result: ReportData, console: Console | None = None) -> None:
    """Print the summary: AUC per domain, sealed figures, budgets, sizes and times."""
    out = console or Console()
    out.print(f"\n[bold]{result.title}[/bold]  [dim]study {result.study_digest[:16]}[/dim]")
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


def sealed_names(result: ReportData) -> tuple[str, ...]:
    """Figures that are told of every domain, in order."""
    return (
        *(("AUC",) if result.ranked else ()),
        "Accuracy",
        "Balanced accuracy",
        "Calibration error",
        "Expected / observed",
    )


def sealed_patients(domain: SealedDomain) -> str:
    """How many are held out, or that they are fewer than the study reports on."""
    return TOO_FEW if domain.patients is None else f"{domain.patients.value:.0f}"


def sealed_cells(domain: SealedDomain, result: ReportData) -> tuple[str, ...]:
    """One text per figure: the estimate and its interval, or that too few patients are held out to tell."""
    figures = [
        *([("auc", domain.auc)] if result.ranked else []),
        ("accuracy", domain.accuracy),
        ("balanced_accuracy", domain.balanced_accuracy),
        ("calibration", domain.calibration),
        ("expected_observed", domain.expected_observed),
    ]
    return tuple(
        TOO_FEW if one is None else f"{told(metric, one.value, one.high)} ({one.low:.3f} to {one.high:.3f})"
        for metric, one in figures
    )


def _sealed_table(result: ReportData) -> Table:
    """What the sealed sums say by domain, with 95 % intervals."""
    table = Table(title="From sealed sums over held-out patients, 95 % intervals", title_justify="left")
    table.add_column("domain")
    for name in ("Patients", *sealed_names(result)):
        table.add_column(name, justify="right")
    for domain, one in zip(result.domains, result.sealed, strict=True):
        table.add_row(domain, sealed_patients(one), *sealed_cells(one, result))
    return table


def _budget_table(result: ReportData) -> Table:
    """What every ledger says."""
    table = Table(title=f"Epsilon at delta {result.delta:g}, per {result.unit}", title_justify="left")
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
        cells = [f"[underline]{a:.3f}[/underline]" if a == method.worst else f"{a:.3f}" for a in method.auc]
        style = "bold green" if number == 0 else None
        table.add_row(method.name, *cells, f"{method.mean:.3f}", f"{method.worst:.3f}", style=style)
    return table
