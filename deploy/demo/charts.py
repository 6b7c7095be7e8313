"""The report's drawings, as SVG text that stands inside an HTML page.

Guarantees: no script, no outside reference, text stays text (it is found, copied and read aloud), no two drawings
share an `id`, equal data gives equal bytes. What the numbers mean is told by the page around them.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from deploy.demo.report_data import ReportData
from deploy.local.drawing import COLOURS, LINE, MARKERS, MUTED, STYLE, WASH, plain_axes


def auc_chart(data: ReportData) -> str:
    """AUC per domain of every method, then their mean and worst on a tinted ground."""
    rows = [*data.domains, "Mean", "Worst domain"]
    figure, axes = plain_axes(0.42 * len(rows) + 0.75)
    places = [float(i) for i in range(len(data.domains))]
    places += [len(data.domains) + 0.35, len(data.domains) + 1.35]
    axes.axhspan(places[-2] - 0.5, places[-1] + 0.5, color=WASH, zorder=0)
    for index, method in reversed(list(enumerate(data.methods))):
        colour = COLOURS[index % len(COLOURS)]
        for place, (low, high) in zip(places, method.spread, strict=False):
            axes.plot([low, high], [place, place], color=colour, linewidth=5, alpha=0.18, solid_capstyle="round")
        values = [*method.auc, method.mean, method.worst]
        axes.scatter(
            values, places, s=64 if index == 0 else 42, color=colour, marker=MARKERS[index % len(MARKERS)],
            label=method.name, zorder=4 if index == 0 else 3, edgecolors="white", linewidths=0.8,
        )  # fmt: skip
    axes.set_yticks(places, rows)
    for label in axes.get_yticklabels()[-2:]:
        label.set_fontweight("bold")
    axes.set_ylim(places[-1] + 0.6, -0.6)
    axes.set_xlabel("AUC on public test patients")
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(
        handles[::-1], labels[::-1], loc="lower left", bbox_to_anchor=(0, 1), ncols=len(labels), frameon=False,
        borderaxespad=0, handletextpad=0.2, columnspacing=1.4,
    )  # fmt: skip
    return _svg(figure, "auc")


def sealed_chart(data: ReportData) -> str:
    """AUC per domain from sealed sums, with 95 % intervals; of more than two classes the balanced accuracy."""
    figure, axes = plain_axes(0.4 * len(data.domains) + 0.6)
    intervals = [domain.auc if data.ranked else domain.balanced_accuracy for domain in data.sealed]
    for place, interval in enumerate(intervals):
        if interval is None:
            _note(axes, 0.5, place, "too few held-out patients to tell")
            continue
        axes.plot([interval.low, interval.high], [place, place], color=COLOURS[0], linewidth=2, solid_capstyle="round")
        axes.scatter([interval.value], [place], s=52, color=COLOURS[0], edgecolors="white", linewidths=0.8, zorder=3)
    axes.set_yticks(range(len(data.domains)), data.domains)
    axes.set_ylim(len(data.domains) - 0.4, -0.6)
    lowest = min((i.low for i in intervals if i is not None), default=0.5)
    axes.set_xlim(min(0.48, lowest - 0.02), 1.005)
    sums = "noised sums" if data.noised else "sealed sums"
    if data.ranked:
        axes.axvline(0.5, color=MUTED, linewidth=0.8, linestyle=(0, (2, 3)))
        axes.set_xlabel(f"AUC on held-out patients, from {sums} (dotted: a coin)")
    else:
        axes.set_xlabel(f"balanced accuracy on held-out patients, from {sums}")
    return _svg(figure, "sealed")


def budget_chart(data: ReportData) -> str:
    """Epsilon spent and left per silo."""
    figure, axes = plain_axes(0.36 * len(data.budgets) + 0.75)
    places = range(len(data.budgets))
    axes.barh(places, [b.budget for b in data.budgets], height=0.5, color=LINE, label="left for later studies")
    axes.barh(places, [b.spent for b in data.budgets], height=0.5, color=COLOURS[0], label="spent")
    for place, budget in enumerate(data.budgets):
        _note(axes, budget.budget, place, f"{budget.spent:.2f} of {budget.budget:g}")
    axes.set_xlim(0, 1.18 * max(b.budget for b in data.budgets))
    axes.set_yticks(places, [b.silo for b in data.budgets])
    axes.set_ylim(len(data.budgets) - 0.4, -0.6)
    axes.set_xlabel(f"epsilon at delta {data.delta:g}")
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(handles[::-1], labels[::-1], loc="lower left", bbox_to_anchor=(0, 1), ncols=2, frameon=False,
                borderaxespad=0)  # fmt: skip
    return _svg(figure, "budget")


def bytes_chart(data: ReportData) -> str:
    """Bytes per round of one silo, sent and fetched."""
    figure, axes = plain_axes(2.2, grid="y")
    numbers = [r.round for r in data.rounds]
    axes.bar([n - 0.2 for n in numbers], [r.sent / 1024 for r in data.rounds], 0.36, color=COLOURS[0], label="sent")
    fetched = [r.fetched / 1024 for r in data.rounds]
    axes.bar([n + 0.2 for n in numbers], fetched, 0.36, color="#99c9c4", label="fetched")
    axes.set_xticks(numbers, [str(n) for n in numbers])
    axes.set_xlabel("round (round 0 deals keys and sums the domain counts)")
    axes.set_ylabel("KiB per silo")
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, frameon=False, borderaxespad=0)
    return _svg(figure, "bytes")


def time_chart(data: ReportData) -> str:
    """Seconds by phase, the longest first."""
    phases = sorted(data.phases, key=lambda p: -p.seconds)
    figure, axes = plain_axes(0.34 * len(phases) + 0.6)
    places = range(len(phases))
    axes.barh(places, [p.seconds for p in phases], height=0.5, color=COLOURS[0])
    for place, phase in enumerate(phases):
        _note(axes, phase.seconds, place, f"{phase.seconds:.1f} s")
    axes.set_xlim(0, 1.15 * max((p.seconds for p in phases), default=1.0))
    axes.set_yticks(places, [p.name for p in phases])
    axes.set_ylim(len(phases) - 0.4, -0.6)
    axes.set_xlabel("seconds")
    return _svg(figure, "time")


def _note(axes: Any, x: float, y: float, text: str) -> None:
    """Muted text, a little to the right of a point."""
    axes.annotate(text, (x, y), xytext=(7, 0), textcoords="offset points", va="center", color=MUTED)


def _svg(figure: Figure, name: str) -> str:
    """The figure as one `<svg>` element whose ids all start with `name`."""
    out = io.StringIO()
    with mpl.rc_context({**STYLE, "svg.hashsalt": name}):
        unnamed = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(out, format="svg", transparent=True, metadata=unnamed)
    text = out.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'\bid="', f'id="{name}-', text)
    text = re.sub(r'(href="#|url\(#)', rf"\g<1>{name}-", text)
    return re.sub(r'<svg [^>]*?viewBox="([^"]*)"[^>]*>', _opening, text, count=1)


def _opening(found: re.Match[str]) -> str:
    """The opening tag: scales with the page, and needs no namespace inside HTML but that of its links."""
    box: Sequence[str] = found.group(1).split()
    return (
        f'<svg viewBox="{" ".join(box)}" role="img" xmlns="http://www.w3.org/2000/svg" '
        f'xmlns:xlink="http://www.w3.org/1999/xlink" style="max-width:{float(box[2]):.0f}pt">'
    )
