"""A study's records from a database: one statement, read in a transaction that the database keeps from writing.

Guarantees: no password stands in the configuration, and a password file that others can read is refused. SQLite files
and DuckDB files are opened for reading only, DuckDB's statement may touch no other file, and PostgreSQL runs the
statement in a read-only transaction, which is rolled back. What the database says of a failure is in `SqlError` and
`RecordError` alone: it may quote a record, so it is only for the hospital's console.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from silo_agent.config import SqlSource
from silo_agent.errors import SiloError

if TYPE_CHECKING:
    from sqlalchemy import Engine

_AS_TEXT: Final = ("date", "timestamp", "timestamptz", "time", "timetz", "interval", "json", "jsonb")
"""PostgreSQL's types that are read as text: Python has no form for `infinity` or for years after 9999."""
_ALONE: Final = {
    "enable_external_access": False,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "lock_configuration": True,
}
"""DuckDB's settings under which a statement reads its own file alone: no other file, no network, no extension."""
_CONNECT_SECONDS: Final = 10
_MOST_BYTES: Final = 4096
_SHOWN: Final = 200


class SqlError(SiloError):
    """The records cannot be read. `found` may quote what the database said; `expected` says what to change."""

    def __init__(self, found: str, expected: str) -> None:
        super().__init__("the database cannot be read")
        self.found, self.expected = found, expected


class RecordError(SiloError):
    """The statement failed while the database worked on records, so one record may be why. `found` may quote it.

    Nobody outside may see that it failed: it is no `DataError`, and where the records are needed noise alone is sent.
    """

    def __init__(self, found: str) -> None:
        super().__init__("the statement failed on the records")
        self.found = found


def columns(source: SqlSource) -> list[str]:
    """The names of the result's columns, without a record being looked at. Raises `SqlError`."""
    try:
        # The statement is the hospital's own, from its configuration.
        return _run(source, f"SELECT * FROM (\n{source.statement}\n) AS fedward LIMIT 0")[0]  # noqa: S608
    except SqlError:
        raise
    except Exception as error:  # noqa: BLE001  # drivers raise their own, and what they say must not get further
        expected = (
            "a database that answers the statement, one SELECT; see that it runs, and check databases in agent.yaml"
        )
        raise SqlError(_said(error), expected) from None


def rows(source: SqlSource) -> list[tuple[Any, ...]]:
    """All rows of the result. Raises `RecordError`."""
    try:
        return _run(source, source.statement)[1]
    except Exception as error:  # noqa: BLE001  # as above
        raise RecordError(_said(error)) from None


def _run(source: SqlSource, statement: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    engine = _engine(source)
    with closing(_Disposing(engine)), engine.connect() as connection:
        options = {} if source.file is not None else {"postgresql_readonly": True}
        # Without parameters a driver leaves the statement's own percent signs as they are.
        result = connection.execution_options(no_parameters=True, **options).exec_driver_sql(statement)
        return list(result.keys()), [tuple(row) for row in result]


def _said(error: Exception) -> str:
    """What a driver said: its first line, in ASCII."""
    said = getattr(error, "orig", None) or error
    first = (str(said).splitlines() or [""])[0][:_SHOWN]
    return f"{type(said).__name__}: {first}".encode("ascii", "backslashreplace").decode()


def _engine(source: SqlSource) -> Engine:
    # Loading takes a while; commands that read no database stay quick.
    from sqlalchemy import create_engine, event
    from sqlalchemy.pool import NullPool

    file, url = source.file, source.parsed()
    if file is not None and source.is_duckdb:
        options = {"read_only": True, "config": _ALONE}
        return create_engine(url, connect_args=options, poolclass=NullPool, hide_parameters=True)
    if file is not None:
        return create_engine("sqlite://", creator=lambda: _open_sqlite(file), poolclass=NullPool)
    url = url.set(drivername="postgresql+psycopg")
    if source.credentials is not None:
        url = url.set(password=_password(source.credentials))
    waits = {} if "connect_timeout" in url.query else {"connect_timeout": _CONNECT_SECONDS}
    engine = create_engine(url, connect_args=waits, poolclass=NullPool, hide_parameters=True)
    event.listen(engine, "connect", _prepare_postgres)
    return engine


class _Disposing:
    """Closes an engine's connections at the end of a `with`."""

    def __init__(self, engine: Engine) -> None:
        self.close = engine.dispose


def is_missing(source: Path | SqlSource) -> Path | None:
    """The file that a source needs and that is not there; None if nothing is missing."""
    if isinstance(source, SqlSource):
        return source.missing
    return None if source.exists() else source


def cells(row: Sequence[Any]) -> list[str | int | float | None]:
    """A row as cells. A value that is neither text, number nor truth value becomes its text, as from Parquet.

    Raises UnicodeEncodeError if a text is not UTF-8.
    """
    found = [_cell(value) for value in row]
    for cell in found:
        if isinstance(cell, str):
            cell.encode()
    return found


def _cell(value: object) -> str | int | float | None:
    if value is None or isinstance(value, str | int | float):
        return value
    return str(bytes(value)) if isinstance(value, memoryview | bytearray) else str(value)


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
    """The one line of a password file. Raises `SqlError` with every fault at once; none quotes the file."""
    wanted = f"{path.name}: a file with the password alone, for its owner only (chmod 600)"
    try:
        with path.open("rb") as stream:
            mode = os.fstat(stream.fileno()).st_mode
            content = stream.read(_MOST_BYTES + 1) if stat.S_ISREG(mode) else b""
    except OSError as error:
        found = f"a credentials file that cannot be opened ({type(error).__name__})"
        raise SqlError(found, wanted) from None
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
        raise SqlError(found, wanted)
    return password
