"""Records as columns of cells: from CSV, from Parquet by its suffix, from a folder of both, or from a database.

Guarantees: every needed column is there exactly once, and every row has the header's width. The table keeps the line of
every record for messages. A broken row (of another width, with an open quote, of undecodable or endless text) is a
fault and not in the table, because of that row alone; the reader decides what follows from it. This module does not
know what the cells mean.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Self

import pyarrow as pa
import pyarrow.parquet as pq

from policies.documents.policy import Policy
from policies.documents.study import Code, DataSchema
from silo_agent.config import SqlSource
from silo_agent.data.cells import MAX_TEXT, Cell, identifier, identity_text, plain
from silo_agent.data.csv_rows import split_rows
from silo_agent.data.errors import DataAbsentError, DataError, Faults, RecordFault, Unfit
from silo_agent.data.sources import sql
from silo_agent.data.sources.sql import AwayError, SqlError

Source = Path | SqlSource
"""A file, a folder of files with the same columns, or a statement."""
_DECODED = (
    f"text in UTF-8 of at most {MAX_TEXT} characters, a number, or a time of the years 1 to 9999 in whole microseconds"
)


@dataclass(frozen=True)
class Written:
    """How the hospital writes its file, by its policy. It takes precedence over what a study expects.

    `missing` is None where the study's marks count. `codes` has the file's own codes by column, with what they stand
    for in studies; identities are made of the cells as they stand in the file.
    """

    delimiter: str
    columns: tuple[str, ...]
    missing: tuple[str, ...] | None = None
    codes: Mapping[str, Mapping[str, Code | None]] = field(default_factory=dict)

    @classmethod
    def of(cls, policy: Policy) -> Self:
        """What a policy says."""
        file, spelling = policy.data_set.file, policy.spelling
        return cls(file.delimiter, file.columns, spelling.missing, spelling.codes)

    @classmethod
    def parse(cls, fields: Mapping[str, Any]) -> Self:
        """Inverse of `dataclasses.asdict`, also after JSON, which has lists instead of tuples."""
        missing = fields["missing"]
        marks = None if missing is None else tuple(missing)
        return cls(fields["delimiter"], tuple(fields["columns"]), marks, fields["codes"])

    def schema(self, schema: DataSchema) -> DataSchema:
        """The study's schema with what the policy says instead."""
        missing = schema.missing if self.missing is None else self.missing
        return schema.model_copy(update={"delimiter": self.delimiter, "columns": self.columns, "missing": missing})


@dataclass(frozen=True, repr=False)
class Table:
    """The schema's columns, by name. `rows` has the lines (CSV) or record numbers (Parquet), from 1.

    `identities` has the SHA-256 of each row's cells in the identifying columns, and is empty if none were given.
    `broken` counts the rows of the file that are not in the table. `files` names the file of each row if a folder has
    several.
    """

    file: str
    columns: dict[str, Sequence[Cell]]
    rows: Sequence[int]
    identities: tuple[str, ...] = ()
    broken: int = 0
    files: Sequence[str] = ()

    def file_of(self, place: int) -> str:
        """The file of the row at this place of the table."""
        return self.files[place] if self.files else self.file

    def identified(self, identities: Sequence[str | None]) -> Table:
        """The table with the rows' identities, and without the rows that have none."""
        kept = [place for place, identity in enumerate(identities) if identity is not None]
        known = replace(self, identities=tuple(identity or "" for identity in identities)).at(kept)
        return replace(known, broken=self.broken + len(identities) - len(kept))

    def without(self, people: Collection[str], patient: str | None) -> Table:
        """The table without the rows of some people, each named as in `Records.identities`.

        `patient` is the column that names a row's patient; without it the rows' own identities do.
        """
        if not people:
            return self
        whose = self.identities if patient is None else [_identifier(cell) for cell in self.columns[patient]]
        return self.at([place for place, name in enumerate(whose) if name not in people])

    def at(self, places: Sequence[int]) -> Table:
        """The table with the rows at some places alone."""
        return replace(
            self,
            columns={name: [cells[place] for place in places] for name, cells in self.columns.items()},
            rows=[self.rows[place] for place in places],
            identities=tuple(self.identities[place] for place in places) if self.identities else (),
            files=[self.files[place] for place in places] if self.files else (),
        )


_DELIMITERS: Final = {";": "semicolons", "\t": "tabs", ",": "commas", "|": "bars"}


def needed_columns(schema: DataSchema) -> tuple[str, ...]:
    """Return the columns that the schema reads, each once, in a fixed order."""
    names = [schema.patient] if schema.patient is not None else []
    names += [schema.label.column, *(factor.column for factor in schema.domain)]
    names += [factor.column for factor in schema.protected]
    names += [feature.column for feature in schema.features]
    names += [schema.image.column] if schema.image is not None else []
    names += [schema.environment.column] if schema.environment is not None else []
    return tuple(dict.fromkeys(names))


def read_table(
    source: Source,
    schema: DataSchema,
    faults: Faults,
    needed: Sequence[str] | None = None,
    optional: Collection[str] = (),
    *,
    identified_by: Sequence[str] = (),
) -> Table:
    """Read the `needed` columns, by default all columns of the schema. Those that are also `optional` may be absent.

    The columns `identified_by` are needed too, and make `Table.identities`. Broken rows are added to `faults`. Raises
    `DataError` only for faults that no single record decides: the file is absent, unreadable or lacks a column.
    """
    asked = needed_columns(schema) if needed is None else tuple(needed)
    wanted = tuple(dict.fromkeys([*asked, *identified_by]))
    if isinstance(source, SqlSource):
        table = _read_database(source, schema, faults, wanted, optional)
    elif source.is_dir():
        table = _read_folder(source, schema, faults, wanted, optional)
    else:
        table = _read_file(source, schema, faults, wanted, optional)
    if not identified_by:
        return table
    identities: list[str | None] = []
    for place, cells in enumerate(zip(*(table.columns[name] for name in identified_by), strict=True)):
        try:
            identities.append(identity_of(cells))
        except Exception as error:  # noqa: BLE001  # whatever a row raises leaves out that row
            identities.append(None)
            faults.add(
                RecordFault(
                    table.file_of(place), table.rows[place], "", type(error).__name__, "cells that can be compared"
                )
            )
    return table.identified(identities)


def folder_of(source: Source) -> Path:
    """The folder in which a source's images lie. A database has none, and no study with images reads one."""
    if isinstance(source, SqlSource):
        return Path()
    return source if source.is_dir() else source.parent


def _read_file(
    path: Path, schema: DataSchema, faults: Faults, wanted: Sequence[str], optional: Collection[str]
) -> Table:
    try:
        read = _FORMATS.get(path.suffix, _read_csv)
        return read(path, schema, faults, wanted, optional)
    except FileNotFoundError:
        raise _absence(path.name, "no file", "the file that the agent's configuration names; fix its path") from None
    except (OSError, UnicodeDecodeError, pa.ArrowException) as error:
        raise _refusal(path.name, f"an unreadable file ({type(error).__name__})", "a readable file") from None


def _read_folder(
    folder: Path, schema: DataSchema, faults: Faults, wanted: Sequence[str], optional: Collection[str]
) -> Table:
    """Read all files of a folder, by name, one after another. What is wrong with any of them is raised at once."""
    try:
        found = sorted(path for path in folder.iterdir() if path.suffix in SUFFIXES and not path.name.startswith("."))
    except OSError as error:
        raise _refusal(folder.name, f"an unreadable folder ({type(error).__name__})", "a readable folder") from None
    if not found:
        raise _absence(folder.name, "a folder without data", f"files that end in {' or '.join(SUFFIXES)}")
    tables, wrong = [], list[RecordFault]()
    for path in found:
        try:
            tables.append(_read_file(path, schema, faults, wanted, optional))
        except DataError as error:
            wrong += error.faults
    if wrong:
        raise DataError(wrong)
    present = [name for name in wanted if all(name in table.columns for table in tables)]
    return Table(
        folder.name,
        {name: [cell for table in tables for cell in table.columns[name]] for name in present},
        [row for table in tables for row in table.rows],
        broken=sum(table.broken for table in tables),
        files=[table.file for table in tables for _ in table.rows],
    )


def _read_database(
    source: SqlSource, schema: DataSchema, faults: Faults, wanted: Sequence[str], optional: Collection[str]
) -> Table:
    if schema.image is not None:
        raise _refusal(source.name, "a study with images", "a file or folder beside the images, under data")
    try:
        names = sql.columns(source)
    except AwayError as error:
        raise _absence(source.name, error.found, error.expected) from None
    except SqlError as error:
        raise _refusal(source.name, error.found, error.expected) from None
    header = list(schema.columns) or names
    if len(header) != len(names):
        expected = f"the {len(header)} columns that the policy or study lists"
        raise _refusal(source.name, f"{len(names)} columns", expected)
    needed = _present(header, wanted, optional)
    places = _places(source.name, header, needed)
    # All that others may hear of has been checked. What fails from here on may follow from a record.
    found = sql.rows(source)
    kept: list[list[Cell]] = []
    rows: list[int] = []
    for row, values in enumerate(found, 1):
        try:
            kept.append([plain(values[place]) for place in places])
        except Exception:  # noqa: BLE001  # whatever a value raises leaves out its row
            faults.add(RecordFault(source.name, row, "", "a value that cannot be decoded", _DECODED))
        else:
            rows.append(row)
    columns: list[Sequence[Cell]] = list(zip(*kept, strict=True)) if kept else [()] * len(needed)
    return Table(source.name, dict(zip(needed, columns, strict=True)), rows, broken=len(found) - len(rows))


def _read_csv(
    path: Path, schema: DataSchema, faults: Faults, wanted: Sequence[str], optional: Collection[str]
) -> Table:
    broken = 0
    kept: list[list[Cell]] = []
    rows: list[int] = []
    found = split_rows(path.read_bytes(), schema.delimiter)
    header = list(schema.columns) or _header(path.name, found)
    needed = _present(header, wanted, optional)
    _require_delimiter(path.name, header, needed, schema.delimiter)
    if not schema.columns:
        _require_header(path.name, header, needed)
    places = _places(path.name, header, needed)
    for line, cells in found:
        if isinstance(cells, Unfit):
            broken += 1
            faults.add(RecordFault(path.name, line, "", cells.found, cells.expected))
        elif cells and len(cells) != len(header):
            broken += 1
            faults.add(RecordFault(path.name, line, "", f"{len(cells)} cells", f"{len(header)} cells"))
        elif cells:
            rows.append(line)
            kept.append([cells[place] for place in places])
    columns: list[Sequence[Cell]] = list(zip(*kept, strict=True)) if kept else [()] * len(needed)
    return Table(path.name, dict(zip(needed, columns, strict=True)), rows, broken=broken)


def _header(file: str, found: Iterator[tuple[int, list[str] | Unfit]]) -> list[str]:
    """Return the first row. If it cannot be read, that is a fault of the whole file."""
    line, cells = next(found, (1, []))
    if isinstance(cells, Unfit):
        raise DataError([RecordFault(file, line, "", cells.found, cells.expected)])
    return [name.strip() for name in cells]


def _read_parquet(
    path: Path, schema: DataSchema, faults: Faults, wanted: Sequence[str], optional: Collection[str]
) -> Table:
    file = pq.ParquetFile(path)
    header = list(schema.columns) or list(file.schema_arrow.names)
    if len(header) != len(file.schema_arrow.names):
        found = f"{len(file.schema_arrow.names)} columns"
        raise _refusal(path.name, found, f"the {len(header)} columns that the policy or study lists")
    needed = _present(header, wanted, optional)
    places = _places(path.name, header, needed)
    content = file.read(columns=[file.schema_arrow.names[place] for place in places])
    columns: dict[str, Sequence[Cell]] = {}
    bad: dict[int, str] = {}
    for i, name in enumerate(needed):
        columns[name], undecoded = _cells(content.column(i))
        for row in undecoded:
            bad.setdefault(row, name)
    rows = [row for row in range(1, content.num_rows + 1) if row - 1 not in bad]
    if bad:
        columns = {name: [cells[row - 1] for row in rows] for name, cells in columns.items()}
    for row, name in sorted(bad.items()):
        faults.add(RecordFault(path.name, row + 1, name, "a value that cannot be decoded", _DECODED))
    return Table(path.name, columns, rows, broken=len(bad))


_FORMATS: Final = {".csv": _read_csv, ".parquet": _read_parquet}
"""How a file is read, by its suffix; one of any other is text in columns, as hospitals name such files as they like."""
SUFFIXES: Final = tuple(_FORMATS)
"""Of the files that are read of a folder."""


def _cells(column: pa.ChunkedArray) -> tuple[list[Cell], list[int]]:
    """Return cells, and the places of values that have no form as one. Categories are decoded.

    A value that is neither text, number nor truth value becomes its text.
    """
    cells: list[Cell] = []
    undecoded = []
    for place, scalar in enumerate(column):
        try:
            cells.append(plain(scalar.as_py()))
        except Exception:  # noqa: BLE001  # text that is not UTF-8, a date after 9999, and whatever else a value raises
            cells.append(None)
            undecoded.append(place)
    return cells, undecoded


def _present(header: Sequence[str], wanted: Sequence[str], optional: Collection[str]) -> tuple[str, ...]:
    """Return the wanted columns without the optional ones that the file lacks."""
    return tuple(name for name in wanted if name in header or name not in optional)


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


def _identifier(cell: Cell) -> str | None:
    """A patient's identifier; None for a cell that has no form as text, whose row no patient can be found by."""
    try:
        return identifier(cell)
    except Exception:  # noqa: BLE001  # whatever a cell raises concerns its own row
        return None


def name_of(cells: Sequence[Cell], *, by_patient: bool) -> str:
    """Whose a row with these identifying cells is, as in `Records.identities`: a patient, or a record of its own."""
    return identifier(cells[0]) if by_patient else identity_of(cells)


def identity_of(cells: Iterable[Cell]) -> str:
    """Return SHA-256 over cells as `identity_text`, each prefixed with its length in bytes plus one."""
    digest = hashlib.sha256()
    for cell in cells:
        raw = identity_text(cell).encode()
        digest.update((len(raw) + 1).to_bytes(8, "big"))
        digest.update(raw)
    return digest.hexdigest()


def _refusal(file: str, found: str, expected: str) -> DataError:
    return DataError([RecordFault(file, 0, "", found, expected)])


def _absence(file: str, found: str, expected: str) -> DataAbsentError:
    return DataAbsentError([RecordFault(file, 0, "", found, expected)])
