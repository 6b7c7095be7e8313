"""Where rows come from: a CSV file, a Parquet file (by its suffix), a folder of both, or a database's statement.

Guarantees: a source that lacks a column, or is of another form, is refused before a record is looked at, with all that
is wrong. Rows come some thousands at a time, so memory does not follow from how many there are. A broken row is a fault
and is left out, because of that row alone; the reader decides what follows from it.
"""

from __future__ import annotations

import codecs
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from policies.documents.sections.spelling import UTF_8
from policies.documents.study import DataSchema
from silo_agent.config import SqlSource
from silo_agent.data.cells import MAX_TEXT, Cell
from silo_agent.data.columns.arrow_cells import taken
from silo_agent.data.csv_rows import split_line
from silo_agent.data.errors import DataAbsentError, DataError, Faults, RecordError, RecordFault, Unfit
from silo_agent.data.sources import sql
from silo_agent.data.sources.csv_blocks import line_blocks, rows_of_block
from silo_agent.data.sources.parquet_rows import parquet_rows
from silo_agent.data.sources.sql import AwayError, SqlError
from silo_agent.data.sources.sql_batches import SqlRows
from silo_agent.data.table import Source, Table, needed_columns

T = TypeVar("T")
Tables = Callable[[Collection[str], Faults], Iterator[Table]]
_DECODED = (
    f"text in UTF-8 of at most {MAX_TEXT} characters, a number, or a time of the years 1 to 9999 in whole microseconds"
)
_AS_NEEDED: Final[dict[str, Any]] = {"pre_buffer": False, "buffer_size": 1 << 16}
"""Parquet's columns are read page by page; else whole groups of rows lie in memory."""
_DELIMITERS: Final = {";": "semicolons", "\t": "tabs", ",": "commas", "|": "bars"}


@dataclass(frozen=True)
class OpenSource:
    """A source whose form is right. `columns` are those of the wanted ones that it has.

    `tables` gives the rows of some of these columns, in order, and adds the broken ones to faults. It raises
    `DataError` if the system cannot read a file any further, and `RecordError` if what was read is why.
    """

    name: str
    columns: tuple[str, ...]
    tables: Tables


def open_source(
    source: Source,
    schema: DataSchema,
    needed: Sequence[str] | None = None,
    optional: Collection[str] = (),
    *,
    identified_by: Sequence[str] = (),
    encoding: str = UTF_8,
) -> OpenSource:
    """Open a source for the `needed` columns, by default all of the schema. Those also `optional` may be absent.

    `encoding` is that of CSV files. The columns `identified_by` are needed too, and make `Table.identities`. Raises
    `DataError` only for faults that no single record decides: the file is absent, unreadable or lacks a column.
    """
    asked = needed_columns(schema) if needed is None else tuple(needed)
    wanted = tuple(dict.fromkeys([*asked, *identified_by]))
    asks = _Asked(schema, wanted, optional, encoding)
    if isinstance(source, SqlSource):
        opened = _open_database(source, asks)
    elif source.is_dir():
        opened = _open_folder(source, asks)
    else:
        opened = _open_file(source, asks)
    if not identified_by:
        return opened

    def tables(columns: Collection[str], faults: Faults) -> Iterator[Table]:
        return (table.identified(identified_by, faults) for table in opened.tables(columns, faults))

    return replace(opened, tables=tables)


def read_table(
    source: Source,
    schema: DataSchema,
    faults: Faults,
    needed: Sequence[str] | None = None,
    optional: Collection[str] = (),
    *,
    encoding: str = UTF_8,
) -> Table:
    """All rows of a source at once, for whoever keeps them all. Arguments and errors as for `open_source`."""
    opened = open_source(source, schema, needed, optional, encoding=encoding)
    return Table.joined(opened.name, list(opened.tables(opened.columns, faults)), opened.columns)


@dataclass(frozen=True)
class _Asked:
    """What is asked of a source: the columns that are `wanted`, of which it may lack those also `optional`."""

    schema: DataSchema
    wanted: Sequence[str]
    optional: Collection[str]
    encoding: str

    def of(self, header: Sequence[str]) -> tuple[str, ...]:
        """The wanted columns without the optional ones that a header lacks."""
        return tuple(name for name in self.wanted if name in header or name not in self.optional)


def _open_file(path: Path, asks: _Asked) -> OpenSource:
    with _readable(path):
        return _FORMATS.get(path.suffix, _open_csv)(path, asks)


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Within it, what a file raises is a `DataError`."""
    try:
        yield
    except FileNotFoundError:
        raise _absence(path.name, "no file", "a file there; fix the path, in the command or in agent.yaml") from None
    except (OSError, UnicodeDecodeError, pa.ArrowException) as error:
        raise _refusal(path.name, f"an unreadable file ({type(error).__name__})", "a readable file") from None


@contextmanager
def _of_records(path: Path) -> Iterator[None]:
    """Within it, what a file holds behind its header may be one record's, and is a `RecordError`."""
    try:
        yield
    except pa.ArrowException as error:
        said = (str(error).splitlines() or [""])[0]
        msg = f"{path.name}: {type(error).__name__}: {said}"
        raise RecordError(msg) from None


def _open_folder(folder: Path, asks: _Asked) -> OpenSource:
    """Open all files of a folder, by name. What is wrong with any of them is raised at once."""
    try:
        found = sorted(path for path in folder.iterdir() if path.suffix in SUFFIXES and not path.name.startswith("."))
    except OSError as error:
        raise _refusal(folder.name, f"an unreadable folder ({type(error).__name__})", "a readable folder") from None
    if not found:
        raise _absence(folder.name, "a folder without data", f"files that end in {' or '.join(SUFFIXES)}")
    files = _all(partial(_open_file, path, asks) for path in found)
    columns = tuple(name for name in asks.wanted if all(name in file.columns for file in files))

    def tables(names: Collection[str], faults: Faults) -> Iterator[Table]:
        for file in files:
            yield from file.tables(names, faults)

    return OpenSource(folder.name, columns, tables)


def _all(openings: Iterable[Callable[[], T]]) -> list[T]:
    """What each gives. Raises one `DataError` with the faults of all that raise one."""
    made, wrong = [], list[RecordFault]()
    for opening in openings:
        try:
            made.append(opening())
        except DataError as error:
            wrong += error.faults
    if wrong:
        raise DataError(wrong)
    return made


def _open_database(source: SqlSource, asks: _Asked) -> OpenSource:
    if asks.schema.image is not None:
        raise _refusal(source.name, "a study with images", "a file or folder beside the images, under data")
    try:
        names = sql.columns(source)
    except AwayError as error:
        raise _absence(source.name, error.found, error.expected) from None
    except SqlError as error:
        raise _refusal(source.name, error.found, error.expected) from None
    header = _listed(source.name, asks.schema, names)
    needed = asks.of(header)
    placed = dict(zip(needed, _places(source.name, header, needed), strict=True))

    # All that others may hear of has been checked. What fails from here on may follow from a record.
    def tables(columns: Collection[str], faults: Faults) -> Iterator[Table]:
        first = 1
        for found in sql.rows(source):
            yield _of_database(source.name, found, first, {name: placed[name] for name in columns}, faults)
            first += found.count

    return OpenSource(source.name, needed, tables)


def _of_database(name: str, found: SqlRows, first: int, placed: Mapping[str, int], faults: Faults) -> Table:
    columns = dict[str, Sequence[Cell]]()
    broken = set[int]()
    for column, place in placed.items():
        columns[column], undecoded = found.column(place)
        broken.update(undecoded)
    for row in sorted(broken):
        faults.add(RecordFault(name, first + row, "", "a value that cannot be decoded", _DECODED))
    kept = np.setdiff1d(np.arange(found.count), list(broken)) if broken else np.arange(found.count)
    if broken:
        columns = {column: taken(cells, kept) for column, cells in columns.items()}
    return Table(name, columns, first + kept, broken=len(broken))


def _open_csv(path: Path, asks: _Asked) -> OpenSource:
    schema = asks.schema
    header = list(schema.columns) or _header(path, schema.delimiter, asks.encoding)
    needed = asks.of(header)
    _require_delimiter(path.name, header, needed, schema.delimiter)
    if not schema.columns:
        _require_header(path.name, header, needed)
    placed = dict(zip(needed, _places(path.name, header, needed), strict=True))

    def tables(columns: Collection[str], faults: Faults) -> Iterator[Table]:
        places = [placed[name] for name in columns]
        with _readable(path), _of_records(path), path.open("rb") as file:
            first = 1
            for block in line_blocks(file, encoding=asks.encoding):
                headed = first == 1 and not schema.columns
                own = block[block.index(b"\n") + 1 :] if headed else block
                found = rows_of_block(own, first + headed, schema.delimiter, len(header), places)
                for one in found.broken:
                    faults.add(RecordFault(path.name, one.line, "", one.found, one.expected))
                first += block.count(b"\n")
                yield Table(
                    path.name,
                    dict(zip(columns, found.columns, strict=True)),
                    found.lines,
                    broken=len(found.broken),
                )

    return OpenSource(path.name, needed, tables)


def _header(path: Path, delimiter: str, encoding: str) -> list[str]:
    """Return the first row. If it cannot be read, that is a fault of the whole file."""
    with path.open("rb") as file:
        first = next(line_blocks(file, encoding=encoding), b"\n")
    if first.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise _refusal(path.name, "a file in UTF-16, whose characters have two bytes", "a CSV file saved as UTF-8")
    cells = split_line(first[: first.index(b"\n")], delimiter)
    if isinstance(cells, Unfit):
        raise DataError([RecordFault(path.name, 1, "", cells.found, cells.expected)])
    return [name.strip() for name in cells]


def _open_parquet(path: Path, asks: _Asked) -> OpenSource:
    with pq.ParquetFile(path, **_AS_NEEDED) as file:
        names = list(file.schema_arrow.names)
    header = _listed(path.name, asks.schema, names)
    needed = asks.of(header)
    placed = dict(zip(needed, _places(path.name, header, needed), strict=True))

    def tables(columns: Collection[str], faults: Faults) -> Iterator[Table]:
        with _readable(path), _of_records(path), pq.ParquetFile(path, **_AS_NEEDED) as file:
            for found in parquet_rows(file, [placed[name] for name in columns]):
                for row, place in found.broken.items():
                    column = tuple(columns)[place]
                    faults.add(RecordFault(path.name, row, column, "a value that cannot be decoded", _DECODED))
                yield Table(
                    path.name,
                    dict(zip(columns, found.columns, strict=True)),
                    found.numbers,
                    broken=len(found.broken),
                )

    return OpenSource(path.name, needed, tables)


_FORMATS: Final = {".csv": _open_csv, ".parquet": _open_parquet}
"""How a file is read, by its suffix; one of any other is text in columns, as hospitals name such files as they like."""
SUFFIXES: Final = tuple(_FORMATS)
"""Of the files that are read of a folder."""


def _listed(name: str, schema: DataSchema, names: Sequence[str]) -> list[str]:
    """The columns' names: those that the policy or the study lists, or else the source's own."""
    header = list(schema.columns) or list(names)
    if len(header) != len(names):
        expected = f"the {len(header)} columns that the policy or study lists"
        raise _refusal(name, f"{len(names)} columns", expected)
    return header


def _places(file: str, header: Sequence[str], needed: Iterable[str]) -> list[int]:
    counted = Counter(header)
    faults = [
        RecordFault(file, 0, name, f"{counted[name]} columns of this name", "exactly one")
        for name in needed
        if counted[name] != 1
    ]
    if faults:
        raise DataError(faults)
    place = {name: i for i, name in enumerate(header)}
    return [place[name] for name in needed]


def _require_delimiter(file: str, header: Sequence[str], needed: Iterable[str], delimiter: str) -> None:
    """Refuse by one sentence a file whose only column would be the wanted ones, parted by something else."""
    if len(header) != 1:
        return
    for other, called in _DELIMITERS.items():
        parted = {name.strip().strip('"') for name in header[0].split(other)}
        if other != delimiter and len(parted) > 1 and parted.issuperset(needed):
            found = f"a header line whose columns are parted by {called}"
            raise _refusal(
                file, found, f"{delimiter!r}: set data_set.file.delimiter to {other!r} in the policy, or save it anew"
            )


def _require_header(file: str, header: Sequence[str], needed: Sequence[str]) -> None:
    """Refuse by one sentence a file whose first line has none of the names, and is most likely a record."""
    if len(needed) > 1 and not set(header) & set(needed):
        expected = "their names in the first line: add it, or list all columns in data_set.file.columns of the policy"
        raise _refusal(file, f"none of the {len(needed)} columns that the study needs", expected)


def _refusal(file: str, found: str, expected: str) -> DataError:
    return DataError([RecordFault(file, 0, "", found, expected)])


def _absence(file: str, found: str, expected: str) -> DataAbsentError:
    return DataAbsentError([RecordFault(file, 0, "", found, expected)])
