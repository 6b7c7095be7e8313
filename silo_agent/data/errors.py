"""What is wrong with a silo's file, said so that its engineer can mend it.

The text names values of patients. It is meant for the silo's own console; whatever is sent or kept elsewhere uses
`DataError.summary`, which holds none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from silo_agent.errors import SiloError

LISTED = 20
"""Faults spelled out in one error; the rest are only counted."""


@dataclass(frozen=True)
class Fault:
    """One value that the schema does not allow. `row` is the line of the file (Parquet: the record), from 1; 0: all."""

    file: str
    row: int
    column: str
    found: str
    expected: str

    def __str__(self) -> str:
        place = [self.file]
        if self.row:
            place.append(f"row {self.row}")
        if self.column:
            place.append(f"column {self.column!r}")
        return f"{', '.join(place)}: found {self.found}, expected {self.expected}"

    def __repr__(self) -> str:
        return "Fault(<private>)"


class Unfit(Exception):  # noqa: N818  # never leaves this package: the reader turns it into a fault with a place
    """A cell does not fit: what was expected, and, where the cell itself does not show it, what was found."""

    def __init__(self, expected: str, found: str = "") -> None:
        super().__init__("<private>")
        self.expected, self.found = expected, found


class Faults:
    """Gathers faults, `listed` of each column at most, and the number of all."""

    def __init__(self, listed: int = LISTED) -> None:
        self._listed = listed
        self._kept: list[Fault] = []
        self._of_column: Counter[str] = Counter()
        self.total = 0

    def add(self, fault: Fault) -> None:
        """Take one more; those of a column come in the order of their rows."""
        self.total += 1
        if self._of_column[fault.column] < self._listed:
            self._of_column[fault.column] += 1
            self._kept.append(fault)

    def first(self) -> tuple[Fault, ...]:
        """The first `listed` of all, by row."""
        return tuple(sorted(self._kept, key=lambda fault: fault.row)[: self._listed])

    def __repr__(self) -> str:
        return "Faults(<private>)"


class DataError(SiloError):
    """The file does not fit the study's schema. `str()` is one line per fault; `total` counts those left off too."""

    def __init__(self, faults: Sequence[Fault], total: int | None = None) -> None:
        self.faults = tuple(faults[:LISTED])
        self.total = len(faults) if total is None else total
        lines = [str(fault) for fault in self.faults]
        if self.total > len(self.faults):
            lines.append(f"and {self.total - len(self.faults)} more; mend these first")
        super().__init__("\n".join(lines))

    @property
    def summary(self) -> str:
        """The error without any value or number of the data: for logs and for other parties."""
        columns = sorted({fault.column for fault in self.faults if fault.column})
        where = f" in {', '.join(repr(column) for column in columns)}" if columns else ""
        return f"the silo's data does not fit the study's schema{where}; fedward-silo data check says where"

    def __repr__(self) -> str:
        return "DataError(<private>)"
