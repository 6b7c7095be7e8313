"""The coordinator's database: SQLite by default, PostgreSQL by URL. Every transaction checks who may write.

Guarantees: what a transaction has changed is durable when it returns. A transaction of a coordinator that has lost its
lease (`coordinator.lease`) changes nothing and returns nothing, however long the process was frozen: the epoch is
checked within the transaction, and nobody can take the lease between the check and the end of a transaction that
writes.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, create_engine, event, make_url, select, text
from sqlalchemy.engine import URL, ExceptionContext
from sqlalchemy.exc import DatabaseError, IntegrityError, InternalError, OperationalError, SQLAlchemyError

from common.sqlite import make_durable
from coordinator.errors import CoordinatorError
from coordinator.storage import tables
from coordinator.storage.closing import close_to_others
from coordinator.storage.shortage import DatabaseShortError, database_told

SHORT: Final = "short"
DAMAGED: Final = "damaged"
_READS: Final = "fedward_reads"
_SMALL_PAGES: Final = "page_size=1024"
"""Of a new database. An event is a row of a kilobyte in a transaction of its own, which writes each page that it
changes twice: a third less reaches an ext4 disk than with pages of 4 kB (bench/RESULTS.md, "silos")."""
FROZEN_SECONDS: Final = 10
"""How long PostgreSQL keeps a transaction in which nothing happens. A coordinator that was frozen within one holds its
lock on the lease for so long, and no longer."""
_STATEMENT_SECONDS: Final = 30
_POSTGRES: Final = {
    "connect_timeout": 5,
    "keepalives_idle": 5,
    "keepalives_interval": 5,
    "keepalives_count": 2,
    "application_name": "fedward-coordinator",
    "options": (
        f"-c idle_in_transaction_session_timeout={FROZEN_SECONDS}s -c statement_timeout={_STATEMENT_SECONDS}s"
        " -c default_transaction_isolation=read\\ committed"
    ),
}


class StoreError(CoordinatorError):
    """The database cannot be used. The message says why."""


class StoreDamagedError(StoreError):
    """The database does not hold what was stored. The message names its file, the cause and the fix."""


class LeaseLostError(CoordinatorError):
    """Another coordinator has taken over. Nothing was written, and nothing may be answered."""

    def __init__(self) -> None:
        super().__init__("another coordinator has taken over; call that one")


class Database:
    """The connections to one database, for whoever has its lease."""

    def __init__(self, url: str) -> None:
        """Open the database, and make the table of the lease if there is none. Raises `StoreError`."""
        self.epoch: int | None = None
        """The epoch of this process's lease; None without one."""
        self.lost = threading.Event()
        """Set once it is known that another coordinator has taken over."""
        self.errors = {SHORT: 0, DAMAGED: 0}
        """How often the database could not be used, by kind."""
        self._counting = threading.Lock()
        try:
            at = _with_driver(make_url(url))
            self.kind = at.get_backend_name()
            options: dict[str, Any] = {"connect_args": _POSTGRES} if self.kind == "postgresql" else {}
            self.engine = create_engine(at, pool_pre_ping=self.kind != "sqlite", **options)
            if self.kind == "sqlite":
                event.listen(self.engine, "connect", _prepare_sqlite)
                event.listen(self.engine, "begin", _begin_sqlite)
            with self.engine.begin() as connection:
                if self.kind == "postgresql":
                    _require_durable(connection)
                tables.lease.create(connection, checkfirst=True)
            event.listen(self.engine, "handle_error", self._said)
        except (SQLAlchemyError, ImportError) as error:
            # The first line says what is wrong; the rest is SQL and links. It has no URL, which could hold a password.
            msg = f"the database cannot be used: {str(error).splitlines()[0]}; fix `database` or `data`"
            raise StoreError(msg) from None

    @classmethod
    def in_folder(cls, folder: Path) -> Database:
        """Open a SQLite database in `folder`. Folder and database are open to their owner alone. Raises OSError."""
        path = folder / "coordinator.sqlite3"
        close_to_others(folder, path)
        return cls(f"sqlite:///{path}")

    @property
    def name(self) -> str:
        """What to call it in a sentence. It shows no password."""
        url = self.engine.url
        return str(url.database) if self.kind == "sqlite" else f"the database on {url.host or 'this machine'}"

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that changes nothing. Raises `LeaseLostError`, `DatabaseShortError`."""
        with self.unchecked(reads=True) as connection:
            self._require(connection, lock=False)
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction, durable when it is left. Raises `LeaseLostError`, `DatabaseShortError`."""
        with self.unchecked() as connection:
            self._require(connection, lock=True)
            yield connection

    @contextmanager
    def unchecked(self, *, reads: bool = False) -> Iterator[Connection]:
        """A transaction of somebody without a lease: only the lease itself may be read and taken in it."""
        with self.engine.connect() as connection:
            connection.execution_options(**{_READS: reads})
            with connection.begin():
                yield connection

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """A transaction of somebody without a lease that reads all as it was at one moment, beside who writes."""
        with self.engine.connect() as connection:
            if self.kind == "postgresql":
                connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
            connection.execution_options(**{_READS: True})
            with connection.begin():
                yield connection

    def require(self) -> None:
        """Raise `LeaseLostError` unless this process still has the lease. It is asked before every answer."""
        with self.reading():
            pass

    def lose(self) -> LeaseLostError:
        """Note that another coordinator has taken over, and return the error that says so."""
        self.lost.set()
        return LeaseLostError()

    def _require(self, connection: Connection, *, lock: bool) -> None:
        query = select(tables.lease.c.epoch)
        # The lock waits for no other transaction but a takeover, which waits for it. SQLite has one writer anyway.
        found = connection.execute(query.with_for_update(read=True, key_share=True) if lock else query).scalar()
        if self.epoch is None or found != self.epoch:
            raise self.lose()

    def _said(self, context: ExceptionContext) -> None:
        """Say in a sentence why the database cannot be used. Raises `DatabaseShortError`, `StoreDamagedError`."""
        error = context.sqlalchemy_exception
        if isinstance(error, IntegrityError) or not isinstance(error, DatabaseError):
            return
        # PostgreSQL ends the session of a coordinator that was frozen by an InternalError.
        passing = isinstance(error, (OperationalError, InternalError)) or context.is_disconnect
        with self._counting:
            self.errors[SHORT if passing else DAMAGED] += 1
        kind = DatabaseShortError if passing else StoreDamagedError
        raise kind(database_told(self.name, error)) from None


def _with_driver(url: URL) -> URL:
    return url.set(drivername="postgresql+psycopg") if url.drivername == "postgresql" else url


def _require_durable(connection: Connection) -> None:
    """Raise `StoreError` if PostgreSQL may forget what it has said to be stored."""
    wrong = [name for name in ("synchronous_commit", "fsync") if _shown(connection, name) == "off"]
    if wrong:
        msg = (
            f"the database forgets at a power cut what the coordinator has promised: {' and '.join(wrong)} is off; set"
            " it on, for the server or for this role"
        )
        raise StoreError(msg)


def _shown(connection: Connection, name: str) -> str:
    return str(connection.execute(text(f"SHOW {name}")).scalar_one())


def _prepare_sqlite(connection: Any, _record: object) -> None:
    """Set full synchronous writes, a rollback journal and waiting writers, so that every reply's promise is durable."""
    connection.isolation_level = None  # SQLite's own module begins too late: a read before a write would stand alone
    make_durable(connection, "foreign_keys=ON", _SMALL_PAGES)


def _begin_sqlite(connection: Connection) -> None:
    reads = connection.get_execution_options().get(_READS, False)
    connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")
