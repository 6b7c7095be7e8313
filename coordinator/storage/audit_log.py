"""Who did what to which study: a chain of entries that are stored in the transaction of what they tell of.

An entry's head is the hash of the head before and of the entry (`crypto.audit_chain`). Silos follow the heads and sign
them, so who rewrites an entry is found (docs/design/audit-log.md). The chain is in the entries' content; the other
columns are copies to search by, and no proof rests on them.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

from sqlalchemy import ColumnElement, Connection, delete, func, insert, select

from coordinator.errors import CoordinatorError
from coordinator.storage.database import Database
from coordinator.storage.tables import audit, audit_cosignatures
from crypto.audit_chain import NOTHING, UNKNOWN, Followed, entry_digest, follow
from protos.audit import MOST_DIGESTS, AuditEntry, AuditTrail, CosignedAudit

DONE: Final = "done"
REFUSED: Final = "refused"
BEGIN: Final = "begin"
MOST_REFUSALS: Final = 100
"""Refused actions of one certificate's holder that are noted within 24 hours. Further ones are in the program's log."""
_DAY: Final = timedelta(days=1)


class AuditLogError(CoordinatorError):
    """The audit log does not go on from where a silo says that it is, or lacks entries."""


def stamp(moment: datetime) -> str:
    """Return a time as entries have it. Such texts sort as the times do."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds")


_MOST_NUMBER: Final = (1 << 31) - 1
"""The largest number that every database's integer holds; a caller may name a larger one."""


def append(connection: Connection, entry: AuditEntry) -> AuditEntry:
    """Add an entry in the caller's transaction. Returns it with its number, whatever number it had."""
    number, head = _last(connection)
    numbered = replace(entry, number=number + 1)
    content = numbered.content()
    connection.execute(
        insert(audit).values(
            number=numbered.number,
            content=content,
            head=follow(head, [entry_digest(content.encode())]).hex(),
            at=numbered.at,
            who=numbered.who,
            action=numbered.action,
            outcome=numbered.outcome,
        )
    )
    return numbered


def _last(connection: Connection) -> tuple[int, bytes]:
    query = select(audit.c.number, audit.c.head).order_by(audit.c.number.desc()).limit(1)
    row = connection.execute(query).first()
    return (-1, NOTHING) if row is None else (row.number, bytes.fromhex(row.head))


class AuditLog:
    """The audit log in the coordinator's database, and what silos signed of it."""

    def __init__(self, database: Database) -> None:
        """Take a database whose tables are up to date, and begin the log if it is new."""
        self._database = database
        with database.writing() as connection:
            if _last(connection)[0] < 0:
                # The random word makes this log another one than any that is begun again in its place.
                word = secrets.token_hex(16)
                append(connection, AuditEntry(0, stamp(datetime.now(UTC)), "", "", BEGIN, "", "", "", word, DONE, ""))

    def followed(self) -> Followed:
        """Return how many entries there are, and the head after them."""
        with self._database.reading() as connection:
            number, head = _last(connection)
        return Followed(number + 1, head)

    def note(self, entry: AuditEntry) -> None:
        """Note what was done, where nothing else is stored with it."""
        with self._database.writing() as connection:
            append(connection, entry)

    def note_refusal(self, entry: AuditEntry, now: datetime) -> bool:
        """Note that an action was refused, unless its holder was refused very often. Returns whether it was noted."""
        with self._database.writing() as connection:
            if _count(connection, entry.who, now, audit.c.outcome == REFUSED) >= MOST_REFUSALS:
                return False
            append(connection, entry)
            return True

    def created(self, who: str, now: datetime) -> int:
        """Return how many studies somebody created within the 24 hours before `now`."""
        with self._database.reading() as connection:
            return _count(connection, who, now, audit.c.outcome == DONE, audit.c.action == "create")

    def done(self, who: str, now: datetime) -> int:
        """Return how many actions somebody did within the 24 hours before `now`."""
        with self._database.reading() as connection:
            return _count(connection, who, now, audit.c.outcome == DONE)

    def entries(self, after: int, most: int) -> list[AuditEntry]:
        """Return the entries from the one with the number `after` on, at most so many."""
        numbered = audit.c.number >= min(after, _MOST_NUMBER)
        query = select(audit.c.content).where(numbered).order_by(audit.c.number).limit(most)
        with self._database.reading() as connection:
            return [_read(row.content) for row in connection.execute(query)]

    def trail(self, after: Followed) -> AuditTrail:
        """Return what comes after a head. Raises `AuditLogError` if this log does not have that head.

        A silo that gets this error follows the log from its beginning, and says so in all that it signs from then on.
        """
        with self._database.reading() as connection:
            last, _ = _last(connection)
            if not _has(connection, after):
                msg = f"the audit log has no head {after.head.hex()[:12]} after {after.entries} entries"
                raise AuditLogError(msg)
            query = select(audit.c.content).where(audit.c.number >= after.entries).order_by(audit.c.number)
            contents = [row.content for row in connection.execute(query.limit(MOST_DIGESTS))]
        return AuditTrail(last + 1, b"".join(entry_digest(content.encode()) for content in contents))

    def keep(self, signed: CosignedAudit) -> None:
        """Store what a silo signed, in place of what it signed before.

        Raises `AuditLogError` if it is no head of this log.
        """
        with self._database.writing() as connection:
            if not signed.entries or not _has(connection, Followed(signed.entries, signed.head)):
                msg = f"the audit log has no such head after {signed.entries} entries"
                raise AuditLogError(msg)
            connection.execute(delete(audit_cosignatures).where(audit_cosignatures.c.silo == signed.silo))
            values = {column.name: getattr(signed, column.name) for column in audit_cosignatures.columns}
            connection.execute(insert(audit_cosignatures).values(values))

    def cosigned(self) -> list[CosignedAudit]:
        """Return what each silo signed last, by name."""
        with self._database.reading() as connection:
            rows = connection.execute(select(audit_cosignatures).order_by(audit_cosignatures.c.silo)).all()
        return [
            CosignedAudit(
                row.silo,
                row.entries,
                bytes(row.head),
                row.broke_entries,
                bytes(row.broke_head),
                bytes(row.certificate_pem),
                bytes(row.signature),
            )
            for row in rows
        ]


def _has(connection: Connection, followed: Followed) -> bool:
    if followed == UNKNOWN:
        return True
    if followed.entries > _MOST_NUMBER:
        return False
    query = select(audit.c.head).where(audit.c.number == followed.entries - 1)
    row = connection.execute(query).first()
    return row is not None and bytes.fromhex(row.head) == followed.head


def _count(connection: Connection, who: str, now: datetime, *which: ColumnElement[bool]) -> int:
    recent = (audit.c.who == who, audit.c.at > stamp(now - _DAY), *which)
    query = select(func.count()).select_from(audit).where(*recent)
    return int(connection.execute(query).scalar_one())


def _read(content: str) -> AuditEntry:
    return AuditEntry(**json.loads(content))
