"""A silo's file, read against the study's schema (`policies.documents.study.DataSchema`).

Guarantees: every input is computed only from the record's own cells and public constants. No mean, no quantile and no
vocabulary of the silo's data enters (docs/design/noise.md, "Public constants": every patient's input would otherwise
depend on every other). A domain or class without records is normal.

Everybody reads by `read_records`. For people inside the hospital, a record with a value outside the schema is a fault
with its place (`Reading.faults`). For training, whose results others see, such a record is left out without a word
(`Reading.records`). The callers must show faults to nobody outside.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from policies.documents.study import (
    BINARY,
    CategoryFeature,
    Code,
    DataSchema,
    DomainColumn,
    EnvironmentColumn,
    Label,
    NumericFeature,
)
from silo_agent.data.cells import Absence, Cell, CodeTable, OwnCodes, identifier, number, shown, text
from silo_agent.data.errors import DataError, Faults, RecordFault, Unfit
from silo_agent.data.image_store import ImageStore, reserve
from silo_agent.data.images import Images, Levels, PixelScale
from silo_agent.data.inputs import ABSENT, Inputs, stack
from silo_agent.data.outcome import place_parser
from silo_agent.data.records import NOBODY, Records
from silo_agent.data.table import Source, Table, Written, folder_of, needed_columns, read_table

T = TypeVar("T")
Codes = Mapping[str, Mapping[str, Code | None]]
_FARTHEST = 1.0 + 1e-9
"""Where rounding may put an end of a feature's range."""


class ColumnReader:
    """Reads columns of one table and collects their faults. `fits` (n,) marks the rows without faults.

    `codes` has the file's own codes by column, which are read as what they stand for.
    """

    def __init__(self, table: Table, faults: Faults, codes: Codes) -> None:
        self.table, self.faults = table, faults
        self.fits = np.ones(len(table.rows), np.bool_)
        self._spellings = {column: OwnCodes(own) for column, own in codes.items()}

    def column(self, name: str, parse: Callable[[Cell], T], instead: T) -> list[T]:
        """Parse every cell of a column. A cell that does not fit becomes `instead`, and a fault is added."""
        spelling = self._spellings.get(name)
        if spelling is None:
            return self.as_it_stands(name, parse, instead)
        return self.as_it_stands(name, lambda cell: parse(spelling.of(cell)), instead)

    def spelt(self, name: str) -> list[Cell]:
        """The cells of a column, with the file's own codes read as what they stand for."""
        spelling, cells = self._spellings.get(name), self.table.columns[name]
        return list(cells) if spelling is None else [spelling.of(cell) for cell in cells]

    def as_it_stands(self, name: str, parse: Callable[[Cell], T], instead: T) -> list[T]:
        """The same without the file's own codes: cells that say whose record it is stand for themselves."""
        known: dict[Hashable, T | Unfit] = {}
        parsed: list[T] = []
        for place, (row, cell) in enumerate(zip(self.table.rows, self.table.columns[name], strict=True)):
            key = (type(cell), cell)
            if key not in known:
                try:
                    known[key] = parse(cell)
                except Unfit as unfit:
                    known[key] = unfit
                except Exception as error:  # noqa: BLE001  # whatever a cell raises makes its record unfit
                    known[key] = Unfit("a value that can be used", type(error).__name__)
            result = known[key]
            if isinstance(result, Unfit):
                self.fits[place] = False
                self._describe(place, row, name, cell, result)
                result = instead
            parsed.append(result)
        return parsed

    def _describe(self, place: int, row: int, name: str, cell: Cell, unfit: Unfit) -> None:
        """Add a fault. If even that fails, because a cell cannot be shown, the record is left out all the same."""
        with suppress(Exception):
            found = f"{shown(cell)}, {unfit.found}" if unfit.found else shown(cell)
            self.faults.add(RecordFault(self.table.file_of(place), row, name, found, unfit.expected))

    def finish(self) -> None:
        """Raise `DataError` if anything did not fit."""
        if self.faults.total:
            raise DataError(self.faults.first(), self.faults.total)


@dataclass(frozen=True, repr=False)
class Reading:
    """What was read: all rows, and which of them fit, `fits` (n,).

    Private: faults quote cells, and the numbers count patients' records. `records` are those that fit, in the same
    order. `cells` gives a column's cells as studies spell them. `found` has what did not fit.
    """

    table: Table
    fits: NDArray[np.bool_]
    records: Records
    cells: Callable[[str], list[Cell]]
    found: Faults

    @property
    def kept(self) -> int:
        """How many records fit."""
        return len(self.records)

    @property
    def left_out(self) -> int:
        """How many records do not."""
        return self.table.broken + len(self.table.rows) - len(self.records)

    @property
    def faults(self) -> tuple[RecordFault, ...]:
        """The first faults by row; `total` counts all of them."""
        return self.found.first()

    @property
    def total(self) -> int:
        """How many faults there are; a record can have several."""
        return self.found.total

    def texts(self, column: str) -> tuple[str, ...]:
        """For each record that fits, what stands in a column of its file."""
        return tuple(text(cell) for cell, fits in zip(self.table.columns[column], self.fits, strict=True) if fits)

    def whole(self) -> Records:
        """All records. Raises `DataError`, with what was found and expected by row and column, if one does not fit."""
        if self.total:
            raise DataError(self.faults, self.total)
        return self.records

    def some(self) -> Records:
        """Those that fit. Raises `DataError` if there are records, and none of them fits."""
        if self.left_out and not self.kept:
            raise DataError(self.faults, self.total)
        return self.records

    def __repr__(self) -> str:
        return "Reading(<private>)"


def read_records(
    source: Source,
    schema: DataSchema,
    identified_by: Sequence[str] = (),
    *,
    written: Written | None = None,
    rows: Table | None = None,
    withdrawn: Collection[str] = (),
    more: Sequence[str] = (),
    room: Levels | None = None,
    faults: Faults | None = None,
) -> Reading:
    """Read a file (CSV, or Parquet if the suffix is `.parquet`), a folder of such files, or a database's statement.

    Outcomes are read in no other way. Who trains takes `Reading.records`: a record that does not fit the
    schema is left out, and nobody is told. An answer, a log line or a count that depended on such a record would tell
    a study's author about single patients, without any charge and as exactly as the author chooses the bounds. Whether
    a record is left out follows only from its own cells, its own image and the public schema, never from another
    record. So adding or removing a patient still adds or removes only that patient's fitting records: every
    sensitivity, sampling rate and clip of a release stays valid, and a patient without fitting records has no
    influence at all. People inside the hospital also see why (`faults`), or take `Reading.whole`, which refuses.

    If there is no patient column, the policy's columns `identified_by` say whose record it is. Without these columns
    the records have no identity, and `split` refuses them. `written` says how the hospital writes the file; without it
    the file is as the study says. `rows` are taken in place of those of the source, which then only says where images
    lie. Of the people in `withdrawn`, each named as in `Records.identities`, nothing is read or counted. `more` are
    columns that the study need not name. Every image is decoded once here. The first are kept in `room`, which the
    caller reserved; the others are decoded again when they are needed.

    Records are in the file's order; no record at all is a normal result. Raises `DataError` only for faults that no
    single record decides: the file is absent, unreadable or lacks a column.
    """
    faults = Faults() if faults is None else faults
    table = (
        read_rows(source, schema, identified_by, written=written, more=more, faults=faults) if rows is None else rows
    )
    schema = schema if written is None else written.schema(schema)
    if withdrawn and (schema.patient is not None or table.identities):
        table = table.without(withdrawn, schema.patient)
    reader = ColumnReader(table, faults, {} if written is None else written.codes)
    records = _fitting(reader, folder_of(source), schema, room)
    return Reading(table, reader.fits, records, reader.spelt, faults)


def read_rows(
    source: Source,
    schema: DataSchema,
    identified_by: Sequence[str],
    *,
    written: Written | None,
    more: Sequence[str] = (),
    faults: Faults | None = None,
) -> Table:
    """The rows as they stand, of which `read_records` makes records: who keeps them reads them first.

    Raises `DataError` as `read_records` does.
    """
    schema = schema if written is None else written.schema(schema)
    identified_by = () if schema.patient is not None else identified_by
    needed = (*needed_columns(schema), *more)
    return read_table(source, schema, Faults() if faults is None else faults, needed, identified_by=identified_by)


def _fitting(reader: ColumnReader, folder: Path, schema: DataSchema, room: Levels | None) -> Records:
    """Return the records without any fault. Every column is read first, so that `reader` has all faults."""
    labels = np.array(reader.column(schema.label.column, _outcome(schema.label), 0), np.int64)
    domains = np.zeros(len(reader.table.rows), np.int64)
    for factor in schema.domain:
        parts = reader.column(factor.column, domain_parser(factor, schema.missing), 0)
        domains = domains * len(factor.names) + np.array(parts, np.int64)
    environments = _environments(reader, schema)
    protected = read_protected(reader, schema)
    inputs = read_inputs(reader, schema)
    names = _names(reader, schema)
    images = read_images(reader, folder, schema, room)
    fits = reader.fits
    patients, identities = _patients([name for name, kept in zip(names, fits, strict=True) if kept], schema)
    images = None if images is None else images.subset(fits)
    environments = None if environments is None else environments[fits]
    protected = None if protected is None else protected[fits]
    return Records(
        inputs.subset(fits), labels[fits], domains[fits], patients, identities, images, environments, protected
    )


def _environments(reader: ColumnReader, schema: DataSchema) -> NDArray[np.int64] | None:
    """The environment of every row, (n,); None if the schema has no such column."""
    if schema.environment is None:
        return None
    parse = domain_parser(schema.environment, schema.missing, "environment")
    return np.array(reader.column(schema.environment.column, parse, 0), np.int64)


def read_protected(reader: ColumnReader, schema: DataSchema) -> NDArray[np.int64] | None:
    """Return the place of every record's value of each protected attribute, (n, P); None if the study has none."""
    if not schema.protected:
        return None
    parsers = ((factor, domain_parser(factor, schema.missing, "protected group")) for factor in schema.protected)
    return np.array([reader.column(factor.column, parse, 0) for factor, parse in parsers], np.int64).T


def read_inputs(reader: ColumnReader, schema: DataSchema) -> Inputs:
    """Return the features, one cell for each."""
    columns, fills = [], []
    for feature in schema.features:
        if isinstance(feature, NumericFeature):
            fill = _scaled_fill(feature)
            parse = _number(feature, schema, fill)
        else:
            fill, parse = math.nan, _category(feature, schema)
        columns.append(np.array(reader.column(feature.column, parse, 0.0), np.float32))
        fills.append(fill)
    return Inputs(stack(columns, len(reader.table.rows)), schema.features, tuple(fills))


def empty_records(schema: DataSchema) -> Records:
    """The records of a study at a silo without patients."""
    none = np.zeros(0, np.int64)
    images = None
    if schema.image is not None:
        scale = PixelScale.of(schema.image)
        size = (0, schema.image.channels, schema.image.height, schema.image.width)
        images = Images(np.zeros(size, scale.kind), scale.top)
    environments = None if schema.environment is None else none
    protected = np.zeros((0, len(schema.protected)), np.int64) if schema.protected else None
    return Records(np.zeros((0, schema.inputs), np.float32), none, none, none, (), images, environments, protected)


def _outcome(label: Label) -> Callable[[Cell], int]:
    """Return a function that finds a cell's class, or the place of its number, and raises `Unfit` for other cells."""
    return _class(label) if label.number is None else place_parser(label)


def _class(label: Label) -> Callable[[Cell], int]:
    tables = [CodeTable(codes) for codes in label.codes]
    if label.count == BINARY:
        negative, positive = tables
        expected = f"{positive} (yes) or {negative} (no)"
    else:
        expected = "; ".join(f"{table} (class {place})" for place, table in enumerate(tables))

    def parse(cell: Cell) -> int:
        places = [place for place, table in enumerate(tables) if table.find(cell) is not None]
        if len(places) > 1:
            msg = f"a code of one class, but the study lists it for {len(places)}"
            raise Unfit(msg)
        if not places:
            raise Unfit(expected)
        return places[0]

    return parse


def domain_parser(
    factor: DomainColumn | EnvironmentColumn, missing: Sequence[str], what: str = "domain"
) -> Callable[[Cell], int]:
    """Return a function that finds a cell's place among a factor's values, and raises `Unfit` for other cells."""
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
            msg = f"a number such as 1.5: it decides the {what}"
            raise Unfit(msg)
        return int(np.searchsorted(factor.edges, value, side="right"))

    return parse_band if factor.edges else parse_code


def _scaled(feature: NumericFeature, value: float) -> float:
    """A number within the feature's range as a finite float32 in [-1, 1], or raise `ArithmeticError` or `ValueError`.

    The document bounds the range so that nothing is raised. This does not rest on it.
    """
    low, high, placed = map(feature.along, (feature.minimum, feature.maximum, value))
    scaled = 2.0 * (placed - low) / (high - low) - 1.0
    if not abs(scaled) <= _FARTHEST:
        msg = "the feature's range cannot be scaled"
        raise FloatingPointError(msg)
    return scaled


def _scaled_fill(feature: NumericFeature) -> float:
    """The scaled fill; NaN if there is none, or none that can be used."""
    try:
        return math.nan if feature.fill is None else _scaled(feature, feature.fill)
    except (ArithmeticError, ValueError):
        return math.nan


def _number(feature: NumericFeature, schema: DataSchema, fill: float) -> Callable[[Cell], float]:
    absence = Absence(schema.missing, feature.missing)

    def parse(cell: Cell) -> float:
        if absence.covers(cell):
            if math.isnan(fill):
                msg = f"a number in [{feature.minimum:g}, {feature.maximum:g}]; the study gives no fill for empty cells"
                raise Unfit(msg)
            return float(ABSENT)
        value = number(cell)
        if value is None:
            msg = f"a number in [{feature.minimum:g}, {feature.maximum:g}], written like 1.5"
            raise Unfit(msg)
        if feature.outside == "clip":
            value = min(max(value, feature.minimum), feature.maximum)
        if not feature.minimum <= value <= feature.maximum:
            msg = f"a number in [{feature.minimum:g}, {feature.maximum:g}]"
            raise Unfit(msg)
        return _scaled(feature, value)

    return parse


def _category(feature: CategoryFeature, schema: DataSchema) -> Callable[[Cell], float]:
    absence = Absence(schema.missing, feature.missing)
    codes = CodeTable(feature.values)

    def parse(cell: Cell) -> float:
        """Return the place of the cell's code; absence is the last place."""
        place = codes.find(cell)
        if place is not None:
            return float(place)
        if feature.optional and absence.covers(cell):
            return float(len(feature.values))
        raise Unfit(f"{codes}, or nothing" if feature.optional else str(codes))

    return parse


def read_images(reader: ColumnReader, folder: Path, schema: DataSchema, room: Levels | None = None) -> Images | None:
    """Return the images that a column names, from files below `folder`; None if the schema has no such column.

    `room` keeps as many of them as it can hold; by default there is room for the most that any study may keep.
    """
    if schema.image is None:
        return None
    store = ImageStore(folder, schema.image, reserve(schema.image) if room is None else room)
    return store.images(reader.column(schema.image.column, store.place, 0))


def _names(reader: ColumnReader, schema: DataSchema) -> Sequence[str]:
    """Return for every row whose it is: the patient's identifier, or the row's own identity."""
    if schema.patient is None:
        return reader.table.identities or (NOBODY,) * len(reader.table.rows)
    return reader.as_it_stands(schema.patient, patient_parser(schema.missing), "")


def _patients(names: Sequence[str], schema: DataSchema) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    if schema.patient is None:
        return np.arange(len(names), dtype=np.int64), tuple(names)
    index: dict[str, int] = {}
    patients = np.array([index.setdefault(name, len(index)) for name in names], np.int64)
    return patients, tuple(index)


def patient_parser(missing: Sequence[str]) -> Callable[[Cell], str]:
    """Return a function that reads a patient's identifier, and raises `Unfit` if it is absent."""
    absence = Absence(missing)

    def parse(cell: Cell) -> str:
        try:
            name = "" if absence.covers(cell) else identifier(cell)
        except ValueError:
            msg = "an identifier that is text or a whole number; save the column anew as one of these"
            raise Unfit(msg) from None
        if not name:
            msg = "the patient's identifier: it decides whose budget the record uses"
            raise Unfit(msg)
        return name

    return parse
