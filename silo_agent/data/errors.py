"""Faults of a silo's file, described so that its engineer can fix them.

The text quotes values of patients. It is only for the silo's own console. Anything that is sent or stored elsewhere
uses `DataError.summary`, which quotes none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from silo_agent.errors import SiloError

LISTED = 20
"""Most faults that one error lists. The rest are only counted."""


@dataclass(frozen=True)
class RecordFault:
    """One value that the schema does not allow. `row` is the line (Parquet: the record) from 1; 0 is the whole file."""

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


class Unfit(Exception):  # noqa: N818  # stays in this package: the reader turns it into a fault with a place
    """A cell does not fit. It says what was expected, and what was found if the cell itself does not show it."""

    def __init__(self, expected: str, found: str = "") -> None:
        super().__init__("<private>")
        self.expected, self.found = expected, found


class Faults:
    """Collects at most `listed` faults of each column, and counts all faults."""

    def __init__(self, listed: int = LISTED) -> None:
        self._listed = listed
        self._kept: list[RecordFault] = []
        self._of_column: Counter[str] = Counter()
        self.total = 0

    def add(self, fault: RecordFault) -> None:
        """Take one more fault. The faults of a column come in the order of their rows."""
        self.total += 1
        if self._of_column[fault.column] < self._listed:
            self._of_column[fault.column] += 1
            self._kept.append(fault)

    def first(self) -> tuple[RecordFault, ...]:
        """Return the first `listed` of all faults, by row."""
        return tuple(sorted(self._kept, key=lambda fault: (fault.file, fault.row))[: self._listed])

    def __repr__(self) -> str:
        return "Faults(<private>)"


@dataclass(frozen=True)
class MisfitReason:
    """Why records of public files are left out: how many of them, and the first. It quotes a cell."""

    column: str
    expected: str
    records: int
    found: str
    row: int
    file: str

    def __repr__(self) -> str:
        return "Reason(<private>)"


class Reasons(Faults):
    """Counts also the records of each column and expectation. Only for public files, whose numbers may be shown."""

    def __init__(self) -> None:
        super().__init__()
        self._rows: dict[tuple[str, str], set[int]] = {}
        self._example: dict[tuple[str, str], RecordFault] = {}

    def add(self, fault: RecordFault) -> None:
        """Take one more fault of a file."""
        super().add(fault)
        reason = (fault.column, fault.expected)
        self._rows.setdefault(reason, set()).add(fault.row)
        self._example.setdefault(reason, fault)

    def counted(self) -> tuple[MisfitReason, ...]:
        """Every reason, in the order in which they were found."""
        found = (self._example[reason] for reason in self._rows)
        rows = self._rows.values()
        return tuple(
            MisfitReason(one.column, one.expected, len(own), one.found, one.row, one.file)
            for one, own in zip(found, rows, strict=True)
        )


class DataError(SiloError):
    """The file does not fit the study's schema. `str()` is one line per fault; `total` also counts unlisted faults."""

    def __init__(self, faults: Sequence[RecordFault], total: int | None = None) -> None:
        self.faults = tuple(faults[:LISTED])
        self.total = len(faults) if total is None else total
        lines = [str(fault) for fault in self.faults]
        if self.total > len(self.faults):
            lines.append(f"and {self.total - len(self.faults)} more; fix these first")
        super().__init__("\n".join(lines))

    @property
    def summary(self) -> str:
        """Return the error without any value or number of the data, for logs and for other parties."""
        columns = sorted({fault.column for fault in self.faults if fault.column})
        where = f" in {', '.join(repr(column) for column in columns)}" if columns else ""
        return f"the silo's data does not fit the study's schema{where}; fedward-silo data check says where"

    def __repr__(self) -> str:
        return "DataError(<private>)"


class DataAbsentError(DataError):
    """The records are not there now, or cannot be reached. It follows from no record, and may be over in a minute."""

    @property
    def summary(self) -> str:
        """Return the error without anything that the database said."""
        return "the study's records are not there, or cannot be reached; fedward-silo data check says why"
