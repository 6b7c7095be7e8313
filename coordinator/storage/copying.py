"""Copies a coordinator's whole database: into a file, as a backup, and from one into an empty database of either kind.

Guarantees: a backup is what one moment's transaction saw, also while the coordinator serves, and is complete under its
name or absent. It is a SQLite database of this version's tables, whatever database it was made of. So one can also move
from SQLite to PostgreSQL by it. What is put back comes in one transaction, or not at all.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, Table, delete, func, insert, inspect, literal, select, text
from sqlalchemy.exc import NoResultFound

from common.durable import put_in_place
from common.private_files import private_file
from coordinator.errors import CoordinatorError
from coordinator.storage import tables
from coordinator.storage.database import Database, StoreError
from coordinator.storage.migrating import migrate
from coordinator.storage.shortage import ShortError

_ROWS: Final = 500
"""Rows that are in memory at once."""
_TABLES: Final = tuple(table for table in tables.METADATA.sorted_tables if table is not tables.lease)
"""All but the lease, which is of the database and not of what it stores."""
_NUMBERED: Final = tuple(
    table
    for table in tables.METADATA.sorted_tables
    if "id" in table.c and table.c.id.primary_key and table is not tables.lease
)
"""Tables whose keys the database counts itself."""


class CopyError(CoordinatorError):
    """The backup cannot be made or put back. The message says why."""


def back_up(database: Database, target: Path) -> int:
    """Write all that is stored into a new file; return the number of studies. Raises `CopyError`, OSError."""
    if target.exists():
        msg = f"{target} exists already; give another name"
        raise CopyError(msg)
    fresh = target.with_name(target.name + ".new")
    fresh.unlink(missing_ok=True)
    private_file(fresh)
    copy = Database(f"sqlite:///{fresh}")
    try:
        with database.snapshot() as source, copy.unchecked() as into:
            _require_current(source, database.name)
            tables.METADATA.create_all(into)
            _mark(source, into)
            studies = _copy(source, into, tables.METADATA.sorted_tables)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
    finally:
        copy.engine.dispose()
    put_in_place(fresh, target)
    return studies


def put_back(database: Database, backup: Path) -> int:
    """Fill an empty database whose lease the caller has; return the number of studies.

    The backup is not changed. Raises `CopyError` if anything is stored already, or if the file is no backup; OSError.
    """
    if not backup.is_file():
        msg = f"there is no file {backup}"
        raise CopyError(msg)
    migrate(database)
    with tempfile.TemporaryDirectory(dir=backup.parent, prefix=".restoring-") as folder:
        copy = _opened(backup, Path(folder) / "copy.sqlite3")
        try:
            with copy.snapshot() as source, database.writing() as into:
                _require_empty(into, database.name)
                into.execute(delete(tables.audit))
                studies = _copy(source, into, _TABLES)
                _count_on(into, database.kind)
        finally:
            copy.engine.dispose()
    return studies


def _opened(backup: Path, at: Path) -> Database:
    """Open a copy of a backup, and bring it up to date. Raises `CopyError`."""
    shutil.copyfile(backup, at)
    try:
        copy = Database(f"sqlite:///{at}")
        with copy.unchecked(reads=True) as connection:
            copy.epoch = connection.execute(select(tables.lease.c.epoch)).scalar_one()
        migrate(copy)
    except (StoreError, NoResultFound, ShortError) as error:
        msg = f"{backup} is no backup of a coordinator ({error}); give a file that `fedward-coordinator backup` wrote"
        raise CopyError(msg) from None
    return copy


def _require_empty(connection: Connection, name: str) -> None:
    filled = [table.name for table in _TABLES if _count(connection, table) > (table is tables.audit)]
    if filled:
        msg = (
            f"{name} is not empty ({', '.join(filled)}); a backup is put back into a new database alone: give another"
            " `data` or `database` in coordinator.yaml"
        )
        raise CopyError(msg)


def _require_current(connection: Connection, name: str) -> None:
    known = set(inspect(connection).get_table_names())
    missing = sorted(table.name for table in _TABLES if table.name not in known)
    if missing:
        msg = (
            f"{name} lacks the tables {', '.join(missing)}: it is no database of this version; start this version's"
            " coordinator on it once, which brings it up to date"
        )
        raise CopyError(msg)


def _mark(source: Connection, into: Connection) -> None:
    """Take over which version's tables these are (`migrating`)."""
    version = source.execute(text("SELECT version_num FROM alembic_version")).scalar_one()
    into.execute(text("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL PRIMARY KEY)"))
    into.execute(text("INSERT INTO alembic_version VALUES (:version)"), {"version": version})


def _copy(source: Connection, into: Connection, wanted: Iterable[Table]) -> int:
    for table in wanted:
        rows = source.execution_options(yield_per=_ROWS).execute(select(table))
        for part in rows.mappings().partitions(_ROWS):
            into.execute(insert(table), [dict(row) for row in part])
    return _count(source, tables.studies)


def _count(connection: Connection, table: Table) -> int:
    return int(connection.execute(select(func.count()).select_from(table)).scalar_one())


def _count_on(connection: Connection, kind: str) -> None:
    """PostgreSQL counts on from what it has given itself, and not from what was put in."""
    if kind != "postgresql":
        return
    for table in _NUMBERED:
        following = select(func.coalesce(func.max(table.c.id), 0) + 1).scalar_subquery()
        sequence = func.pg_get_serial_sequence(table.name, "id")
        connection.execute(select(func.setval(sequence, following, literal(value=False))))  # the number is the next one
