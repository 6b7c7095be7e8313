"""A silo's file, read against the study's schema (`policies.study.DataSchema`).

Guarantees that every input is computed from the record's own cells and public constants alone: no mean, no quantile,
no vocabulary of the silo's data enters (privacy.md: every patient's input would otherwise depend on every other).
A value outside the schema is an error with its place; a domain or class that is absent is normal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from policies.study import CategoryFeature, DataSchema, DomainColumn, NumericFeature
from silo_agent.data.cells import Absence, Cell, CodeTable, number, shown, text
from silo_agent.data.errors import LISTED, DataError, Fault
from silo_agent.data.records import Records
from silo_agent.data.table import Table, read_table

T = TypeVar("T")


class _Wrong(Exception):  # noqa: N818  # never leaves this module: `_Reading.column` turns it into a fault with a place
    """A cell does not fit; carries what was expected."""


class _Reading:
    """Reads columns of one table and gathers their faults."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.faults: list[Fault] = []
        self.total = 0

    def column(self, name: str, parse: Callable[[Cell], T], instead: T) -> list[T]:
        """Parse every cell of a column; a cell that does not fit becomes `instead` and a fault."""
        known: dict[Hashable, T] = {}
        parsed: list[T] = []
        for row, cell in zip(self.table.rows, self.table.columns[name], strict=True):
            key = (type(cell), cell)
            if key not in known:
                try:
                    known[key] = parse(cell)
                except _Wrong as wrong:
                    self._fault(row, name, cell, str(wrong))
                    parsed.append(instead)
                    continue
            parsed.append(known[key])
        return parsed

    def _fault(self, row: int, column: str, cell: Cell, expected: str) -> None:
        self.total += 1
        if len(self.faults) < LISTED:
            self.faults.append(Fault(self.table.file, row, column, shown(cell), expected))


def read_records(path: Path, schema: DataSchema) -> Records:
    """Read a CSV file, or Parquet where the suffix is `.parquet`.

    Returns records in the file's order; none at all is a normal result. Raises `DataError`, which lists file, row
    (1-based line of the file), column, what was found and what was expected.
    """
    table = read_table(path, schema)
    reading = _Reading(table)
    labels = reading.column(schema.label.column, _label(schema), 0.0)
    domains = np.zeros(len(table.rows), np.int64)
    for factor in schema.domain:
        parts = reading.column(factor.column, _domain(factor, schema.missing), 0)
        domains = domains * len(factor.names) + np.array(parts, np.int64)
    inputs = np.zeros((len(table.rows), schema.inputs), np.float32)
    start = 0
    for feature in schema.features:
        parse = _number(feature, schema) if isinstance(feature, NumericFeature) else _category(feature, schema)
        blank = (0.0,) * feature.width
        values = reading.column(feature.column, parse, blank)
        if values:
            inputs[:, start : start + feature.width] = np.array(values, np.float32)
        start += feature.width
    patients, identities = _patients(reading, schema)
    if reading.total:
        raise DataError(sorted(reading.faults, key=lambda fault: fault.row), reading.total)
    return Records(inputs, np.array(labels, np.float32), domains, patients, identities)


def _label(schema: DataSchema) -> Callable[[Cell], float]:
    positive, negative = CodeTable(schema.label.positive), CodeTable(schema.label.negative)

    def parse(cell: Cell) -> float:
        if positive.find(cell) is not None:
            return 1.0
        if negative.find(cell) is not None:
            return 0.0
        msg = f"{positive} (yes) or {negative} (no)"
        raise _Wrong(msg)

    return parse


def _domain(factor: DomainColumn, missing: Sequence[str]) -> Callable[[Cell], int]:
    absence = Absence(missing)
    codes = CodeTable(factor.values)

    def parse_code(cell: Cell) -> int:
        place = codes.find(cell)
        if place is None:
            raise _Wrong(str(codes))
        return place

    def parse_band(cell: Cell) -> int:
        value = None if absence.covers(cell) else number(cell)
        if value is None:
            msg = "a number such as 1.5: it decides the domain"
            raise _Wrong(msg)
        return int(np.searchsorted(factor.edges, value, side="right"))

    return parse_band if factor.edges else parse_code


def _number(feature: NumericFeature, schema: DataSchema) -> Callable[[Cell], tuple[float, ...]]:
    absence = Absence(schema.missing, feature.missing)
    log = feature.scale == "log"
    low, high = (math.log(v) if log else v for v in (feature.minimum, feature.maximum))

    def scaled(value: float) -> float:
        return 2.0 * ((math.log(value) if log else value) - low) / (high - low) - 1.0

    def parse(cell: Cell) -> tuple[float, ...]:
        if absence.covers(cell):
            if feature.fill is None:
                msg = f"a number in [{feature.minimum:g}, {feature.maximum:g}]; the study gives no fill for absence"
                raise _Wrong(msg)
            return scaled(feature.fill), 1.0
        value = number(cell)
        if value is None:
            msg = f"a number in [{feature.minimum:g}, {feature.maximum:g}], written like 1.5"
            raise _Wrong(msg)
        if not feature.minimum <= value <= feature.maximum:
            msg = f"a number in [{feature.minimum:g}, {feature.maximum:g}]"
            raise _Wrong(msg)
        return (scaled(value),) if feature.fill is None else (scaled(value), 0.0)

    return parse


def _category(feature: CategoryFeature, schema: DataSchema) -> Callable[[Cell], tuple[float, ...]]:
    absence = Absence(schema.missing, feature.missing)
    codes = CodeTable(feature.values)

    def one_hot(place: int) -> tuple[float, ...]:
        return tuple(float(i == place) for i in range(feature.width))

    def parse(cell: Cell) -> tuple[float, ...]:
        place = codes.find(cell)
        if place is not None:
            return one_hot(place)
        if feature.optional and absence.covers(cell):
            return one_hot(len(feature.values))
        raise _Wrong(f"{codes}, or nothing" if feature.optional else str(codes))

    return parse


def _patients(reading: _Reading, schema: DataSchema) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    if schema.patient is None:
        return np.arange(len(reading.table.rows), dtype=np.int64), reading.table.identities
    absence = Absence(schema.missing)

    def parse(cell: Cell) -> str:
        if absence.covers(cell) or text(cell) == "":
            msg = "the patient's identifier: it decides whose budget the record uses"
            raise _Wrong(msg)
        return text(cell)

    names = reading.column(schema.patient, parse, "")
    index: dict[str, int] = {}
    patients = np.array([index.setdefault(name, len(index)) for name in names], np.int64)
    return patients, tuple(index)
