"""A statement's result as Arrow's columns, if the database can give it so with the same cells as its driver.

Guarantees: a result comes as columns only if all that is asked of it has one of a few types, whose cells have one form
alone: truth values, whole numbers, floats and texts. Every other result comes by the driver, row by row. PostgreSQL
writes columns as `COPY`, which Arrow reads, on the same connection and in the same transaction; DuckDB has Arrow's
columns of its own. Which way it is follows from the statement's types, before a record is looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.csv as pc

from silo_agent.data.cells import Cell
from silo_agent.data.columns.arrow_cells import decoded
from silo_agent.data.sources.parquet_rows import cells_of

if TYPE_CHECKING:
    from sqlalchemy import Connection

_BLOCK: Final = 1 << 20
"""Bytes of PostgreSQL's text that are read at once, and what the last row has more."""
_POSTGRES: Final[dict[int, pa.DataType]] = {
    16: pa.bool_(),
    20: pa.int64(),
    21: pa.int64(),
    23: pa.int64(),
    700: pa.float64(),
    701: pa.float64(),
    **dict.fromkeys((25, 114, 1043, 1082, 1083, 1114, 1184, 1186, 1266, 3802), pa.string()),
}
"""By the number of a type in `pg_type`: bool, int8, int2, int4, float4, float8; and text, json, varchar, date, time,
timestamp, timestamptz, interval, timetz, jsonb, which the driver reads as text, too. Exact decimals are not among them:
their text has several forms."""
_DUCKDB: Final = frozenset(
    {
        *("BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT"),
        *("UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "DOUBLE", "VARCHAR"),
    }
)


@dataclass(frozen=True, repr=False, eq=False)
class SqlRows:
    """Some rows of a result: as the driver's tuples, or as columns."""

    count: int
    found: Sequence[tuple[object, ...]] | pa.RecordBatch

    def column(self, place: int) -> tuple[Sequence[Cell], list[int]]:
        """Return the cells of a column, (count,), and the places of values that have no form as one."""
        if isinstance(self.found, pa.RecordBatch):
            return cells_of(self.found.column(place))
        return decoded([values[place] for values in self.found])

    def tuples(self) -> list[tuple[object, ...]]:
        """Return the rows as the database gives them."""
        if isinstance(self.found, pa.RecordBatch):
            return list(zip(*(column.to_pylist() for column in self.found.columns), strict=True))
        return list(self.found)

    def __repr__(self) -> str:
        return "SqlRows(<private>)"


def postgres_types(connection: Connection, probe: str) -> list[pa.DataType] | None:
    """Return the types of the columns, by a statement that gives none of its rows; None if one is not among those.

    Text of a database that declares no encoding is bytes for the driver.
    """
    (encoding,) = connection.exec_driver_sql("SHOW server_encoding").one()
    with connection.exec_driver_sql(probe) as result:
        numbers: list[Any] = [] if result.cursor is None else [column[1] for column in result.cursor.description]
    types = [_POSTGRES.get(number) for number in numbers]
    return None if encoding == "SQL_ASCII" or None in types else [kind for kind in types if kind is not None]


def of_postgres(connection: Connection, statement: str, types: Sequence[pa.DataType]) -> Iterator[SqlRows]:
    """Yield all rows of a statement whose columns have these types. A driver's errors are its own."""
    names = [str(place) for place in range(len(types))]
    read: dict[str, Any] = {
        # A row of one column that is NULL is an empty line.
        "parse_options": pc.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        "convert_options": pc.ConvertOptions(
            column_types=dict(zip(names, types, strict=True)),
            null_values=[""],
            true_values=["t"],
            false_values=["f"],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    }
    for block in _blocks(connection, statement):
        # One block, however long: a row with a large text is a fault of that row alone.
        whole = pc.ReadOptions(column_names=names, use_threads=False, block_size=len(block) + 1)
        table = pc.read_csv(pa.BufferReader(block), read_options=whole, **read)
        yield from (SqlRows(batch.num_rows, batch) for batch in table.to_batches())


def _blocks(connection: Connection, statement: str) -> Iterator[bytes]:
    """Yield PostgreSQL's text, whole rows only. Each message of a copy is a row."""
    raw: Any = connection.connection.driver_connection
    rows, size = [], 0
    with raw.cursor() as cursor, cursor.copy(f"COPY (\n{statement}\n) TO STDOUT (FORMAT csv, ENCODING 'UTF8')") as copy:
        for row in copy:
            rows.append(row)
            size += len(row)
            if size >= _BLOCK:
                yield b"".join(rows)
                rows, size = [], 0
    if rows:
        yield b"".join(rows)


def duckdb_fits(connection: Connection, statement: str) -> bool:
    """Whether all columns have types of the few. What is no statement that gives rows has none.

    The driver says of a statement that fails what is wrong, when it is run.
    """
    raw: Any = connection.connection.driver_connection
    try:
        types = raw.sql(statement).types
    except Exception:  # noqa: BLE001  # the driver's own
        return False
    return all(str(kind) in _DUCKDB for kind in types)


def of_duckdb(connection: Connection, statement: str, at_once: int) -> Iterator[SqlRows]:
    """Yield all rows of a statement."""
    raw: Any = connection.connection.driver_connection
    for batch in raw.sql(statement).to_arrow_reader(at_once):
        yield SqlRows(batch.num_rows, batch)
