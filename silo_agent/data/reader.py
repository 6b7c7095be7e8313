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

from policies.study import BINARY, CategoryFeature, DataSchema, DomainColumn, Label, NumericFeature
from silo_agent.data.cells import Absence, Cell, CodeTable, identifier, number, shown
from silo_agent.data.errors import LISTED, DataError, Fault, Unfit
from silo_agent.data.image_store import ImageStore
from silo_agent.data.images import Images
from silo_agent.data.records import NOBODY, Records
from silo_agent.data.table import Table, read_table

T = TypeVar("T")


class Reading:
    """Reads columns of one table and gathers their faults."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.faults: list[Fault] = []
        self.total = 0

    def column(self, name: str, parse: Callable[[Cell], T], instead: T) -> list[T]:
        """Parse every cell of a column; a cell that does not fit becomes `instead` and a fault."""
        known: dict[Hashable, T | Unfit] = {}
        parsed: list[T] = []
        for row, cell in zip(self.table.rows, self.table.columns[name], strict=True):
            key = (type(cell), cell)
            if key not in known:
                try:
                    known[key] = parse(cell)
                except Unfit as unfit:
                    known[key] = unfit
            result = known[key]
            if isinstance(result, Unfit):
                self._fault(row, name, cell, result)
                result = instead
            parsed.append(result)
        return parsed

    def _fault(self, row: int, column: str, cell: Cell, unfit: Unfit) -> None:
        self.total += 1
        if len(self.faults) < LISTED:
            found = f"{shown(cell)}, {unfit.found}" if unfit.found else shown(cell)
            self.faults.append(Fault(self.table.file, row, column, found, unfit.expected))

    def finish(self) -> None:
        """Raise `DataError` where any cell did not fit."""
        if self.total:
            raise DataError(sorted(self.faults, key=lambda fault: fault.row), self.total)


def read_records(path: Path, schema: DataSchema, identified_by: Sequence[str] = ()) -> Records:
    """Read a CSV file, or Parquet where the suffix is `.parquet`.

    Without a patient column the policy's columns `identified_by` say whose record it is; without these the records have
    no identity, and `split` refuses them.
    Returns records in the file's order; none at all is a normal result. Raises `DataError`, which lists file, row
    (1-based line of the file), column, what was found and what was expected.
    """
    reading = Reading(read_table(path, schema, identified_by=() if schema.patient is not None else identified_by))
    labels = reading.column(schema.label.column, _label(schema.label), 0)
    domains = np.zeros(len(reading.table.rows), np.int64)
    for factor in schema.domain:
        parts = reading.column(factor.column, domain_parser(factor, schema.missing), 0)
        domains = domains * len(factor.names) + np.array(parts, np.int64)
    inputs = read_inputs(reading, schema)
    patients, identities = _patients(reading, schema)
    images = read_images(reading, path.parent, schema)
    reading.finish()
    return Records(inputs, np.array(labels, np.int64), domains, patients, identities, images)


def read_inputs(reading: Reading, schema: DataSchema) -> NDArray[np.float32]:
    """The features as the model takes them, (n, d)."""
    inputs = np.zeros((len(reading.table.rows), schema.inputs), np.float32)
    start = 0
    for feature in schema.features:
        parse = _number(feature, schema) if isinstance(feature, NumericFeature) else _category(feature, schema)
        blank = (0.0,) * feature.width
        values = reading.column(feature.column, parse, blank)
        if values:
            inputs[:, start : start + feature.width] = np.array(values, np.float32)
        start += feature.width
    return inputs


def _label(label: Label) -> Callable[[Cell], int]:
    tables = [CodeTable(codes) for codes in label.codes]
    if label.count == BINARY:
        negative, positive = tables
        expected = f"{positive} (yes) or {negative} (no)"
    else:
        expected = "; ".join(f"{table} (class {place})" for place, table in enumerate(tables))

    def parse(cell: Cell) -> int:
        places = [place for place, table in enumerate(tables) if table.find(cell) is not None]
        if len(places) > 1:
            msg = f"a code of one class; the study lists it for {len(places)}"
            raise Unfit(msg)
        if not places:
            raise Unfit(expected)
        return places[0]

    return parse


def domain_parser(factor: DomainColumn, missing: Sequence[str]) -> Callable[[Cell], int]:
    """Finds a cell's place among one factor's names; what is not among them is `Unfit`."""
    absence = Absence(missing)
    codes = CodeTable(factor.values)

    def parse_code(cell: Cell) -> int:
        place = codes.find(cell)
        if place is None:
            raise Unfit(str(codes))
        return place

    def parse_band(cell: Cell) -> int:
        value = None if absence.covers(cell) else number(cell)
        if value is None:
            msg = "a number such as 1.5: it decides the domain"
            raise Unfit(msg)
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
                raise Unfit(msg)
            return scaled(feature.fill), 1.0
        value = number(cell)
        if value is None:
            msg = f"a number in [{feature.minimum:g}, {feature.maximum:g}], written like 1.5"
            raise Unfit(msg)
        if not feature.minimum <= value <= feature.maximum:
            msg = f"a number in [{feature.minimum:g}, {feature.maximum:g}]"
            raise Unfit(msg)
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
        raise Unfit(f"{codes}, or nothing" if feature.optional else str(codes))

    return parse


def read_images(reading: Reading, folder: Path, schema: DataSchema) -> Images | None:
    """The images that a column names, from files below `folder`; None where the schema has no such column."""
    if schema.image is None:
        return None
    column = schema.image.column
    store = ImageStore(folder, schema.image, len(set(reading.table.columns[column])))
    return store.images(reading.column(column, store.place, 0))


def _patients(reading: Reading, schema: DataSchema) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    if schema.patient is None:
        count = len(reading.table.rows)
        return np.arange(count, dtype=np.int64), reading.table.identities or (NOBODY,) * count
    names = reading.column(schema.patient, patient_parser(schema.missing), "")
    index: dict[str, int] = {}
    patients = np.array([index.setdefault(name, len(index)) for name in names], np.int64)
    return patients, tuple(index)


def patient_parser(missing: Sequence[str]) -> Callable[[Cell], str]:
    """Reads a patient's identifier; one that is absent is `Unfit`."""
    absence = Absence(missing)

    def parse(cell: Cell) -> str:
        if absence.covers(cell) or identifier(cell) == "":
            msg = "the patient's identifier: it decides whose budget the record uses"
            raise Unfit(msg)
        return identifier(cell)

    return parse
