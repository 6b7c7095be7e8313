"""A silo's file, read against the study's schema (`policies.documents.study.DataSchema`).

Guarantees: every input is computed only from the record's own cells and public constants. No mean, no quantile and no
vocabulary of the silo's data enters (docs/design/noise.md, "Public constants": every patient's input would otherwise
depend on every other). A domain or class without records is normal.

Everybody reads by `read_records`. For people inside the hospital, a record with a value outside the schema is a fault
with its place (`Reading.faults`). For training, whose results others see, such a record is left out without a word
(`Reading.records`). The callers must show faults to nobody outside.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from policies.documents.sections.spelling import UTF_8, Spelling
from policies.documents.study import Code, DataSchema
from silo_agent.data.cells import Cell, OwnCodes, shown, text
from silo_agent.data.columns.arrow_cells import Places, distinct, give_back, joined
from silo_agent.data.columns.collected import Collected
from silo_agent.data.columns.names import Numbering
from silo_agent.data.columns.number_forms import PLAIN, NumberForm
from silo_agent.data.columns.own_columns import OwnColumns
from silo_agent.data.columns.parsers import (
    domain_parser,
    feature_parser,
    outcome_parser,
    patient_parser,
    scaled_fill,
)
from silo_agent.data.columns.parsing import Make, Parser, of_codes, read_cells, read_distinct
from silo_agent.data.errors import DataError, Faults, RecordFault, Unfit
from silo_agent.data.image_store import ImageStore, reserve
from silo_agent.data.images import Images, Levels, PixelScale
from silo_agent.data.inputs import Inputs
from silo_agent.data.records import NOBODY, Records
from silo_agent.data.sources.opening import OpenSource, open_source
from silo_agent.data.table import Source, Table, Written, folder_of, needed_columns

T = TypeVar("T")


class Spellings:
    """A file's own codes and forms of numbers by column, which are read as what they stand for in studies."""

    def __init__(
        self, codes: Mapping[str, Mapping[str, Code | None]], spelling: Spelling, units: Mapping[str, str]
    ) -> None:
        self._own = {column: OwnCodes(own) for column, own in codes.items()}
        self._plain = NumberForm(spelling.decimal)
        self._forms = dict[str, NumberForm]()
        for column, unit in spelling.units.items():
            made = unit.conversion(units.get(column))
            if made is not None:
                self._forms[column] = NumberForm(spelling.decimal, made.factor, made.offset)

    @classmethod
    def of(cls, written: Written | None, schema: DataSchema) -> Self:
        """Those that a policy lists, for the units of a study. `policies.file_fit` refuses those that it lacks."""
        return cls({}, Spelling(), {}) if written is None else cls(written.codes, written.spelling, schema.units)

    def parser(self, column: str, make: Make[T]) -> Parser[T]:
        """A parser of a column's cells as the file has them. Own codes stand for what a study would write."""
        parser = make(self._forms.get(column, self._plain))
        own = self._own.get(column)
        return parser if own is None else parser.spelt(own, make(PLAIN).parse)


class ColumnReader:
    """Reads columns of one table and collects their faults. `fits` (n,) marks the rows without faults."""

    def __init__(self, table: Table, faults: Faults, spellings: Spellings) -> None:
        self.table, self.faults, self._spellings = table, faults, spellings
        self.fits = np.ones(len(table.rows), np.bool_)

    def column(self, name: str, make: Make[T], instead: T) -> NDArray[Any]:
        """Read every cell of a column, (n,). A cell that does not fit becomes `instead`, and a fault is added."""
        parsed = read_cells(self.table.columns[name], self._spellings.parser(name, make), instead)
        for place, reason in zip(parsed.unfit.tolist(), parsed.reasons, strict=True):
            self._describe(place, name, reason)
        self.fits[parsed.unfit] = False
        return parsed.values

    def names(self, name: str, parse: Callable[[Cell], str]) -> tuple[Places, list[str]]:
        """Each cell's place among the different ones, (n,), and what each of these is called.

        The file's own codes do not count: cells that say whose record it is stand for themselves. A cell that does not
        fit is called "", and a fault is added.
        """
        codes, reasons, called = read_distinct(self.table.columns[name], parse)
        wrong = np.array([reason is not None for reason in reasons], np.bool_)
        for place in np.flatnonzero(wrong[codes]).tolist() if wrong.any() else ():
            reason = reasons[codes[place]]
            if reason is not None:
                self.fits[place] = False
                self._describe(place, name, reason)
        return codes, [name or "" for name in called]

    def _describe(self, place: int, name: str, unfit: Unfit) -> None:
        """Add a fault. If even that fails, because a cell cannot be shown, the record is left out all the same."""
        with suppress(Exception):
            cell = self.table.columns[name][place]
            found = f"{shown(cell)}, {unfit.found}" if unfit.found else shown(cell)
            row = int(self.table.rows[place])
            self.faults.add(RecordFault(self.table.file_of(place), row, name, found, unfit.expected))

    def finish(self) -> None:
        """Raise `DataError` if anything did not fit."""
        if self.faults.total:
            raise DataError.of(self.faults)


@dataclass(frozen=True, repr=False)
class Reading:
    """What was read of `rows` rows, and which of them fit, `fits` (n,). Of `broken` more nothing could be read.

    Private: faults quote cells, and the numbers count patients' records. `records` are those that fit, in the same
    order. `cells` has the columns that were asked for beside, with the cells of all rows as they stand in the file.
    `found` has what did not fit.
    """

    fits: NDArray[np.bool_]
    broken: int
    records: Records
    cells: Mapping[str, Sequence[Cell]]
    found: Faults
    spellings: Spellings

    @property
    def kept(self) -> int:
        """How many records fit."""
        return len(self.records)

    @property
    def rows(self) -> int:
        """How many rows could be read."""
        return len(self.fits)

    @property
    def left_out(self) -> int:
        """How many records do not."""
        return self.broken + self.rows - len(self.records)

    @property
    def faults(self) -> tuple[RecordFault, ...]:
        """The first faults by row; `total` counts all of them."""
        return self.found.first()

    @property
    def total(self) -> int:
        """How many faults there are; a record can have several."""
        return self.found.total

    def texts(self, column: str) -> tuple[str, ...]:
        """For each record that fits, what stands in a column of `cells`."""
        return tuple(text(cell) for cell, fits in zip(self.cells[column], self.fits, strict=True) if fits)

    def values(self, column: str, make: Make[T], instead: T) -> NDArray[Any]:
        """What a parser gives for every cell of a column of `cells`, as studies spell them; `instead` for the unfit."""
        return read_cells(self.cells[column], self.spellings.parser(column, make), instead).values

    def whole(self) -> Records:
        """All records. Raises `DataError`, with what was found and expected by row and column, if one does not fit."""
        if self.total:
            raise DataError.of(self.found)
        return self.records

    def some(self) -> Records:
        """Those that fit. Raises `DataError` if there are records, and none of them fits."""
        if self.left_out and not self.kept:
            raise DataError.of(self.found)
        return self.records

    def __repr__(self) -> str:
        return "Reading(<private>)"


def read_records(
    source: Source,
    schema: DataSchema,
    identified_by: Sequence[str] = (),
    *,
    written: Written | None = None,
    withdrawn: Collection[str] = (),
    more: Sequence[str] = (),
    room: Levels | None = None,
    faults: Faults | None = None,
    seen: Callable[[int], object] = lambda _: None,
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
    the file is as the study says. Of the people in `withdrawn`, each named as in `Records.identities`, nothing is read
    or counted. `more` are columns, which the study need not name, whose cells `Reading.cells` keeps. Every image is
    decoded once here. The first are kept in `room`, which the caller reserved; the others are decoded again when they
    are needed.

    `seen` is told how many more rows were read, some thousands at a time.

    Records are in the file's order; no record at all is a normal result. Raises `DataError` only for faults that no
    single record decides: the file is absent, unreadable or lacks a column.
    """
    faults = Faults() if faults is None else faults
    opened = open_rows(source, schema, identified_by, written=written, more=more)
    builder = RecordBuilder(folder_of(source), schema, written, more=more, room=room, faults=faults)
    for table in opened.tables(opened.columns, faults):
        builder.add(table.without(withdrawn, schema.patient))
        seen(len(table.rows) + table.broken)
    return builder.reading()


def open_rows(
    source: Source,
    schema: DataSchema,
    identified_by: Sequence[str],
    *,
    written: Written | None,
    more: Sequence[str] = (),
) -> OpenSource:
    """Open a source for the columns that `RecordBuilder` reads. Raises `DataError` as `read_records` does."""
    schema = schema if written is None else written.schema(schema)
    identified_by = () if schema.patient is not None else identified_by
    needed = OwnColumns(written, schema.missing).needed((*needed_columns(schema), *more))
    encoding = UTF_8 if written is None else written.encoding
    return open_source(source, schema, needed, identified_by=identified_by, encoding=encoding)


class RecordBuilder:
    """Records of one table after another. Only what fits is kept, and the cells of the columns `more`."""

    def __init__(
        self,
        folder: Path,
        schema: DataSchema,
        written: Written | None,
        *,
        more: Sequence[str] = (),
        room: Levels | None = None,
        faults: Faults | None = None,
    ) -> None:
        schema = schema if written is None else written.schema(schema)
        self._schema, self._more = schema, tuple(more)
        self._spellings = Spellings.of(written, schema)
        self._own = OwnColumns(written, schema.missing)
        self._faults = Faults() if faults is None else faults
        self._store = None
        if schema.image is not None:
            self._store = ImageStore(folder, schema.image, reserve(schema.image) if room is None else room)
        self._fits, self._inputs = Collected(np.bool_), Collected(np.float32, (len(schema.features),))
        self._labels, self._domains, self._environments, self._images = (Collected(np.int64) for _ in range(4))
        self._protected = Collected(np.int64, (len(schema.protected),))
        self._whose = Numbering(one_each=schema.patient is None)
        self._cells = dict[str, list[Sequence[Cell]]]((name, []) for name in self._more)
        self._broken = 0

    def add(self, table: Table) -> None:
        """Read the rows of one more table. Every column is read, so that each of their faults is found."""
        table = self._own.table(table)
        reader = ColumnReader(table, self._faults, self._spellings)
        schema, store = self._schema, self._store
        labels = reader.column(schema.label.column, outcome_parser(schema.label), 0)
        domains = read_domains(reader, schema)
        environments = None
        if schema.environment is not None:
            make = domain_parser(schema.environment, schema.missing, "environment")
            environments = reader.column(schema.environment.column, make, 0)
        protected = read_protected(reader, schema)
        inputs = read_inputs(reader, schema)
        codes, names = _names(reader, schema)
        images = None
        if store is not None and schema.image is not None:
            images = image_places(reader, store, schema.image.column)
        fits = reader.fits
        self._fits.add(fits)
        self._whose.add(codes[fits], names)
        self._inputs.add(inputs[fits])
        self._labels.add(labels[fits])
        self._domains.add(domains[fits])
        for collected, rows in (
            (self._environments, environments),
            (self._protected, protected),
            (self._images, images),
        ):
            if rows is not None:
                collected.add(rows[fits])
        for name, cells in self._cells.items():
            cells.append(table.columns[name])
        self._broken += table.broken

    def reading(self) -> Reading:
        """All that was read."""
        schema = self._schema
        give_back()
        whose = self._whose.all()
        give_back()
        images = None if self._store is None else self._store.images(self._images.whole())
        records = Records(
            Inputs(self._inputs.whole(), schema.features, tuple(map(scaled_fill, schema.features))),
            self._labels.whole(),
            self._domains.whole(),
            *whose,
            images,
            None if schema.environment is None else self._environments.whole(),
            self._protected.whole() if schema.protected else None,
        )
        cells = {name: joined(parts) for name, parts in self._cells.items()}
        return Reading(self._fits.whole(), self._broken, records, cells, self._faults, self._spellings)


def read_domains(reader: ColumnReader, schema: DataSchema) -> NDArray[np.int64]:
    """Return the domain of every row, (n,): the product of its factors' places."""
    domains = np.zeros(len(reader.table.rows), np.int64)
    for factor in schema.domain:
        domains = domains * len(factor.names) + reader.column(factor.column, domain_parser(factor, schema.missing), 0)
    return domains


def read_protected(reader: ColumnReader, schema: DataSchema) -> NDArray[np.int64] | None:
    """Return the place of every record's value of each protected attribute, (n, P); None if the study has none."""
    if not schema.protected:
        return None
    makes = ((factor, domain_parser(factor, schema.missing, "protected group")) for factor in schema.protected)
    return np.stack([reader.column(factor.column, make, 0) for factor, make in makes], axis=1)


def read_inputs(reader: ColumnReader, schema: DataSchema) -> NDArray[np.float32]:
    """Return the features' cells as `Inputs` hold them, (n, features)."""
    inputs = np.empty((len(reader.table.rows), len(schema.features)), np.float32)
    for place, feature in enumerate(schema.features):
        inputs[:, place] = reader.column(feature.column, feature_parser(feature, schema), 0.0)
    return inputs


def read_images(reader: ColumnReader, folder: Path, schema: DataSchema) -> Images | None:
    """Return the images that a column names, from files below `folder`; None if the schema has no such column.

    There is room for the most that any study may keep.
    """
    if schema.image is None:
        return None
    store = ImageStore(folder, schema.image, reserve(schema.image))
    return store.images(image_places(reader, store, schema.image.column))


def image_places(reader: ColumnReader, store: ImageStore, column: str) -> NDArray[np.int64]:
    """The place in a store of every row's image, (n,)."""
    _, different = distinct(reader.table.columns[column])
    store.expect(different)
    return reader.column(column, of_codes(store.place), 0)


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


def _names(reader: ColumnReader, schema: DataSchema) -> tuple[Places, Sequence[str]]:
    """For every row whose it is, as its place among names: the patient's identifier, or the row's own identity."""
    if schema.patient is not None:
        return reader.names(schema.patient, patient_parser(schema.missing))
    count = len(reader.table.rows)
    return np.arange(count), reader.table.identities or (NOBODY,) * count
