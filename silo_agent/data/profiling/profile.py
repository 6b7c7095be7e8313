"""How a hospital's file fits a study's schema: counted by column and by domain. Only for people inside the hospital."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from policies.documents.study import DataSchema, DomainColumn, Feature, NumericFeature
from silo_agent.data.cells import Absence, Cell, CodeTable
from silo_agent.data.columns.number_forms import Floats, NumberForm
from silo_agent.data.columns.parsers import domain_parser
from silo_agent.data.columns.parsing import Parser, of_codes
from silo_agent.data.errors import Faults, RecordFault
from silo_agent.data.profiling import leaks
from silo_agent.data.profiling.other_unit import looks_like_another
from silo_agent.data.reader import Reading, read_records
from silo_agent.data.table import Source, Written, needed_columns

UNKNOWN: Final = "unknown"
"""Stands for the domain of a row whose domain does not fit."""


@dataclass(frozen=True)
class ColumnProfile:
    """One column: rows whose cell does not fit, cells that mean "not recorded", and whether it gives the label away.

    `tells` is the lower end of an AUC (see `leaks`), of the records that fit; None if too few patients could be
    compared, or if the column is no input. `unit` says why the numbers look like another unit than the study's.
    """

    name: str
    unfit: int
    missing: int
    tells: float | None
    unit: str = ""

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
    needed = needed_columns(schema)
    reading = read_records(
        source, schema, identified_by, faults=faults, written=written, withdrawn=withdrawn, more=needed
    )
    schema = written.schema(schema)
    records, rows = reading.records, reading.rows
    labels = leaks.above_median(records.labels) if schema.label.number is not None else records.labels
    parts = _parts(reading, schema)
    columns = tuple(
        ColumnProfile(
            name,
            faults.counted[name],
            _missing(reading, schema, name),
            leaks.gives_away(parts[name], labels, records.patients) if name in parts else None,
            _other_unit(reading, schema, name),
        )
        for name in needed
    )
    return Profile(
        rows + reading.broken,
        len(records),
        rows - len(records) + reading.broken,
        reading.broken,
        len(np.unique(records.patients)),
        columns,
        _domains(reading, schema),
    )


def _parts(reading: Reading, schema: DataSchema) -> dict[str, leaks.Places]:
    """The part of every fitting record in each column that a model sees, or that decides which head it has."""
    found: dict[str, leaks.Places] = {}
    for factor in schema.domain:
        found[factor.column] = _placed(reading, factor, schema)[reading.fits]
    for feature in schema.features:
        found[feature.column] = _values(reading, feature, schema)
    return found


def _values(reading: Reading, feature: Feature, schema: DataSchema) -> leaks.Places:
    if feature.kind == "category":
        codes = CodeTable(feature.values)

        def place(cell: Cell) -> int:
            found = codes.find(cell)
            return -1 if found is None else found

        return reading.values(feature.column, of_codes(place), -1)[reading.fits]
    absence = Absence(schema.missing, feature.missing)
    return leaks.parted(reading.values(feature.column, partial(_in_unit, absence), math.nan)[reading.fits])


def _other_unit(reading: Reading, schema: DataSchema, name: str) -> str:
    """Why the numbers of an input look like another unit than the study's; empty if they do not."""
    feature = next((one for one in schema.features if one.column == name), None)
    if not isinstance(feature, NumericFeature):
        return ""
    absence = Absence(schema.missing, feature.missing)
    return looks_like_another(reading.values(name, partial(_in_unit, absence), math.nan), feature)


def _in_unit(absence: Absence, form: NumberForm) -> Parser[float]:
    """Reads a number in the study's unit; NaN where none stands."""

    def value(cell: Cell) -> float:
        found = None if form.covers(absence, cell) else form.number(cell)
        return math.nan if found is None else found

    return Parser(value, lambda values: (values, np.ones(len(values), np.bool_)), form.apart(absence), form)


def _missing(reading: Reading, schema: DataSchema, name: str) -> int:
    codes = next((feature.missing for feature in schema.features if feature.column == name), ())
    absence = Absence(schema.missing, codes)

    def along(values: Floats) -> tuple[leaks.Places, NDArray[np.bool_]]:
        return np.zeros(len(values), np.int64), np.ones(len(values), np.bool_)

    def made(form: NumberForm) -> Parser[int]:
        return Parser(lambda cell: int(form.covers(absence, cell)), along, form.apart(absence), form)

    return int(reading.values(name, made, 0).sum())


def _placed(reading: Reading, factor: DomainColumn, schema: DataSchema) -> leaks.Places:
    """The place of every row's value among the factor's; -1 if it does not fit."""
    return reading.values(factor.column, domain_parser(factor, schema.missing), -1)


def _domains(reading: Reading, schema: DataSchema) -> tuple[Domain, ...]:
    places = np.zeros(reading.rows, np.int64)
    known = np.ones(len(places), np.bool_)
    for factor in schema.domain:
        part = _placed(reading, factor, schema)
        known &= part >= 0
        places = places * len(factor.names) + part
    records, out = reading.records, ~reading.fits
    found = []
    for place, name in enumerate(schema.domains):
        own = records.domains == place
        patients = len(np.unique(records.patients[own]))
        found.append(Domain(name, int(own.sum()), patients, int((out & known & (places == place)).sum())))
    lost = int((out & ~known).sum()) + reading.broken
    return (*found, Domain(UNKNOWN, 0, 0, lost)) if lost else tuple(found)
