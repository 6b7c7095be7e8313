"""What a console shows beyond a report (`policies.reports.blocks`): cells that lead on or stand out, curves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from policies.reports.blocks import Cell

Badge = Literal["", "good", "busy", "wait", "bad", "off"]
"""How a state stands out. Its word says the same."""


@dataclass(frozen=True)
class PlaceCell(Cell):
    """A cell that leads to a page (`to`), or stands out as a state."""

    to: str = ""
    badge: Badge = ""


@dataclass(frozen=True)
class CurveLine:
    """One curve in the unit square, from left to right, with one point of it marked if `mark` is given."""

    label: str
    points: tuple[tuple[float, float], ...]
    mark: tuple[float, float] | None = None


@dataclass(frozen=True)
class CurveLines:
    """Curves in the unit square. `text` says them for who cannot see them."""

    kind: ClassVar[str] = "lines"
    across: str
    up: str
    lines: tuple[CurveLine, ...]
    text: str
