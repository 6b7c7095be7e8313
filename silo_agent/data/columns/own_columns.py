"""Columns that a hospital's file does not have as studies ask for them: absent ones, and times between two dates.

Guarantees: a made cell follows from the cells of its own row and the policy alone, never from the day of today. A date
that is not written as the policy says makes a cell that is no number, so its row is left out or said as any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import date, datetime

import pyarrow as pa

from policies.documents.sections.spelling import Between, Spelling
from silo_agent.data.cells import Absence, Cell, shown, text
from silo_agent.data.columns.arrow_cells import ArrowCells, cells_of, distinct
from silo_agent.data.table import Table, Written


class OwnColumns:
    """What stands in the file instead of the columns that studies ask for, with the marks of absence that count."""

    def __init__(self, written: Written | None, missing: Iterable[str]) -> None:
        self._spelling = Spelling() if written is None else written.spelling
        self._absence = Absence(missing)

    def needed(self, names: Iterable[str]) -> tuple[str, ...]:
        """The columns of the file by which those of these names are read."""
        found = list[str]()
        for name in names:
            one = self._spelling.between.get(name)
            if name not in self._spelling.absent:
                found += [name] if one is None else [one.start, one.end]
        return tuple(dict.fromkeys(found))

    def table(self, table: Table) -> Table:
        """The table with the columns that are made of it."""
        made: dict[str, Sequence[Cell]] = {
            name: ArrowCells(pa.nulls(len(table.rows))) for name in self._spelling.absent
        }
        for name, one in self._spelling.between.items():
            if one.start in table.columns and one.end in table.columns:
                made[name] = self._between(table, one)
        return replace(table, columns={**table.columns, **made}) if made else table

    def _between(self, table: Table, one: Between) -> Sequence[Cell]:
        starts, ends = (self._days(table.columns[name], self._spelling.dates[name]) for name in (one.start, one.end))
        return cells_of([_time(start, end, one.unit) for start, end in zip(starts, ends, strict=True)])

    def _days(self, cells: Sequence[Cell], form: str) -> list[date | str | None]:
        """Each cell's day; None if nothing was recorded, and the cell as it is shown if it is no day."""
        codes, different = distinct(cells)
        known = [self._day(cell, form) for cell in different]
        return [known[code] for code in codes.tolist()]

    def _day(self, cell: Cell, form: str) -> date | str | None:
        try:
            if self._absence.covers(cell):
                return None
            # A day has no zone: what is compared are days as they stand in the file.
            return datetime.strptime(text(cell), form).date()  # noqa: DTZ007
        except Exception:  # noqa: BLE001  # whatever a cell raises concerns its own row
            return f"{shown(cell)} is not {form}"


def _time(start: date | str | None, end: date | str | None, unit: str) -> Cell:
    """The time between two days; None if one was not recorded, and why there is none if one is no day."""
    for day in (start, end):
        if isinstance(day, str):
            return day
    if not isinstance(start, date) or not isinstance(end, date):
        return None
    if unit == "days":
        return (end - start).days
    return end.year - start.year - ((end.month, end.day) < (start.month, start.day))
