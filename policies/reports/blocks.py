"""What a report is made of, as plain values. `page` lays it out as HTML and `paper` as PDF; both say the same.

Guarantees: a report holds texts and numbers and no markup, so nothing in a study's name or purpose can become any.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal

Mark = Literal["", "best", "worst", "first"]
"""How a cell stands out. `first`: it belongs to the row or column that the table is about."""


@dataclass(frozen=True)
class Paragraph:
    """One or several sentences."""

    kind: ClassVar[str] = "paragraph"
    text: str
    tone: Literal["plain", "small", "warning"] = "plain"


@dataclass(frozen=True)
class Bullets:
    """Sentences one below the other."""

    kind: ClassVar[str] = "bullets"
    items: tuple[str, ...]


@dataclass(frozen=True)
class Cell:
    """One cell of a table. `note` stands below the text, smaller."""

    text: str
    mark: Mark = ""
    note: str = ""


@dataclass(frozen=True)
class Grid:
    """A table: the first cell of each row is its heading. `numbers`: the last columns, which are set to the right."""

    kind: ClassVar[str] = "grid"
    heads: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    numbers: int = 0
    caption: str = ""

    def __post_init__(self) -> None:
        wrong = [row for row in self.rows if len(row) != len(self.heads)]
        if wrong:
            msg = f"a row has {len(wrong[0])} cells, and the table {len(self.heads)} columns"
            raise ValueError(msg)


@dataclass(frozen=True)
class Card:
    """A headline number with its name above and what belongs to it below."""

    label: str
    value: str
    aside: str


@dataclass(frozen=True)
class Cards:
    """Headline numbers in a row."""

    kind: ClassVar[str] = "cards"
    cards: tuple[Card, ...]


@dataclass(frozen=True)
class Dot:
    """A value on an axis with its interval, if it has one. `series` counts from 0."""

    value: float
    low: float | None = None
    high: float | None = None
    series: int = 0


@dataclass(frozen=True)
class DotRow:
    """One line of a drawing; `text` says its values in words, and stands alone if there is no dot."""

    label: str
    dots: tuple[Dot, ...]
    text: str


@dataclass(frozen=True)
class Dots:
    """Values with intervals on one axis from `low` to `high`. `reference` is where a line stands, if there is one."""

    kind: ClassVar[str] = "dots"
    axis: str
    low: float
    high: float
    rows: tuple[DotRow, ...]
    series: tuple[str, ...] = ()
    reference: float | None = None


@dataclass(frozen=True)
class BarRow:
    """One bar from 0. `limit` is what it must not pass, if there is such a thing."""

    label: str
    value: float
    text: str
    limit: float | None = None


@dataclass(frozen=True)
class Bars:
    """Bars from 0 to the largest value or limit."""

    kind: ClassVar[str] = "bars"
    axis: str
    rows: tuple[BarRow, ...]

    @property
    def top(self) -> float:
        """The end of the axis; 1 if all is 0."""
        return max((max(row.value, row.limit or 0.0) for row in self.rows), default=0.0) or 1.0


@dataclass(frozen=True)
class RiskPoint:
    """Of patients with like risks: what was predicted, and what happened with its interval, each from 0 to 1."""

    predicted: float
    observed: float
    low: float
    high: float


@dataclass(frozen=True)
class RiskCurve:
    """A calibration curve beside the diagonal on which risks are right. `text` says it for who cannot see it."""

    kind: ClassVar[str] = "curve"
    points: tuple[RiskPoint, ...]
    text: str


Block = Paragraph | Bullets | Grid | Cards | Dots | Bars | RiskCurve


@dataclass(frozen=True)
class Section:
    """A heading and what stands below it. `inside`: these figures are not noised and must not leave the hospital."""

    title: str
    blocks: tuple[Block, ...]
    inside: bool = False


@dataclass(frozen=True)
class BoardReport:
    """A whole report. `facts` is a line of single facts below the purpose.

    `warning` stands before all else, if there is one; `digest` names the study.
    """

    title: str
    purpose: str
    digest: str
    facts: tuple[str, ...]
    sections: tuple[Section, ...]
    warning: str = ""

    def plain(self) -> dict[str, Any]:
        """The same as plain data for a program; every block has its kind."""
        sections = [
            {"title": one.title, "inside": one.inside, "blocks": [_plain(block) for block in one.blocks]}
            for one in self.sections
        ]
        return asdict(self) | {"sections": sections}


def _plain(block: Block) -> dict[str, Any]:
    top = {"top": block.top} if isinstance(block, Bars) else {}
    return {"kind": block.kind, **asdict(block), **top}


def grid(
    heads: tuple[str, ...], rows: Sequence[tuple[str | Cell, ...]], *, numbers: int = 0, caption: str = ""
) -> Grid:
    """A table of texts and cells."""
    cells = tuple(tuple(Cell(one) if isinstance(one, str) else one for one in row) for row in rows)
    return Grid(heads, cells, numbers, caption)
