"""How one column of a hospital's file writes numbers: the mark before a fraction, and the unit.

Guarantees: `NumberForm.number` of a cell follows from the cell and the policy alone, and what reads a column at once
gives for each cell the bits that reading it alone gives. A number that may be read in two ways is none: where a comma
stands before the fraction, a text with a point is no number. Marks of absence are compared with cells as they stand in
the file, before any unit is made of another.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from silo_agent.data.cells import Absence, Cell, number
from silo_agent.data.columns.arrow_cells import ArrowCells

Floats = NDArray[np.float64]
_SWAP: Final = str.maketrans(".,", ",.")
_BETWEEN: Final = "\0"


@dataclass(frozen=True)
class NumberForm:
    """`factor` times a number of the file, plus `offset`, is the number that a study asks for."""

    decimal: str = "."
    factor: float = 1.0
    offset: float = 0.0

    def raw(self, cell: Cell) -> float | None:
        """The number that stands in a cell, in the file's unit; None if none does."""
        if self.decimal == "," and isinstance(cell, str):
            return number(cell.translate(_SWAP))
        return number(cell)

    def number(self, cell: Cell) -> float | None:
        """The number of a cell in the study's unit; None if it has none."""
        value = self.raw(cell)
        if value is None or self.plain:
            return value
        return value * self.factor + self.offset

    def along(self, values: Floats) -> Floats:
        """Numbers of the file, (n,), in the study's unit."""
        return values if self.plain else values * self.factor + self.offset

    def numbers(self, cells: ArrowCells) -> Floats | None:
        """For each cell the number that `raw` finds, (n,), as `ArrowCells.numbers` says it."""
        if self.decimal == "." or not cells.has_texts:
            return cells.numbers()
        swapped = cells.array
        for old, new in ((".", _BETWEEN), (",", "."), (_BETWEEN, ",")):
            swapped = pc.replace_substring(swapped, old, new)
        return ArrowCells(swapped).numbers()

    def covers(self, absence: Absence, cell: Cell) -> bool:
        """Whether a cell means that nothing was recorded."""
        if absence.covers(cell):
            return True
        value = self.raw(cell) if self.decimal == "," and isinstance(cell, str) else None
        return value is not None and absence.covers(value)

    def apart(self, absence: Absence) -> frozenset[float]:
        """All numbers of the file that may mean absence, in whatever form they are written."""
        return absence.numbers | {value for mark in absence.marks if (value := self.raw(mark)) is not None}

    @property
    def plain(self) -> bool:
        """Whether a number of the file is the study's."""
        return self.factor == 1.0 and self.offset == 0.0

    @property
    def written(self) -> str:
        """How a number is written, for whoever is to correct one."""
        return self.example if self.plain else f"{self.example} in the unit that the policy converts (spelling.units)"

    @property
    def example(self) -> str:
        """A number as the file writes it."""
        return f"1{self.decimal}5"


PLAIN: Final = NumberForm()
"""Numbers as studies write them."""
