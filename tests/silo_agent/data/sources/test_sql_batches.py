"""Whichever way a result comes, as columns or by the driver, each cell and each fault is the same."""

from __future__ import annotations

import sqlite3

import duckdb
import psycopg
import pyarrow as pa
import pytest

from silo_agent.config import SqlSource
from silo_agent.data.cells import MAX_TEXT
from silo_agent.data.sources import sql, sql_batches

TEXTS = (
    *("", " ", '"', '""', "a,b", "line\nbreak", "cr\rlf\r\n", "\\N", "\\.", "NULL", "null", "t", "f", "é≥", "\t"),
    *("1", "NaN", " padded ", "'", ";", "x" * 3000, "x" * (MAX_TEXT + 1), None),
)
FLOATS = ("0.1", "1e300", "1e-300", "-0", "NaN", "Infinity", "-Infinity", "123456789.123456789", "5e-324", None)
WHOLE = (0, -1, 2**15 - 1, -(2**15), None)


def both(source, monkeypatch):
    """The cells and the undecoded places by column, as columns and by the driver."""
    ways = []
    for fits in (True, False):
        with monkeypatch.context() as patch:
            if not fits:
                patch.setattr(sql, "postgres_types", lambda *_: None)
                patch.setattr(sql, "duckdb_fits", lambda *_: False)
            parts = list(sql.rows(source, 7))
        assert {isinstance(part.found, pa.RecordBatch) for part in parts} == {fits}
        assert {repr(part) for part in parts} == {"SqlRows(<private>)"}
        columns = [[], []]
        first = 0
        for part in parts:
            width = part.found.num_columns if fits else len(part.found[0])
            for place in range(width):
                cells, undecoded = part.column(place)
                assert len(cells) == part.count
                columns[0] += [
                    (place, first + row, repr(cell)) for row, cell in enumerate(cells) if row not in undecoded
                ]
                columns[1] += [(place, first + row) for row in undecoded]
            first += part.count
        ways.append((first, sorted(columns[0]), sorted(columns[1])))
    return ways


# --- PostgreSQL ----------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def cells(cluster):
    """A table with hostile cells of every type that comes as columns."""
    url, secret = cluster
    with psycopg.connect(url, password=secret.read_text("utf-8")) as connection:
        connection.execute(
            "CREATE TABLE cells (n int, b bool, i2 int2, i4 int4, i8 int8, f4 float4, f8 float8, t text, v varchar,"
            " d date, ts timestamp, tz timestamptz, ti time, tt timetz, iv interval, j json, jb jsonb)"
        )
        rows = max(len(TEXTS), len(FLOATS), len(WHOLE))
        days = ("2020-02-03", "infinity", "-infinity", "0044-03-15 BC", "12020-01-01", None)
        times = ("2020-02-03 04:05:06.789", "infinity", "0001-01-01", "294276-12-31 23:59:59.999999", None)
        for row in range(rows):
            float_ = FLOATS[row % len(FLOATS)]
            small = None if float_ is None else "1.1" if "e" in float_ else float_
            whole, day, time = WHOLE[row % len(WHOLE)], days[row % len(days)], times[row % len(times)]
            clock = (None, "04:05:06", "23:59:59.999999", "24:00")[row % 4]
            connection.execute(
                "INSERT INTO cells VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
                (
                    *(row, (True, False, None)[row % 3], whole, whole, whole if row % 2 else 2**63 - 1, small, float_),
                    *(TEXTS[row], TEXTS[row], day, time, time, clock, clock and clock + "+02"),
                    (None, "1 day 02:03", "-3 years", "0")[row % 4],
                    *((None, '{"a": "b,\\n"}', '[1.50, "\\""]', "null")[row % 4],) * 2,
                ),
            )
    return lambda statement: SqlSource(url=url, statement=statement, credentials=secret)


def test_postgresql_gives_the_same_cells_as_columns_and_by_its_driver(cells, monkeypatch):
    as_columns, by_driver = both(cells("SELECT * FROM cells ORDER BY n"), monkeypatch)
    assert as_columns == by_driver
    count, told, undecoded = as_columns
    assert count == len(TEXTS)
    assert len(told) + len(undecoded) == 17 * count
    assert {place for place, _ in undecoded} == {7, 8}, "the text that is too long leaves out its own row"


@pytest.mark.parametrize("column", ["t", "i8", "f8", "b", "d"])
def test_a_row_of_one_column_that_is_null_is_a_row(cells, monkeypatch, column):
    as_columns, by_driver = both(cells(f"SELECT {column} FROM cells ORDER BY n"), monkeypatch)  # noqa: S608  # as above
    assert as_columns == by_driver
    assert as_columns[0] == len(TEXTS)


@pytest.mark.parametrize(
    ("statement", "columns"),
    [
        ("SELECT n, t FROM cells", True),
        ("SELECT n AS a, n AS a, t AS a FROM cells ORDER BY n -- in order", True),
        ("SELECT n, n::numeric AS m FROM cells", False),
        ("SELECT n, t::char(3) AS m FROM cells", False),
        ("SELECT n, ARRAY[n] AS m FROM cells", False),
    ],
)
def test_postgresql_gives_columns_only_of_types_with_one_form(cells, statement, columns):
    parts = list(sql.rows(cells(statement)))
    assert {isinstance(part.found, pa.RecordBatch) for part in parts} == {columns}
    assert sum(part.count for part in parts) == len(TEXTS)


def test_an_empty_result_has_no_rows(cells):
    assert list(sql.rows(cells("SELECT n, t FROM cells WHERE n < 0"))) == []


def test_many_rows_come_in_blocks_and_in_order(cells, monkeypatch):
    monkeypatch.setattr(sql_batches, "_BLOCK", 1000)
    parts = list(sql.rows(cells("SELECT i, 'row ' || i AS t FROM generate_series(1, 2000) i ORDER BY i")))
    assert len(parts) > 20
    assert all(part.found.nbytes < 4000 for part in parts)
    found = [cell for part in parts for cell in part.column(0)[0]]
    assert found == list(range(1, 2001))


@pytest.mark.timeout(60)
def test_a_reading_that_ends_early_leaves_the_rest_at_the_database(cells, monkeypatch):
    monkeypatch.setattr(sql_batches, "_BLOCK", 1000)
    reading = sql.rows(cells("SELECT i, 'row ' || i AS t FROM generate_series(1, 100000000) i"))
    assert next(reading).column(0)[0][0] == 1
    reading.close()


def test_a_database_without_an_encoding_is_read_by_the_driver(cells, monkeypatch):
    class Shown:
        def one(self):
            return ("SQL_ASCII",)

    class Line:
        def __init__(self, connection):
            self.connection = connection

        def exec_driver_sql(self, statement):
            return Shown() if statement.startswith("SHOW") else self.connection.exec_driver_sql(statement)

    with sql._connected(cells("SELECT 1")) as connection:
        assert sql_batches.postgres_types(connection, "SELECT n, t FROM cells LIMIT 0") == [pa.int64(), pa.string()]
        assert sql_batches.postgres_types(Line(connection), "SELECT n, t FROM cells LIMIT 0") is None


# --- DuckDB --------------------------------------------------------------------------------------------------------
@pytest.fixture
def duck(tmp_path):
    path = tmp_path / "ward.duckdb"
    with duckdb.connect(str(path)) as database:
        database.execute(
            "CREATE TABLE cells (n INTEGER, b BOOLEAN, i1 TINYINT, i8 BIGINT, u8 UBIGINT, f8 DOUBLE, t VARCHAR,"
            " f4 FLOAT, d DECIMAL(4, 2), h HUGEINT, day DATE)"
        )
        for row, text in enumerate(TEXTS):
            float_, whole = FLOATS[row % len(FLOATS)], (0, -1, 127, None)[row % 4]
            database.execute(
                "INSERT INTO cells VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [
                    row,
                    (True, False, None)[row % 3],
                    whole,
                    whole,
                    2**64 - 1,
                    float_,
                    text,
                    1.1,
                    1.5,
                    2**100,
                    "2020-02-03",
                ],
            )
    return lambda statement: SqlSource(url=f"duckdb:///{path}", statement=statement)


def test_duckdb_gives_the_same_cells_as_columns_and_by_its_driver(duck, monkeypatch):
    as_columns, by_driver = both(duck("SELECT n, b, i1, i8, u8, f8, t FROM cells ORDER BY n;"), monkeypatch)
    assert as_columns == by_driver
    first = next(iter(sql.rows(duck("SELECT n, t, b FROM cells WHERE n < 2 ORDER BY n"))))
    assert first.tuples() == [(0, "", True), (1, " ", False)]
    assert (as_columns[0], {place for place, _ in as_columns[2]}) == (len(TEXTS), {6})


@pytest.mark.parametrize("column", ["f4", "d", "h", "day", "[n]"])
def test_duckdb_gives_columns_only_of_types_with_one_form(duck, column):
    parts = list(sql.rows(duck(f"SELECT n, {column} AS c FROM cells")))  # noqa: S608  # the test's own words
    assert [isinstance(part.found, list) for part in parts] == [True]


def test_sqlite_gives_rows(tmp_path):
    with sqlite3.connect(tmp_path / "ward.sqlite3") as database:
        database.execute("CREATE TABLE cells AS SELECT 1 AS n, 'a' AS t")
    (part,) = sql.rows(SqlSource(url=f"sqlite:///{tmp_path}/ward.sqlite3", statement="SELECT * FROM cells"))
    assert (part.count, part.found, part.tuples()) == (1, [(1, "a")], [(1, "a")])
