"""A file as columns of cells: CSV, or Parquet by its suffix.

Guarantees that every needed column is there exactly once and every row has the header's width; keeps the line of
every record for messages. Says nothing of what the cells mean.
"""

from __future__ import annotations

import csv
import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from policies.study import DataSchema
from silo_agent.data.cells import Cell, identity_text
from silo_agent.data.errors import LISTED, DataError, Fault


@dataclass(frozen=True, repr=False)
class Table:
    """Columns that the schema names, by name; `rows` are the lines (CSV) or record numbers (Parquet), from 1.

    `identities` are the SHA-256 of each row's cells in the columns that identify it, empty where none were given.
    """

    file: str
    columns: dict[str, Sequence[Cell]]
    rows: Sequence[int]
    identities: tuple[str, ...] = ()


def needed_columns(schema: DataSchema) -> tuple[str, ...]:
    """Columns that the schema reads, each once, in a fixed order."""
    names = [schema.patient] if schema.patient is not None else []
    names += [schema.label.column, *(factor.column for factor in schema.domain)]
    names += [feature.column for feature in schema.features]
    names += [schema.image.column] if schema.image is not None else []
    return tuple(dict.fromkeys(names))


def read_table(
    path: Path,
    schema: DataSchema,
    needed: Sequence[str] | None = None,
    optional: Collection[str] = (),
    *,
    identified_by: Sequence[str] = (),
) -> Table:
    """Read the `needed` columns, which are by default all that the schema names; those also `optional` may be absent.

    The columns `identified_by` are needed too, and make `Table.identities`. Raises `DataError` for a file that is
    absent, unreadable or of another shape.
    """
    asked = needed_columns(schema) if needed is None else tuple(needed)
    wanted = tuple(dict.fromkeys([*asked, *identified_by]))
    try:
        read = _read_parquet if path.suffix == ".parquet" else _read_csv
        table = read(path, schema, wanted, optional)
    except FileNotFoundError:
        raise _refusal(path.name, "no file", "the file that the agent's configuration names; mend its path") from None
    except UnicodeDecodeError:
        raise _refusal(path.name, "bytes that are not UTF-8", "a CSV file saved as UTF-8") from None
    except (OSError, pa.ArrowException) as error:
        raise _refusal(path.name, f"an unreadable file ({type(error).__name__})", "a readable file") from None
    identifying = [table.columns[name] for name in identified_by]
    return replace(table, identities=tuple(_identity(cells) for cells in zip(*identifying, strict=True)))


def _read_csv(path: Path, schema: DataSchema, wanted: Sequence[str], optional: Collection[str]) -> Table:
    faults: list[Fault] = []
    bad = 0
    kept: list[list[Cell]] = []
    rows: list[int] = []
    with path.open(encoding="utf-8-sig", newline="") as stream:
        reader = csv.reader(stream, delimiter=schema.delimiter, strict=True)
        try:
            header = list(schema.columns) or [name.strip() for name in next(reader, [])]
            needed = _present(header, wanted, optional)
            places = _places(path.name, header, needed)
            for cells in reader:
                if not cells:
                    continue
                if len(cells) != len(header):
                    bad += 1
                    if len(faults) < LISTED:
                        found = f"{len(cells)} cells"
                        faults.append(Fault(path.name, reader.line_num, "", found, f"{len(header)} cells"))
                    continue
                rows.append(reader.line_num)
                kept.append([cells[place] for place in places])
        except csv.Error as error:
            expected = f"cells parted by {schema.delimiter!r}, quotes closed"
            raise DataError([Fault(path.name, reader.line_num, "", str(error), expected)]) from None
    if faults:
        raise DataError(faults, bad)
    columns: list[Sequence[Cell]] = list(zip(*kept, strict=True)) if kept else [()] * len(needed)
    return Table(path.name, dict(zip(needed, columns, strict=True)), rows)


def _read_parquet(path: Path, schema: DataSchema, wanted: Sequence[str], optional: Collection[str]) -> Table:
    file = pq.ParquetFile(path)
    header = list(schema.columns) or list(file.schema_arrow.names)
    if len(header) != len(file.schema_arrow.names):
        found = f"{len(file.schema_arrow.names)} columns"
        raise _refusal(path.name, found, f"the {len(header)} columns that the study lists")
    needed = _present(header, wanted, optional)
    places = _places(path.name, header, needed)
    content = file.read(columns=[file.schema_arrow.names[place] for place in places])
    columns = {name: _cells(content.column(i)) for i, name in enumerate(needed)}
    return Table(path.name, columns, range(1, content.num_rows + 1))


def _cells(column: pa.ChunkedArray) -> Sequence[Cell]:
    """Python values; categories are decoded, and what is neither text, number nor truth value becomes its text."""
    values: list[object] = column.to_pylist()
    return [value if value is None or isinstance(value, str | int | float) else str(value) for value in values]


def _present(header: Sequence[str], wanted: Sequence[str], optional: Collection[str]) -> tuple[str, ...]:
    """The wanted columns without the optional ones that the file does not have."""
    return tuple(name for name in wanted if name in header or name not in optional)


def _places(file: str, header: Sequence[str], needed: Iterable[str]) -> list[int]:
    counted = Counter(header)
    faults = [
        Fault(file, 0, name, f"{counted[name]} columns of this name", "exactly one")
        for name in needed
        if counted[name] != 1
    ]
    if faults:
        raise DataError(faults)
    place = {name: i for i, name in enumerate(header)}
    return [place[name] for name in needed]


def _identity(cells: Iterable[Cell]) -> str:
    """SHA-256 over cells as `identity_text`, each prefixed with one more than its length in bytes."""
    digest = hashlib.sha256()
    for cell in cells:
        raw = identity_text(cell).encode()
        digest.update((len(raw) + 1).to_bytes(8, "big"))
        digest.update(raw)
    return digest.hexdigest()


def _refusal(file: str, found: str, expected: str) -> DataError:
    return DataError([Fault(file, 0, "", found, expected)])
