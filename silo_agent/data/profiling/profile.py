"""How a hospital's file fits a study's schema: counted by column and by domain. Only for people inside the hospital."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from policies.documents.study import DataSchema, DomainColumn, Feature
from silo_agent.data.cells import Absence, Cell, CodeTable, number
from silo_agent.data.errors import Faults, RecordFault, Unfit
from silo_agent.data.profiling import leaks
from silo_agent.data.reader import Reading, domain_parser, read_records
from silo_agent.data.table import Source, Written, needed_columns

UNKNOWN: Final = "unknown"
"""Stands for the domain of a row whose domain does not fit."""


@dataclass(frozen=True)
class ColumnProfile:
    """One column: rows whose cell does not fit, cells that mean "not recorded", and whether it gives the label away.

    `tells` is the lower end of an AUC (see `leaks`), of the records that fit; None if too few patients could be
    compared, or if the column is no input.
    """

    name: str
    unfit: int
    missing: int
    tells: float | None

    @property
    def gives_away(self) -> bool:
        """Whether the column alone says what should be predicted."""
        return self.tells is not None and self.tells >= leaks.LIMIT


@dataclass(frozen=True)
class Domain:
    """One domain: records and patients that fit, and rows that would be left out."""

    name: str
    kept: int
    patients: int
    left_out: int


@dataclass(frozen=True, repr=False)
class Profile:
    """How a file fits. `broken` rows cannot be read as rows at all; they count among those left out."""

    rows: int
    kept: int
    left_out: int
    broken: int
    patients: int
    columns: tuple[ColumnProfile, ...]
    domains: tuple[Domain, ...]

    def __repr__(self) -> str:
        return "Profile(<private>)"


class _ByColumn(Faults):
    """Counts faults by column and keeps none. A cell that does not fit is one, also as both domain and feature."""

    def __init__(self) -> None:
        super().__init__(0)
        self.counted: Counter[str] = Counter()
        self._seen: set[tuple[str, int, str]] = set()

    def add(self, fault: RecordFault) -> None:
        super().add(fault)
        cell = (fault.file, fault.row, fault.column)
        if cell not in self._seen:
            self._seen.add(cell)
            self.counted[fault.column] += 1


def profile(
    source: Source,
    schema: DataSchema,
    identified_by: Sequence[str],
    written: Written,
    withdrawn: Collection[str] = (),
) -> Profile:
    """Read the records as for training, and count. Raises `DataError`, and `RecordError` for a database."""
    faults = _ByColumn()
    reading = read_records(source, schema, identified_by, faults=faults, written=written, withdrawn=withdrawn)
    schema = written.schema(schema)
    records, rows = reading.records, len(reading.table.rows)
    labels = leaks.above_median(records.labels) if schema.label.number is not None else records.labels
    parts = _parts(reading, schema)
    columns = tuple(
        ColumnProfile(
            name,
            faults.counted[name],
            _missing(reading, schema, name),
            leaks.gives_away(parts[name], labels, records.patients) if name in parts else None,
        )
        for name in needed_columns(schema)
    )
    return Profile(
        rows + reading.table.broken,
        len(records),
        rows - len(records) + reading.table.broken,
        reading.table.broken,
        len(np.unique(records.patients)),
        columns,
        _domains(reading, schema),
    )


def _parts(reading: Reading, schema: DataSchema) -> dict[str, leaks.Places]:
    """The part of every fitting record in each column that a model sees, or that decides which head it has."""
    found: dict[str, leaks.Places] = {}
    for factor in schema.domain:
        found[factor.column] = np.array(_placed(reading, factor, schema), np.int64)[reading.fits]
    for feature in schema.features:
        cells = [cell for cell, fits in zip(reading.cells(feature.column), reading.fits, strict=True) if fits]
        found[feature.column] = _values(cells, feature, schema)
    return found


def _values(cells: Sequence[Cell], feature: Feature, schema: DataSchema) -> leaks.Places:
    if feature.kind == "category":
        codes = CodeTable(feature.values)
        places = (codes.find(cell) for cell in cells)
        return np.array([-1 if place is None else place for place in places], np.int64)
    absence = Absence(schema.missing, feature.missing)
    values = [None if absence.covers(cell) else number(cell) for cell in cells]
    return leaks.parted(np.array([np.nan if value is None else value for value in values], np.float64))


def _missing(reading: Reading, schema: DataSchema, name: str) -> int:
    codes = next((feature.missing for feature in schema.features if feature.column == name), ())
    absence = Absence(schema.missing, codes)
    return sum(absence.covers(cell) for cell in reading.cells(name))


def _placed(reading: Reading, factor: DomainColumn, schema: DataSchema) -> list[int]:
    """The place of every row's value among the factor's; -1 if it does not fit."""
    parse = domain_parser(factor, schema.missing)
    return [_or_none(parse, cell) for cell in reading.cells(factor.column)]


def _or_none(parse: Callable[[Cell], int], cell: Cell) -> int:
    try:
        return parse(cell)
    except Unfit:
        return -1


def _domains(reading: Reading, schema: DataSchema) -> tuple[Domain, ...]:
    places = np.zeros(len(reading.table.rows), np.int64)
    known = np.ones(len(places), np.bool_)
    for factor in schema.domain:
        part = np.array(_placed(reading, factor, schema), np.int64)
        known &= part >= 0
        places = places * len(factor.names) + part
    records, out = reading.records, ~reading.fits
    found = []
    for place, name in enumerate(schema.domains):
        own = records.domains == place
        patients = len(np.unique(records.patients[own]))
        found.append(Domain(name, int(own.sum()), patients, int((out & known & (places == place)).sum())))
    lost = int((out & ~known).sum()) + reading.table.broken
    return (*found, Domain(UNKNOWN, 0, 0, lost)) if lost else tuple(found)
