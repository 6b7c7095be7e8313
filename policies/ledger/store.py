"""The ledger's file: rows of the chain in SQLite, appended durably or not at all.

Guarantees: `Store.append` returns only after a commit with `journal_mode=DELETE` and `synchronous=EXTRA` (design:
architecture.md, "State that must survive"; threat-model.md on WAL), and otherwise raises with the file as it was; a
(study, round, tensor, attempt) stands in it at most once (UNIQUE); after a failure that leaves the disk's state unknown
the store refuses everything until it is opened anew; a file that was moved, replaced or written by someone else is
refused. What the rows mean is chain.py, what may be appended is ledger.py, that one process writes is lock.py.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import tempfile
from pathlib import Path
from typing import Final, Literal, NoReturn
from urllib.parse import quote

from policies.durable import sync_folder
from policies.errors import (
    LedgerBusyError,
    LedgerExistsError,
    LedgerMissingError,
    LedgerTamperedError,
    LedgerWriteError,
)
from policies.ledger.chain import MEND, Entry, Genesis, check_chain, genesis_row
from policies.ledger.events import Debit, EntryRef, Event

Key = tuple[str, int, str, int]
"""(study, round, tensor, attempt): charged at most once."""

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
# After these the file is as it was and can be read again; after others (a failed sync, say) nobody knows what is on
# the disk until the file is opened anew.
_HARMLESS: Final = frozenset({"SQLITE_FULL", "SQLITE_IOERR_WRITE", "SQLITE_BUSY"})


def keys_of(event: Event) -> list[Key]:
    """What a debit charges, in the order of its tensors; nothing for events of other kinds."""
    if not isinstance(event, Debit):
        return []
    return [(event.study, event.round, tensor, event.attempt) for tensor in event.costs]


def create_store(path: Path, genesis: Genesis) -> None:
    """Make the file with its genesis; it appears whole or not at all, readable by its owner only.

    Raises `LedgerExistsError` where a ledger, or the journal of one, stands, `LedgerWriteError` where none can be made.
    """
    journal = path.with_name(path.name + "-journal")
    if path.exists() or journal.exists():
        msg = f"{path.name}: a ledger or its journal stands here already; a data set has one ledger for ever"
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
        msg = f"{path.name}: a ledger was made here at the same moment; open it"
        raise LedgerExistsError(msg) from None
    except (OSError, sqlite3.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        msg = f"{path.name}: the ledger cannot be made ({reason}); check the space and the rights of its folder"
        raise LedgerWriteError(msg) from None


class Store:
    """An open ledger file. Not for two threads at once; the ledger guards it."""

    def __init__(self, path: Path) -> None:
        """Open for writing. Raises `LedgerMissingError`, `LedgerTamperedError`, `LedgerBusyError`."""
        require_file(path)
        self._path = path
        self._connection = _connect(path, "rw")
        self._identity = _identity(path)
        self._usable = True

    def close(self) -> None:
        """Let go of the file; the store refuses everything from now on."""
        self._usable = False
        self._connection.close()

    def require_usable(self) -> None:
        """Raise `LedgerWriteError` after a failure or `close`, `LedgerTamperedError` where the file is another one."""
        if not self._usable:
            msg = f"{self._path.name}: the ledger is closed or its last write failed; open it again before any charge"
            raise LedgerWriteError(msg)
        if _identity(self._path) != self._identity:
            msg = f"{self._path.name}: the ledger was moved or replaced while it was open; {MEND}"
            raise LedgerTamperedError(msg)

    def read(self) -> tuple[Genesis, tuple[Entry, ...]]:
        """Read and check the whole chain. Raises `LedgerTamperedError`, `LedgerBusyError`."""
        return _read(self._connection)

    def read_again(self) -> tuple[Genesis, tuple[Entry, ...]]:
        """`read` from the disk: the open connection keeps pages in memory and would not see somebody's edit of them."""
        with contextlib.closing(_connect(self._path, "ro")) as connection:
            return _read(connection)

    def append(self, entry: Entry, head: EntryRef) -> None:
        """Write one entry after `head`, durably, all of it or nothing.

        Raises `LedgerWriteError` where it is not durable, `LedgerTamperedError` where the file does not end at `head`.
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
            # An interrupt may fall before or after the commit took effect.
            self._usable = False
            self._roll_back()
            raise

    def _require_head(self, head: EntryRef) -> None:
        newest = self._connection.execute("SELECT sequence, hash FROM chain ORDER BY sequence DESC LIMIT 1").fetchone()
        if newest != (head.sequence, head.hash):
            msg = f"{self._path.name}: the ledger was changed by someone else while it was open; {MEND}"
            raise LedgerTamperedError(msg)

    def _give_up(self, error: sqlite3.Error, head: EntryRef) -> NoReturn:
        name = getattr(error, "sqlite_errorname", type(error).__name__)
        self._usable = False
        self._roll_back()
        if name in _HARMLESS:
            with contextlib.suppress(LedgerTamperedError, sqlite3.Error):
                self._require_head(head)
                self._usable = True
        mend = "free space on its disk" if self._usable else "mend its disk, open the ledger again"
        msg = (
            f"{self._path.name}: the entry could not be written ({name}). Nothing was charged and nothing may be"
            f" computed; {mend} and try again"
        )
        raise LedgerWriteError(msg) from None

    def _roll_back(self) -> None:
        with contextlib.suppress(sqlite3.Error):
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")


def read_history(path: Path) -> tuple[Genesis, tuple[Entry, ...]]:
    """Read and check a ledger beside the agent that holds it: every entry, of whatever kind.

    Raises `LedgerMissingError`, `LedgerBusyError` (a write is under way, or a crashed one waits for its agent),
    `LedgerTamperedError`.
    """
    require_file(path)
    with contextlib.closing(_connect(path, "ro")) as connection:
        return _read(connection)


def read_ledger(path: Path) -> tuple[Genesis, tuple[Entry, ...]]:
    """The debits alone, checked and raising like `read_history`."""
    genesis, entries = read_history(path)
    return genesis, tuple(entry for entry in entries if isinstance(entry.event, Debit))


def require_file(path: Path) -> None:
    """Raise `LedgerMissingError` where there is no ledger: it would be a full budget if it were made in passing."""
    if not path.is_file():
        msg = (
            f"{path.name}: there is no ledger. Restore it from its backup; only for a data set that never took part in"
            " any study make a new one"
        )
        raise LedgerMissingError(msg)


def _read(connection: sqlite3.Connection) -> tuple[Genesis, tuple[Entry, ...]]:
    try:
        connection.execute("BEGIN")
        try:
            damage = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
            rows = connection.execute("SELECT sequence, previous, hash, body FROM chain ORDER BY sequence").fetchall()
            index = connection.execute("SELECT study, round, tensor, attempt, sequence FROM charged").fetchall()
        finally:
            connection.execute("ROLLBACK")
    except sqlite3.Error as error:
        raise _unreadable(error) from None
    if damage != "ok":
        msg = f"the ledger's file is damaged; {MEND}"
        raise LedgerTamperedError(msg)
    genesis, entries = check_chain(rows)
    if sorted(index) != sorted((*key, entry.sequence) for entry in entries for key in keys_of(entry.event)):
        msg = f"the ledger's index of charges does not fit its entries; {MEND}"
        raise LedgerTamperedError(msg)
    return genesis, entries


def _unreadable(error: sqlite3.Error) -> LedgerBusyError | LedgerTamperedError:
    name = getattr(error, "sqlite_errorname", type(error).__name__)
    if name.startswith(("SQLITE_BUSY", "SQLITE_READONLY", "SQLITE_CANTOPEN")):
        return LedgerBusyError(
            f"the ledger cannot be read just now ({name}): a write is under way or was cut off, or the file's rights"
            " forbid it; let the agent open it first"
        )
    return LedgerTamperedError(f"the ledger's file is damaged ({name}); {MEND}")


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
            # Stated, because the file itself may have been switched to a write-ahead log by someone else's tool.
            connection.execute("PRAGMA journal_mode=DELETE")
    except sqlite3.Error as error:
        connection.close()
        raise _unreadable(error) from None
    return connection


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
