"""What the coordinator must not forget, in a relational database: SQLite by default, PostgreSQL by URL.

Every method is one transaction, durable when it returns. A state is stored whole now and then, and in between as what
has changed (`protos.changes`), so what an event writes does not grow with the roster. A database constraint makes a
silo's content for a slot unique, so it can never be counted twice. Sealed bytes are in `spool`, not here. The
coordinator never has decrypted values, so there are none here.
"""

from __future__ import annotations

import json
import threading
from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import reduce
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Engine, Select, Table, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from coordinator.core.revisions import StudyExistsError
from coordinator.core.study import Progress
from coordinator.errors import CoordinatorError
from coordinator.storage import audit_log, tables
from coordinator.storage.audit_log import AuditLog
from coordinator.storage.database import Database, StoreDamagedError
from coordinator.storage.upgrading import upgraded
from protos import changes, record
from protos.audit import AuditEntry
from protos.messages import (
    AuthorSignature,
    Place,
    SignedPublication,
    Tensor,
    UploadHeader,
)
from protos.status import MAX_HISTORY, PhaseTime, UploadSize


class ContentConflictError(CoordinatorError):
    """The slot holds other bytes already. A silo may send only one byte string for a round, attempt and tensor."""


_PROBE_BYTES: Final = 1 << 16
_SINCE = "changed_since"
"""A member of every whole state, beside the fields of `Progress`. A version that knows no changes refuses it, as it
refuses every field that it does not know, and does not go on from an older state."""


@dataclass(frozen=True)
class Kept:
    """The state of a study as this process has stored it last."""

    progress: Progress
    whole: int
    """Length of the whole state in `studies`."""
    number: int = 0
    """Changes since."""
    length: int = 0
    """Their length in all."""


class Store:
    """The coordinator's database."""

    def __init__(self, database: Database) -> None:
        """Take a database whose tables are up to date (`migrating`)."""
        self.database = database
        self._kept: dict[str, Kept] = {}
        self._uploads: dict[str, deque[UploadSize]] = {}
        self._guard = threading.Lock()
        self.older: frozenset[str] = frozenset()
        """The studies whose state, as `load` found it, a version up to 0.6 has stored last."""
        self.audit = AuditLog(database)
        """Who did what, in the same database."""

    def probe(self) -> None:
        """Write and delete a row, as large as most. Raises `DatabaseShortError` if that cannot be done now.

        Both are transactions of their own, so the pages that the first one took are free for what is stored next.
        """
        with self.database.writing() as connection:
            connection.execute(insert(tables.room).values(blob=bytes(_PROBE_BYTES)))
        with self.database.writing() as connection:
            connection.execute(delete(tables.room))

    def create(
        self,
        canonical: bytes,
        progress: Progress,
        entry: AuditEntry,
        author: AuthorSignature | None = None,
        *,
        after: str = "",
    ) -> None:
        """Store a new study, which belongs to who created it, with its signature and its entry in the audit log.

        `after`: the digest of the revision before it, which gives up the name. Raises `StudyExistsError`.
        """
        script = progress.script
        row = {
            "study": script.study,
            "name": script.name,
            "canonical": canonical,
            "progress": _whole(progress),
        }
        try:
            with self.database.writing() as connection:
                if after:
                    given_up = {"name": after[: tables.NAME]}
                    connection.execute(update(tables.studies).where(tables.studies.c.study == after).values(given_up))
                connection.execute(insert(tables.studies).values(row))
                connection.execute(insert(tables.created).values(study=script.study))
                connection.execute(insert(tables.owners).values(study=script.study, owner=entry.who))
                if author is not None:
                    connection.execute(insert(tables.authors).values(study=script.study, **asdict(author)))
                audit_log.append(connection, entry)
        except IntegrityError:
            msg = f"a study named {script.name!r} exists already; give the new one another name"
            raise StudyExistsError(msg) from None

    def delete(self, study: str, entry: AuditEntry) -> None:
        """Forget a study that was never started, with an entry in the audit log."""
        with self.database.writing() as connection:
            for table in (
                tables.studies,
                tables.created,
                tables.owners,
                tables.authors,
                tables.changes,
                tables.archived,
            ):
                connection.execute(delete(table).where(table.c.study == study))
            audit_log.append(connection, entry)
        self._kept.pop(study, None)

    def archive(self, study: str, entry: AuditEntry) -> None:
        """Note that a study is left out of lists, with an entry in the audit log. Again changes nothing else."""
        with self.database.writing() as connection:
            if connection.execute(select(tables.archived).where(tables.archived.c.study == study)).first() is None:
                connection.execute(insert(tables.archived).values(study=study))
            audit_log.append(connection, entry)

    def archived(self) -> set[str]:
        """Return the digests of all studies that are left out of lists."""
        with self.database.reading() as connection:
            return {row.study for row in connection.execute(select(tables.archived))}

    def see(self, seen: Mapping[str, float]) -> None:
        """Store when silos last called, in seconds since the epoch."""
        with self.database.writing() as connection:
            connection.execute(delete(tables.seen).where(tables.seen.c.silo.in_(seen)))
            connection.execute(insert(tables.seen), [{"silo": silo, "heard": at} for silo, at in seen.items()])

    def seen(self) -> dict[str, float]:
        """Return when each silo last called, as far as that was stored."""
        with self.database.reading() as connection:
            return {row.silo: row.heard for row in connection.execute(select(tables.seen))}

    def owners(self) -> dict[str, str]:
        """Return who created each study, as a URI by the study's digest."""
        with self.database.reading() as connection:
            return {row.study: row.owner for row in connection.execute(select(tables.owners))}

    def save(
        self,
        progress: Progress,
        times: list[PhaseTime],
        published: tuple[Place, SignedPublication] | None = None,
        entry: AuditEntry | None = None,
    ) -> None:
        """Store a study's new state, together with the phases that it ended and the figures that a silo published.

        If a person caused it, `entry` tells so in the audit log.
        """
        study = progress.script.study
        before = self._kept.pop(study, None)  # if this fails, nobody knows what is stored: the next state is whole
        with self.database.writing() as connection:
            kept = _store_state(connection, progress, before)
            for time in times:
                connection.execute(
                    insert(tables.phases).values(
                        study=study,
                        round=time.round,
                        attempt=time.attempt,
                        phase=time.phase,
                        tensor=time.tensor or "",
                        seconds=time.seconds,
                    )
                )
            if published is not None:
                place, signed = published
                connection.execute(insert(tables.publications).values(**asdict(place), **asdict(signed)))
            if entry is not None:
                audit_log.append(connection, entry)
        self._kept[study] = kept

    def load(self) -> list[Progress]:
        """Return all studies in the order of their creation. Studies of version 0.1 come first, by name.

        Raises `StoreDamagedError` if a change is missing, cannot be read, or does not fit what it changes.
        """
        query = (
            select(tables.studies.c.study, tables.studies.c.progress)
            .outerjoin(tables.created, tables.created.c.study == tables.studies.c.study)
            .order_by(tables.created.c.id.nulls_first(), tables.studies.c.name)
        )
        with self.database.reading() as connection:
            rows = connection.execute(query).all()
            changed = connection.execute(select(tables.changes).order_by(tables.changes.c.number)).all()
        self.older = frozenset(row.study for row in rows if _SINCE not in json.loads(row.progress))
        found: defaultdict[str, list[tuple[int, str]]] = defaultdict(list)
        for row in changed:
            found[row.study].append((row.number, row.change))
        return [_read_state(row.progress, found[row.study]) for row in rows]

    def author(self, study: str) -> AuthorSignature | None:
        """Return the signature of a study's author; None if a version up to 0.6 stored the study."""
        with self.database.reading() as connection:
            row = connection.execute(select(tables.authors).where(tables.authors.c.study == study)).first()
        return None if row is None else AuthorSignature(bytes(row.certificate_pem), bytes(row.signature))

    def canonical(self, study: str) -> bytes | None:
        """Return a study's canonical JSON, or None if the study is unknown."""
        with self.database.reading() as connection:
            row = connection.execute(select(tables.studies.c.canonical).where(tables.studies.c.study == study)).first()
        return None if row is None else bytes(row.canonical)

    def holds(self, header: UploadHeader) -> bool:
        """Whether the slot is filled with exactly these bytes. Raises `ContentConflictError` if others fill it."""
        with self.database.reading() as connection:
            row = connection.execute(select(tables.contents.c.sha256).where(*_slot(header))).first()
        if row is not None and row.sha256 != header.sha256:
            msg = (
                f"{header.silo} has already sent other bytes for {header.slot} of round {header.place.round};"
                " send the stored bytes again"
            )
            raise ContentConflictError(msg)
        return row is not None

    def add_content(self, header: UploadHeader, signature: bytes) -> None:
        """Record that a slot is filled. The same bytes again change nothing. Others raise `ContentConflictError`."""
        place = header.place
        row = {
            "study": place.study,
            "round": place.round,
            "attempt": place.attempt,
            "slot": header.slot,
            "silo": header.silo,
            "kind": header.kind,
            "size": header.size,
            "sha256": header.sha256,
            "signature": signature,
        }
        try:
            with self._guard:
                known = self._uploads.pop(place.study, None)  # read anew, unless the row is stored
                with self.database.writing() as connection:
                    connection.execute(insert(tables.contents).values(row))
                if known is not None:
                    known.append(
                        _size_of(header.slot, place.round, place.attempt, header.kind, header.silo, header.size)
                    )
                    self._uploads[place.study] = known
        except IntegrityError:
            if not self.holds(header):
                raise

    def digests(self, place: Place, slot: str) -> dict[str, str]:
        """Return the digest of each silo's bytes in a slot."""
        table = tables.contents.c
        query = select(table.silo, table.sha256).where(
            table.study == place.study,
            table.round == place.round,
            table.attempt == place.attempt,
            table.slot == slot,
        )
        with self.database.reading() as connection:
            return {row.silo: row.sha256 for row in connection.execute(query)}

    def tell(self, study: str, silo: str) -> None:
        """Record that a silo knows that the study is over for it."""
        with self.database.writing() as connection:
            known = connection.execute(
                select(tables.told).where(tables.told.c.study == study, tables.told.c.silo == silo)
            ).first()
            if known is None:
                connection.execute(insert(tables.told).values(study=study, silo=silo))

    def told(self) -> set[tuple[str, str]]:
        """Return all pairs (study, silo) of which the silo knows that the study is over for it."""
        with self.database.reading() as connection:
            return {(row.study, row.silo) for row in connection.execute(select(tables.told))}

    def times(self, study: str) -> tuple[PhaseTime, ...]:
        """Return how long each of the latest phases lasted, in order."""
        with self.database.reading() as connection:
            rows = connection.execute(_latest(tables.phases, study)).all()[::-1]
        return tuple(
            PhaseTime(row.round, row.attempt, row.phase, Tensor(row.tensor) if row.tensor else None, row.seconds)
            for row in rows
        )

    def publications(self, place: Place) -> tuple[SignedPublication, ...]:
        """Return what the silos published in an attempt, sorted by name."""
        table = tables.publications.c
        query = select(tables.publications).where(
            table.study == place.study, table.round == place.round, table.attempt == place.attempt
        )
        with self.database.reading() as connection:
            rows = connection.execute(query.order_by(table.silo)).all()
        return tuple(
            SignedPublication(row.silo, bytes(row.blob), bytes(row.signature), bytes(row.certificate_pem))
            for row in rows
        )

    def uploads(self, study: str) -> tuple[UploadSize, ...]:
        """Return the sizes of the latest uploads, in order. They are read once: this process alone adds to them."""
        with self._guard:
            if study not in self._uploads:
                with self.database.reading() as connection:
                    rows = connection.execute(_latest(tables.contents, study)).all()[::-1]
                sizes = (_size_of(row.slot, row.round, row.attempt, row.kind, row.silo, row.size) for row in rows)
                self._uploads[study] = deque(sizes, MAX_HISTORY)
            return tuple(self._uploads[study])

    @property
    def engine(self) -> Engine:
        """The connection pool. The owner must dispose of it at the end."""
        return self.database.engine


def _whole(progress: Progress) -> str:
    return json.dumps(record.plain(progress) | {_SINCE: 0}, sort_keys=True)


def _store_state(connection: Connection, progress: Progress, before: Kept | None) -> Kept:
    """Store what has changed, or the whole state if that is shorter than all changes since."""
    study = progress.script.study
    if before is not None:
        change = json.dumps(changes.difference(before.progress, progress))
        if before.length + len(change) <= before.whole:
            number = before.number + 1
            connection.execute(insert(tables.changes).values(study=study, number=number, change=change))
            return Kept(progress, before.whole, number, before.length + len(change))
    text = _whole(progress)
    connection.execute(update(tables.studies).where(tables.studies.c.study == study).values(progress=text))
    connection.execute(delete(tables.changes).where(tables.changes.c.study == study))
    return Kept(progress, len(text))


def _read_state(text: str, changed: list[tuple[int, str]]) -> Progress:
    """Return the whole state after its changes, each with its number. Raises `StoreDamagedError`."""
    document = json.loads(text)
    document.pop(_SINCE, None)  # versions up to 0.6 stored every state whole
    try:
        document = reduce(changes.applied, _in_order(changed), document)
    except ValueError as error:
        msg = f"{error}; put the database back from a backup"
        raise StoreDamagedError(msg) from None
    return record.load(Progress, json.dumps(upgraded(document)))


def _in_order(changed: list[tuple[int, str]]) -> list[changes.Change]:
    """Raises ValueError if a change is missing or cannot be read."""
    if [number for number, _ in changed] != list(range(1, len(changed) + 1)):
        msg = "a change of a study's state is missing"
        raise ValueError(msg)
    return [json.loads(change) for _, change in changed]


def _slot(header: UploadHeader) -> tuple[ColumnElement[bool], ...]:
    place, table = header.place, tables.contents.c
    return (
        table.study == place.study,
        table.round == place.round,
        table.attempt == place.attempt,
        table.slot == header.slot,
        table.silo == header.silo,
    )


def _size_of(  # noqa: PLR0917  # the columns of a row
    slot: str, number: int, attempt: int, kind: str, silo: str, size: int
) -> UploadSize:
    return UploadSize(number, attempt, None if slot.startswith("note-") else Tensor(slot), kind, silo, size)


def _latest(table: Table, study: str) -> Select[Any]:
    """Select what a status can hold of a study's rows, the newest first."""
    return select(table).where(table.c.study == study).order_by(table.c.id.desc()).limit(MAX_HISTORY)
