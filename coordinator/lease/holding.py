"""The lease: one row that says which coordinator is active, and its epoch, which grows with every takeover.

Guarantees: at most one process has a lease that counts, whatever clocks say. Who waits judges by its own clock alone:
it takes over a lease that nobody has renewed while it watched for the time that its configuration says. Who was frozen
meanwhile finds a higher epoch in its next transaction (`storage.database`), and silos refuse the answers of a lower
one.

The epoch is the time in seconds at which the lease was taken, and at least one more than the one before. So a database
that was put back from a backup does not go on with epochs that silos know to be over.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import structlog
from sqlalchemy import insert, select, update
from sqlalchemy.exc import IntegrityError

from coordinator.errors import CoordinatorError
from coordinator.storage import tables
from coordinator.storage.database import Database, LeaseLostError, StoreError

log = structlog.get_logger()
_RENEWALS: Final = 5
"""In the time after which a lease is overdue."""
_NOBODY: Final = ""


@dataclass(frozen=True)
class LeaseRow:
    """The lease as it stands in the database."""

    epoch: int
    holder: str
    """The instance that has it; empty if it was given back."""
    at: str
    beat: int
    """Grows with every renewal."""
    spool: str


class Lease:
    """One coordinator's way to the lease of its database."""

    def __init__(
        self,
        database: Database,
        instance: str,
        at: str,
        spool: str,
        *,
        seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`instance` names the folder of data whose lock this process holds, `at` is what people call this machine.

        `spool` is the word that lies in the spool's folder. A lease that nobody renews for `seconds` is overdue.
        """
        self.database, self._seconds = database, seconds
        self._instance, self._at, self._spool, self._clock = instance, at, spool, clock
        self._watched: tuple[LeaseRow, float] | None = None

    def row(self) -> LeaseRow | None:
        """Return the lease; None if there never was one. Raises `DatabaseShortError`."""
        with self.database.unchecked(reads=True) as connection:
            found = connection.execute(select(tables.lease)).first()
        return None if found is None else LeaseRow(found.epoch, found.holder, found.at, found.beat, found.spool)

    def attempt(self) -> bool:
        """Take the lease if it is free, overdue, or was this instance's own. Return whether this process has it now.

        Raises `StoreError` if the database belongs to another spool; `DatabaseShortError`.
        """
        row = self.row()
        if row is None:
            return self._begin()
        if row.spool and row.spool != self._spool:
            raise StoreError(_other_spool(row.spool))
        if self._watched is None or self._watched[0] != row:
            self._watched = (row, self._clock())
        overdue = self._clock() - self._watched[1] >= self._seconds
        # The lock of the folder says that no other process of this instance lives.
        return (overdue or row.holder in (_NOBODY, self._instance)) and self._take(row)

    def renew(self) -> None:
        """Say that this coordinator lives. Raises `LeaseLostError`, `DatabaseShortError`."""
        with self.database.writing() as connection:
            connection.execute(update(tables.lease).values(beat=tables.lease.c.beat + 1))

    @property
    def epoch(self) -> int:
        """The epoch of the lease that was taken. Raises `LeaseLostError` if there is none."""
        if self.database.epoch is None:
            raise LeaseLostError
        return self.database.epoch

    def give_back(self) -> None:
        """Let another coordinator take the lease at once, and close the connections. Whatever fails, this one ends."""
        try:
            with self.database.writing() as connection:
                connection.execute(update(tables.lease).values(holder=_NOBODY))
        except CoordinatorError as error:
            log.warning("the lease could not be given back", why=str(error))
        self.database.epoch = None
        self.database.engine.dispose()

    @property
    def pace(self) -> float:
        """Seconds between two renewals."""
        return self._seconds / _RENEWALS

    def _begin(self) -> bool:
        epoch = int(time.time())
        try:
            with self.database.unchecked() as connection:
                connection.execute(insert(tables.lease).values(id=1, epoch=epoch, **self._mine()))
        except IntegrityError:
            return False  # another was faster
        return self._has(epoch)

    def _take(self, row: LeaseRow) -> bool:
        epoch = max(row.epoch + 1, int(time.time()))
        still = (tables.lease.c.epoch == row.epoch, tables.lease.c.beat == row.beat)
        with self.database.unchecked() as connection:
            taken = connection.execute(update(tables.lease).where(*still).values(epoch=epoch, **self._mine()))
        return taken.rowcount == 1 and self._has(epoch)

    def _mine(self) -> dict[str, object]:
        return {"holder": self._instance, "at": self._at, "beat": 0, "spool": self._spool}

    def _has(self, epoch: int) -> bool:
        self.database.epoch, self._watched = epoch, None
        self.database.lost.clear()
        return True


def keep(lease: Lease, stop: threading.Event) -> None:
    """Renew a lease until told to stop, or until another coordinator has it."""
    while not stop.wait(lease.pace):
        try:
            lease.renew()
        except LeaseLostError:
            return
        except CoordinatorError as error:
            # Nothing is written meanwhile either. If this goes on, another coordinator takes over.
            log.warning("the lease cannot be renewed", why=str(error))


def _other_spool(word: str) -> str:
    return (
        f"the database belongs to the spool whose file spool.id has {word}, and this one has another; give the same"
        " `spool` to all coordinators of one database, and mount it. If its files are lost, write that word into"
        " spool.id: silos then send again what is missing"
    )
