"""The experiment's Figure 1: errors of the methods by samples a client, with standard errors, as an SVG file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

COLOURS = ("#94a3b8", "#c2410c", "#7c3aed", "#d97706", "#475569", "#0f766e", "#14b8a6", "#0369a1")


def draw(file: Path, samples: Sequence[int], errors: Mapping[str, Sequence[tuple[float, float]]]) -> None:
    """Write the plot. `errors` has mean and standard error for each number of samples, by method."""
    figure = Figure(figsize=(8.6, 4.0), layout="constrained")
    axes = figure.add_subplot()
    width = 0.85 / len(errors)
    for place, (method, values) in enumerate(errors.items()):
        where = np.arange(len(samples)) + (place - (len(errors) - 1) / 2) * width
        means, deviations = zip(*values, strict=True)
        # On a logarithmic scale a bar cannot reach below zero, so the lower half of an error ends above it.
        low = [min(deviation, 0.9 * mean) for mean, deviation in values]
        axes.bar(where, means, width, color=COLOURS[place % len(COLOURS)], label=method)
        axes.errorbar(where, means, yerr=(low, deviations), fmt="none", ecolor="#1e293b", elinewidth=0.8, capsize=2)
    axes.set_yscale("log")
    axes.set_xticks(range(len(samples)), [str(count) for count in samples])
    axes.set_xlabel("training samples of a client")
    axes.set_ylabel("mean squared error")
    axes.set_axisbelow(True)
    axes.grid(visible=True, axis="y", color="#e2e8f0", linewidth=0.8)
    axes.legend(ncols=3, fontsize=8, frameon=False, loc="lower left", bbox_to_anchor=(0, 1))
    figure.savefig(file, format="svg", metadata={"Date": None})
