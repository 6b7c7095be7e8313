"""How FedWard's drawings look: colours, type, axes. Needs matplotlib, of the extra `demo`."""

from __future__ import annotations

from typing import Any, Final, Literal

import matplotlib as mpl
from matplotlib.figure import Figure

INK: Final = "#1e293b"
MUTED: Final = "#64748b"
LINE: Final = "#e2e8f0"
WASH: Final = "#f1f5f9"
COLOURS: Final = ("#0f766e", "#c2410c", "#475569", "#7c3aed")
"""Of the methods in order; FedWard's is the first and the page's accent."""
MARKERS: Final = ("o", "s", "D", "^")
_WIDTH: Final = 8.6
STYLE: Final[dict[Any, Any]] = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.sans-serif": ["Inter", "Segoe UI", "Helvetica Neue", "Arial", "DejaVu Sans"],
    "font.size": 9.5,
    "text.color": INK,
    "axes.labelcolor": MUTED,
    "axes.edgecolor": LINE,
    "xtick.color": MUTED,
    "ytick.color": INK,
}


def plain_axes(height: float, grid: Literal["x", "y"] = "x") -> tuple[Figure, Any]:
    """A figure of the page's width and `height` inches, with axes that show only a faint grid."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(_WIDTH, height), layout="constrained")
        axes = figure.add_subplot()
    axes.set_axisbelow(True)
    axes.grid(visible=True, axis=grid, color=LINE, linewidth=0.8)
    for side in ("top", "right", "left" if grid == "x" else "bottom"):
        axes.spines[side].set_visible(False)
    axes.tick_params(length=0)
    return figure, axes
