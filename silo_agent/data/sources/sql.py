"""A study's records from a database: one statement, in one transaction that is never committed.

Guarantees: no password stands in the configuration, and a password file that others can read is refused. The database
itself keeps the statement from writing where it can (`dialects`): SQLite files and DuckDB files are opened for reading
only, DuckDB's statement may touch no other file, and PostgreSQL, MySQL, MariaDB and Oracle run it in a read-only
transaction. The statement's columns are asked for before a record is looked at. What the database says of a failure is
in `SqlError` and `RecordError` alone: it may quote a record, so it is only for the hospital's console.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from silo_agent import dialects
from silo_agent.config import SqlSource
from silo_agent.data.errors import RecordError
from silo_agent.data.sources.sql_batches import SqlRows, duckdb_fits, of_duckdb, of_postgres, postgres_types
from silo_agent.errors import SiloError

if TYPE_CHECKING:
    from sqlalchemy import URL, Connection, Engine

_AS_TEXT: Final = ("date", "timestamp", "timestamptz", "time", "timetz", "interval", "json", "jsonb")
"""PostgreSQL's types that are read as text: Python has no form for `infinity` or for years after 9999."""
_ALONE: Final = {
    "enable_external_access": False,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "lock_configuration": True,
}
"""DuckDB's settings under which a statement reads its own file alone: no other file, no network, no extension."""
_LIMITS: Final = ("postgresql", "duckdb", "mysql", "mariadb")
_PREPARES: Final = ("mysql", "mariadb")
_CONNECT_SECONDS: Final = 10
_MOST_BYTES: Final = 4096
_SHOWN: Final = 200
ROWS: Final = 1 << 13
"""Rows that are fetched at once."""


class SqlError(SiloError):
    """The records cannot be read. `found` may quote what the database said; `expected` says what to change."""

    def __init__(self, found: str, expected: str) -> None:
        super().__init__("the database cannot be read")
        self.found, self.expected = found, expected


class AwayError(SqlError):
    """There is no connection: the database is down or lets nobody in, or its driver or password is not there."""


def columns(source: SqlSource) -> list[str]:
    """The names of the result's columns, without a record being looked at.

    Raises `AwayError`, `SqlError`, and `RecordError` if the database looks at records nevertheless and fails on one.
    """
    with _connected(source) as connection:
        try:
            return _columns(source, connection)
        except RecordError:
            raise
        except Exception as error:  # noqa: BLE001  # drivers raise their own, and what they say must not get further
            expected = "a statement that may stand in parentheses as a table: one SELECT; fix databases in agent.yaml"
            raise SqlError(_said(error), expected) from None


def rows(source: SqlSource, at_once: int = ROWS) -> Iterator[SqlRows]:
    """All rows of the result, so many at once or what is one block of text. Raises `RecordError`.

    They come as columns where they can (`sql_batches`), and by the driver where not. A driver that can leave the others
    at the database does so.
    """
    try:
        with _connected(source) as connection:
            yield from _rows(source, connection, at_once)
    except SqlError as error:
        raise RecordError(error.found) from None
    except Exception as error:  # noqa: BLE001  # as above
        raise RecordError(_said(error)) from None


def _rows(source: SqlSource, connection: Connection, at_once: int) -> Iterator[SqlRows]:
    kind = dialects.kind_of(source.parsed())
    if kind == "postgresql" and (types := postgres_types(connection, _probe(source, kind))):
        yield from of_postgres(connection, source.statement, types)
    elif kind == "duckdb" and duckdb_fits(connection, _probe(source, kind)):
        yield from of_duckdb(connection, source.statement, at_once)
    else:
        result = connection.execution_options(stream_results=True).exec_driver_sql(source.statement)
        for part in result.partitions(at_once):
            found = [tuple(row) for row in part]
            yield SqlRows(len(found), found)


def _columns(source: SqlSource, connection: Connection) -> list[str]:
    kind = dialects.kind_of(source.parsed())
    if kind == "sqlite":
        return _sqlite_columns(source.statement, connection)
    probe = _probe(source, kind)
    if kind in _PREPARES:
        return _prepared_columns(probe, connection)
    return _names(connection, probe)


def _probe(source: SqlSource, kind: str) -> str:
    # The statement is the hospital's own, from its configuration. Oracle knows no AS before a table's name, and it and
    # SQL Server know no LIMIT. PostgreSQL looks at records without LIMIT, and MariaDB without WHERE.
    probe = f"SELECT * FROM (\n{source.statement}\n) fedward WHERE 1 = 0"  # noqa: S608
    return probe + " LIMIT 0" if kind in _LIMITS else probe


def _names(connection: Connection, statement: str) -> list[str]:
    """The names of a result's columns as the database gives them, in its own case."""
    with connection.exec_driver_sql(statement) as result:
        return [] if result.cursor is None else [str(column[0]) for column in result.cursor.description]


def _sqlite_columns(statement: str, connection: Connection) -> list[str]:
    """By a view, of which SQLite only names the columns: it computes some tables even if no row of them is wanted."""
    for change in (
        "PRAGMA temp_store = MEMORY",
        "PRAGMA query_only = OFF",
        f"CREATE TEMP VIEW fedward AS\n{statement}",
        "PRAGMA query_only = ON",
    ):
        connection.exec_driver_sql(change)
    return [str(name) for _, name, *_ in connection.exec_driver_sql("PRAGMA table_info(fedward)")]


def _prepared_columns(probe: str, connection: Connection) -> list[str]:
    """MySQL and MariaDB may compute a subquery that reads no outer row while they plan, but not while they prepare."""
    connection.exec_driver_sql(f"SET @fedward = CONVERT(0x{probe.encode().hex()} USING utf8mb4)")
    connection.exec_driver_sql("PREPARE fedward FROM @fedward")
    try:
        return _names(connection, probe)
    except Exception as error:  # noqa: BLE001  # the statement is right, so a record is why
        raise RecordError(_said(error)) from None


@contextmanager
def _connected(source: SqlSource) -> Iterator[Connection]:
    """A connection in a transaction that is rolled back. Raises `AwayError` if there is none."""
    with closing(_Disposing(_engine(source))) as engine:
        try:
            connection = engine.open()
        except Exception as error:  # noqa: BLE001  # as above
            raise _away(error) from None
        with connection:
            try:
                for statement in dialects.first(source.parsed()):
                    connection.exec_driver_sql(statement)
            except Exception as error:  # noqa: BLE001  # as above
                raise _away(error) from None
            yield connection


def _away(error: Exception) -> AwayError:
    return AwayError(_said(error), "a database that can be reached and lets the user in; fix databases in agent.yaml")


def _said(error: Exception) -> str:
    """What a driver said: its first line, in ASCII."""
    said = getattr(error, "orig", None) or error
    first = (str(said).splitlines() or [""])[0][:_SHOWN]
    return f"{type(said).__name__}: {first}".encode("ascii", "backslashreplace").decode()


def _engine(source: SqlSource) -> Engine:
    """Connects nowhere yet. Raises `AwayError` if the driver or the password is not there, `SqlError`."""
    from sqlalchemy.exc import NoSuchModuleError

    url = source.parsed()
    password = None if source.credentials is None else _password(source.credentials)
    try:
        engine = _engine_of(source, url if password is None else url.set(password=password))
    except (ImportError, NoSuchModuleError) as error:
        name = dialects.package(url, error if isinstance(error, ImportError) else None)
        expected = f"its driver in the agent's environment: pip install {name} there, or write another driver's URL"
        found = f"no driver for {url.drivername} ({_said(error)})"
        raise AwayError(found, expected) from None
    except Exception as error:  # noqa: BLE001  # a dialect may raise its own, and quote the URL
        found = f"a URL that {dialects.kind_of(url)} does not take ({type(error).__name__})"
        raise SqlError(found, "a URL as SQLAlchemy's documentation has it for this database") from None
    if engine.dialect.is_async:
        found = f"the driver {engine.dialect.driver}, which is asynchronous"
        raise SqlError(found, "another driver of this database, for example mysql+pymysql")
    return engine


def _engine_of(source: SqlSource, url: URL) -> Engine:
    # Loading takes a while; commands that read no database stay quick.
    from sqlalchemy import create_engine, event
    from sqlalchemy.pool import NullPool

    file, kind = source.file, dialects.kind_of(url)
    if file is not None and source.is_duckdb:
        options = {"read_only": True, "config": _ALONE}
        return create_engine(url, connect_args=options, poolclass=NullPool, hide_parameters=True)
    if file is not None:
        return create_engine("sqlite://", creator=lambda: _open_sqlite(file), poolclass=NullPool)
    if kind != "postgresql":
        return create_engine(url, poolclass=NullPool, hide_parameters=True)
    waits = {} if "connect_timeout" in url.query else {"connect_timeout": _CONNECT_SECONDS}
    url = url.set(drivername="postgresql+psycopg")
    engine = create_engine(url, connect_args=waits, poolclass=NullPool, hide_parameters=True)
    event.listen(engine, "connect", _prepare_postgres)
    return engine.execution_options(postgresql_readonly=True)


class _Disposing:
    """An engine whose connections are closed at the end of a `with`."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self.close = engine, engine.dispose

    def open(self) -> Connection:
        """Without parameters a driver leaves the statement's own percent signs as they are."""
        return self._engine.connect().execution_options(no_parameters=True)


def is_missing(source: Path | SqlSource) -> Path | None:
    """The file that a source needs and that is not there; None if nothing is missing."""
    if isinstance(source, SqlSource):
        return source.missing
    return None if source.exists() else source


def _open_sqlite(file: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(f"file:{quote(str(file))}?mode=ro", uri=True)
    connection.execute("PRAGMA query_only = ON")
    # A text that is not UTF-8 leaves out its own row, and does not end the reading.
    connection.text_factory = lambda raw: raw.decode(errors="surrogateescape")
    return connection


def _prepare_postgres(connection: Any, _: object) -> None:
    from psycopg.types.string import TextLoader

    for kind in _AS_TEXT:
        connection.adapters.register_loader(kind, TextLoader)
    connection.execute("SET TIME ZONE 'UTC'")
    connection.execute("SET datestyle TO 'ISO'")
    connection.commit()


def _password(path: Path) -> str:
    """The one line of a password file. Raises `AwayError` with every fault at once; none quotes the file."""
    wanted = f"{path.name}: a file with the password alone, for its owner only (chmod 600)"
    try:
        with path.open("rb") as stream:
            mode = os.fstat(stream.fileno()).st_mode
            content = stream.read(_MOST_BYTES + 1) if stat.S_ISREG(mode) else b""
    except OSError as error:
        found = f"a credentials file that cannot be opened ({type(error).__name__})"
        raise AwayError(found, wanted) from None
    lines = content.splitlines()
    faults = [f"mode {stat.S_IMODE(mode):04o}"] if stat.S_IMODE(mode) & 0o077 else []
    if not (len(lines) == 1 and lines[0] and len(content) <= _MOST_BYTES):
        faults.append(f"{len(lines)} lines" if len(content) <= _MOST_BYTES else "a file that is too long")
    try:
        password = lines[0].decode() if lines else ""
    except UnicodeDecodeError:
        faults.append("text that is not UTF-8")
    if faults:
        found = f"a credentials file with {', '.join(faults)}"
        raise AwayError(found, wanted)
    return password
