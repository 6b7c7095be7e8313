"""Faults of a silo's file, described so that its engineer can fix them.

The text quotes values of patients. It is only for the silo's own console. Anything that is sent or stored elsewhere
uses `DataError.summary`, which quotes none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

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


@dataclass(frozen=True)
class CountedReason:
    """How many cells, or lines, are not what was expected of their column. It quotes none of them."""

    column: str
    expected: str
    count: int

    def __str__(self) -> str:
        what = f"column {self.column!r}: {self.count} cells" if self.column else f"{self.count} rows"
        return f"{what}, expected {self.expected}"

    def __repr__(self) -> str:
        return "CountedReason(<private>)"


class Faults:
    """Counts all faults by column and by what was expected, and keeps the first `listed` of each of these reasons."""

    def __init__(self, listed: int = LISTED) -> None:
        self._listed = listed
        self._kept: dict[tuple[str, str], list[RecordFault]] = {}
        self._counts: Counter[tuple[str, str]] = Counter()

    def add(self, fault: RecordFault) -> None:
        """Take one more fault. The faults of a column come in the order of their rows."""
        reason = (fault.column, fault.expected)
        self._counts[reason] += 1
        kept = self._kept.setdefault(reason, [])
        if len(kept) < self._listed:
            kept.append(fault)

    @property
    def total(self) -> int:
        """How many faults there are."""
        return self._counts.total()

    def reasons(self) -> tuple[CountedReason, ...]:
        """All reasons, by falling count."""
        return tuple(CountedReason(*reason, count) for reason, count in self._counts.most_common())

    def first(self) -> tuple[RecordFault, ...]:
        """At most `listed` faults, by row: the first of each reason, and then the first of all others."""
        ahead = sorted((kept[0] for kept in self._kept.values() if kept), key=_place)
        others = sorted((fault for kept in self._kept.values() for fault in kept[1:]), key=_place)
        return tuple(sorted([*ahead, *others][: self._listed], key=_place))

    def __repr__(self) -> str:
        return "Faults(<private>)"


def _place(fault: RecordFault) -> tuple[str, int]:
    return fault.file, fault.row


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
    """The file does not fit the study's schema. `str()` says what was expected how often, and then one line per fault.

    If all faults are listed, they are all that it says. `total` also counts those that are not.
    """

    def __init__(self, faults: Sequence[RecordFault], total: int | None = None) -> None:
        self.faults = tuple(faults[:LISTED])
        self.total = len(faults) if total is None else total
        self.reasons: tuple[CountedReason, ...] = ()
        super().__init__("\n".join(self._lines()))

    @classmethod
    def of(cls, found: Faults) -> Self:
        """The error of all faults that were found."""
        error = cls(found.first(), found.total)
        error.reasons = found.reasons()
        error.args = ("\n".join(error._lines()),)
        return error

    def _lines(self) -> Iterator[str]:
        more = self.total - len(self.faults)
        if more and self.reasons:
            yield from map(str, self.reasons)
            yield "for example:"
        yield from map(str, self.faults)
        if more:
            yield f"and {more} more; fix these first"

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


class RecordError(SiloError):
    """Reading failed while records were looked at, so one record may be why. `found` may quote it.

    Nobody outside may see that it failed: it is no `DataError`, and where the records are needed noise alone is sent.
    """

    def __init__(self, found: str) -> None:
        super().__init__("reading failed on the records")
        self.found = found
