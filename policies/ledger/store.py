"""The ledger's file: rows of the chain in SQLite, appended durably or not at all.

Guarantees: `LedgerFile.append` returns only after a commit with `journal_mode=DELETE` and `synchronous=EXTRA`
(docs/architecture.md, "State that must survive"). Otherwise it raises, and the file is as it was. A (study, round,
tensor, attempt) is in the file at most once (UNIQUE). After a failure that leaves the disk's state unknown, the store
refuses everything until it is opened again. A file that was moved, replaced or written by another program is refused.
chain.py says what the rows mean, ledger.py what may be appended, and lock.py lets only one process write.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import tempfile
from pathlib import Path
from typing import Final, Literal, NoReturn
from urllib.parse import quote

from common.durable import sync_folder
from policies.errors import (
    LedgerBusyError,
    LedgerExistsError,
    LedgerMissingError,
    LedgerShortError,
    LedgerTamperedError,
    LedgerWriteError,
)
from policies.ledger.chain import FIX, Entry, Genesis, check_chain, genesis_row
from policies.ledger.events import Debit, EntryRef, Event

Key = tuple[str, int, str, int]
"""(study, round, tensor, attempt). Each is charged at most once."""

_SCHEMA: Final = """
CREATE TABLE chain (
  sequence INTEGER PRIMARY KEY,
  previous TEXT NOT NULL UNIQUE,
  hash TEXT NOT NULL UNIQUE,
  body TEXT NOT NULL
) STRICT;
CREATE TABLE charged (
  study TEXT NOT NULL,
  round INTEGER NOT NULL,
  tensor TEXT NOT NULL,
  attempt INTEGER NOT NULL,
  sequence INTEGER NOT NULL REFERENCES chain (sequence),
  UNIQUE (study, round, tensor, attempt)
) STRICT;
"""
_INSERT: Final = "INSERT INTO chain (sequence, previous, hash, body) VALUES (?, ?, ?, ?)"
_BUSY_SECONDS: Final = 5.0
# After these errors the file is as it was and can be read again. After others (a failed sync, for example) the state
# of the disk is unknown until the file is opened again.
_HARMLESS: Final = frozenset({"SQLITE_FULL", "SQLITE_IOERR_WRITE", "SQLITE_BUSY", "SQLITE_CANTOPEN"})


def keys_of(event: Event) -> list[Key]:
    """Return the keys that a debit charges, in the order of its tensors; empty for events of other kinds."""
    if not isinstance(event, Debit):
        return []
    return [(event.study, event.round, tensor, event.attempt) for tensor in event.costs]


def create_store(path: Path, genesis: Genesis) -> None:
    """Make the file with its genesis. It appears whole or not at all, and only its owner can read it.

    Raises `LedgerExistsError` if a ledger, or the journal of one, exists, and `LedgerWriteError` if none can be made.
    """
    journal = path.with_name(path.name + "-journal")
    if path.exists() or journal.exists():
        msg = f"{path.name}: a ledger or its journal exists already, and a data set has only one ledger; use that one"
        raise LedgerExistsError(msg)
    try:
        handle, name = tempfile.mkstemp(prefix=".ledger-", dir=path.parent)
        os.close(handle)
        try:
            with contextlib.closing(_connect(Path(name), "rw")) as connection:
                connection.executescript(_SCHEMA)
                connection.execute(_INSERT, genesis_row(genesis))
            os.link(name, path)
        finally:
            Path(name).unlink()
        sync_folder(path.parent)
    except FileExistsError:
        msg = f"{path.name}: another process made a ledger here at the same moment; open that one"
        raise LedgerExistsError(msg) from None
    except (OSError, sqlite3.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        msg = f"{path.name}: the ledger cannot be made ({reason}); check the space and the permissions of its folder"
        raise LedgerWriteError(msg) from None


class LedgerFile:
    """An open ledger file. Two threads must not use it at once; `Ledger` makes sure of this."""

    def __init__(self, path: Path) -> None:
        """Open for writing. Raises `LedgerMissingError`, `LedgerTamperedError`, `LedgerBusyError`."""
        require_file(path)
        self._path = path
        self._connection = _connect(path, "rw")
        self._identity = _identity(path)
        self._usable = True

    def close(self) -> None:
        """Close the file. The store refuses everything from now on."""
        self._usable = False
        self._connection.close()

    def require_usable(self) -> None:
        """Raise `LedgerWriteError` after a failure or `close`, `LedgerTamperedError` if the file was replaced."""
        if not self._usable:
            msg = f"{self._path.name}: the ledger is closed or its last write failed; open it again before any charge"
            raise LedgerWriteError(msg)
        if _identity(self._path) != self._identity:
            msg = f"{self._path.name}: the ledger was moved or replaced while it was open; {FIX}"
            raise LedgerTamperedError(msg)

    def read(self) -> tuple[Genesis, tuple[Entry, ...]]:
        """Read and check the whole chain. Raises `LedgerTamperedError`, `LedgerBusyError`."""
        return _read(self._path, self._connection)

    def read_again(self) -> tuple[Genesis, tuple[Entry, ...]]:
        """Read from the disk again. The open connection keeps pages in memory and would not see an edit of them."""
        with contextlib.closing(_connect(self._path, "ro")) as connection:
            return _read(self._path, connection)

    def append(self, entry: Entry, head: EntryRef) -> None:
        """Write one entry after `head`, durably, all of it or nothing.

        Raises `LedgerWriteError` if the entry is not durable, `LedgerTamperedError` if the file does not end at `head`.
        """
        self.require_usable()
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            self._require_head(head)
            self._connection.execute(_INSERT, entry.row)
            self._connection.executemany(
                "INSERT INTO charged (study, round, tensor, attempt, sequence) VALUES (?, ?, ?, ?, ?)",
                [(*key, entry.sequence) for key in keys_of(entry.event)],
            )
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._give_up(error, head)
        except BaseException:
            # An interrupt may come before or after the commit took effect.
            self._usable = False
            self._roll_back()
            raise

    def _require_head(self, head: EntryRef) -> None:
        newest = self._connection.execute("SELECT sequence, hash FROM chain ORDER BY sequence DESC LIMIT 1").fetchone()
        if newest != (head.sequence, head.hash):
            msg = f"{self._path.name}: another program changed the ledger while it was open; {FIX}"
            raise LedgerTamperedError(msg)

    def _give_up(self, error: sqlite3.Error, head: EntryRef) -> NoReturn:
        name = getattr(error, "sqlite_errorname", type(error).__name__)
        self._usable = False
        self._roll_back()
        if name in _HARMLESS:
            with contextlib.suppress(LedgerTamperedError, sqlite3.Error):
                self._require_head(head)
                self._usable = True
        mend = (
            "free space on its disk, or raise the limit of open files,"
            if self._usable
            else "repair its disk, open the ledger again"
        )
        msg = (
            f"{self._path.name}: the entry could not be written ({name}). Nothing was charged and nothing may be"
            f" computed; {mend} and try again"
        )
        raise (LedgerShortError if self._usable else LedgerWriteError)(msg) from None

    def _roll_back(self) -> None:
        with contextlib.suppress(sqlite3.Error):
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")


def read_history(path: Path) -> tuple[Genesis, tuple[Entry, ...]]:
    """Read and check all entries of a ledger, also while the agent holds it.

    Raises `LedgerMissingError`, `LedgerBusyError` (a write is in progress, or one was cut off by a crash and waits for
    the agent), `LedgerTamperedError`.
    """
    require_file(path)
    with contextlib.closing(_connect(path, "ro")) as connection:
        return _read(path, connection)


def read_ledger(path: Path) -> tuple[Genesis, tuple[Entry, ...]]:
    """Return only the debits. It checks and raises like `read_history`."""
    genesis, entries = read_history(path)
    return genesis, tuple(entry for entry in entries if isinstance(entry.event, Debit))


def require_file(path: Path) -> None:
    """Raise `LedgerMissingError` if there is no ledger. Creating one automatically would give a full budget."""
    if not path.is_file():
        msg = (
            f"{path}: there is no ledger; restore it from its backup. Make a new one (fedward-silo ledger create) only"
            " for a data set that never took part in any study"
        )
        raise LedgerMissingError(msg)


def _read(path: Path, connection: sqlite3.Connection) -> tuple[Genesis, tuple[Entry, ...]]:
    try:
        connection.execute("BEGIN")
        try:
            damage = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
            rows = connection.execute("SELECT sequence, previous, hash, body FROM chain ORDER BY sequence").fetchall()
            index = connection.execute("SELECT study, round, tensor, attempt, sequence FROM charged").fetchall()
        finally:
            connection.execute("ROLLBACK")
    except sqlite3.Error as error:
        raise _unreadable(path, error) from None
    if damage != "ok":
        msg = f"{path.name}: the ledger's file is damaged; {FIX}"
        raise LedgerTamperedError(msg)
    try:
        genesis, entries = check_chain(rows)
    except LedgerTamperedError as error:
        msg = f"{path.name}: {error}"
        raise LedgerTamperedError(msg) from None
    if sorted(index) != sorted((*key, entry.sequence) for entry in entries for key in keys_of(entry.event)):
        msg = f"{path.name}: the ledger's index of charges does not fit its entries; {FIX}"
        raise LedgerTamperedError(msg)
    return genesis, entries


def _unreadable(path: Path, error: sqlite3.Error) -> LedgerBusyError | LedgerTamperedError:
    name = getattr(error, "sqlite_errorname", type(error).__name__)
    if name.startswith(("SQLITE_BUSY", "SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_IOERR", "SQLITE_NOMEM")):
        return LedgerBusyError(
            f"{path.name}: the ledger cannot be read just now ({name}): a write is in progress or was cut off, the"
            " file's permissions forbid it, too many files are open, or the disk fails; let the agent open it first"
        )
    return LedgerTamperedError(f"{path.name}: the ledger's file is damaged ({name}); {FIX}")


def _connect(path: Path, mode: Literal["rw", "ro"]) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"file:{quote(str(path.absolute()))}?mode={mode}",
        uri=True,
        isolation_level=None,
        check_same_thread=False,
        timeout=_BUSY_SECONDS,
    )
    try:
        connection.execute("PRAGMA synchronous=EXTRA")
        if mode == "rw":
            # Set explicitly, because another tool may have switched the file itself to a write-ahead log.
            connection.execute("PRAGMA journal_mode=DELETE")
    except sqlite3.Error as error:
        connection.close()
        raise _unreadable(path, error) from None
    return connection


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
