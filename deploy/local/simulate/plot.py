"""A simulation as a drawing: the study's figure by domain, a dot for each seed and a larger one for their mean."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl

from deploy.local.drawing import COLOURS, MARKERS, STYLE, WASH, plain_axes
from deploy.local.simulate.outcome import mean
from deploy.local.simulate.summary import FIGURES, Simulated, title


def draw(found: Simulated, path: Path) -> None:
    """Write the drawing; its suffix says in which form."""
    rows = [*found.study.data.domains, "Mean", "Worst domain"]
    figure, axes = plain_axes(0.42 * len(rows) + 1.3)
    places = [float(m) for m in range(len(rows) - 2)]
    places += [len(places) + 0.35, len(places) + 1.35]
    axes.axhspan(places[-2] - 0.5, places[-1] + 0.5, color=WASH, zorder=0)
    for index, (name, runs) in enumerate(found.every.items()):
        colour, marker = COLOURS[index % len(COLOURS)], MARKERS[index % len(MARKERS)]
        values = [[*(run.value(own) for own in run.exact), run.mean, run.worst()] for run in runs]
        for seed in values:
            axes.scatter(seed, places, s=12, color=colour, alpha=0.35, linewidths=0)
        means = [mean([seed[row] for seed in values]) for row in range(len(rows))]
        axes.scatter(
            means, places, s=56, color=colour, marker=marker, label=name, zorder=3, edgecolors="white", linewidths=0.8
        )
    axes.set_yticks(places, rows)
    axes.set_ylim(places[-1] + 0.6, -0.6)
    records = "made-up" if found.public is None else "public"
    axes.set_xlabel(f"{FIGURES[found.runs[0].figure]} on {records} test records")
    axes.set_title(title(found), loc="left", fontsize=9)
    figure.legend(loc="outside lower left", ncols=len(found.every), frameon=False, fontsize=9)
    with mpl.rc_context(STYLE):
        figure.savefig(path)
