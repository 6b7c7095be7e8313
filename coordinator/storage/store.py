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
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import reduce
from pathlib import Path
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    Engine,
    Float,
    Integer,
    LargeBinary,
    MetaData,
    Select,
    String,
    Table,
    UniqueConstraint,
    create_engine,
    delete,
    event,
    insert,
    select,
    update,
)
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.exc import DatabaseError, IntegrityError, OperationalError, SQLAlchemyError

from common.sqlite import make_durable
from coordinator.core.revisions import StudyExistsError
from coordinator.core.study import Progress
from coordinator.errors import CoordinatorError
from coordinator.storage import audit_log
from coordinator.storage.audit_log import AuditLog
from coordinator.storage.closing import close_to_others
from coordinator.storage.shortage import DatabaseShortError, database_told
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

_NAME: Final = 63
"""The column `name` keeps studies apart that run at once. A revision whose name went to the next one has the beginning
of its digest there; its name stands in its state."""
_metadata = MetaData()
_studies = Table(
    "studies",
    _metadata,
    Column("study", String(64), primary_key=True),
    Column("name", String(_NAME), nullable=False, unique=True),
    Column("canonical", LargeBinary, nullable=False),
    Column("progress", String, nullable=False),
)
_changes = Table(
    "changes",
    _metadata,
    Column("study", String(64), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("change", String, nullable=False),
)
"""What has changed since the whole state in `studies`, in order from 1. The process that stored the whole state has
written all of it, so no change is read by another version's rules."""
_created = Table(
    "created",
    _metadata,
    Column("id", Integer, primary_key=True),
    Column("study", String(64), nullable=False, unique=True),
)
"""The order of the studies. Studies of version 0.1 have no row here."""
_owners = Table(
    "owners",
    _metadata,
    Column("study", String(64), primary_key=True),
    Column("owner", String(128), nullable=False),
)
"""Who created each study, by the URI in the certificate. Studies of versions up to 0.6 have no row here."""
_authors = Table(
    "authors",
    _metadata,
    Column("study", String(64), primary_key=True),
    Column("certificate_pem", LargeBinary, nullable=False),
    Column("signature", LargeBinary, nullable=False),
)
"""The signature of each study's author, as it was handed in. Studies of versions up to 0.6 have no row here."""
_archived = Table("archived", _metadata, Column("study", String(64), primary_key=True))
"""Studies that are left out of lists."""
_seen = Table(
    "seen",
    _metadata,
    Column("silo", String(63), primary_key=True),
    Column("heard", Float, nullable=False),
)
"""When each silo last called, stored every half a minute, so that a restart forgets no silence."""
_contents = Table(
    "contents",
    _metadata,
    Column("id", Integer, primary_key=True),
    Column("study", String(64), nullable=False),
    Column("round", Integer, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("slot", String(32), nullable=False),
    Column("silo", String(63), nullable=False),
    Column("kind", String(16), nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("sha256", String(64), nullable=False),
    Column("signature", LargeBinary, nullable=False),
    UniqueConstraint("study", "round", "attempt", "slot", "silo"),
)
_phases = Table(
    "phases",
    _metadata,
    Column("id", Integer, primary_key=True),
    Column("study", String(64), nullable=False),
    Column("round", Integer, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("phase", String(16), nullable=False),
    Column("tensor", String(16), nullable=False),
    Column("seconds", Float, nullable=False),
)
_publications = Table(
    "publications",
    _metadata,
    Column("study", String(64), primary_key=True),
    Column("round", Integer, primary_key=True),
    Column("attempt", Integer, primary_key=True),
    Column("silo", String(63), primary_key=True),
    Column("blob", LargeBinary, nullable=False),
    Column("signature", LargeBinary, nullable=False),
    Column("certificate_pem", LargeBinary, nullable=False),
)
_room = Table(
    "room",
    _metadata,
    Column("id", Integer, primary_key=True),
    Column("blob", LargeBinary, nullable=False),
)
"""Always empty, except while `Store.probe` writes."""
_PROBE_BYTES = 1 << 16
_told = Table(
    "told",
    _metadata,
    Column("study", String(64), primary_key=True),
    Column("silo", String(63), primary_key=True),
)


class StoreError(CoordinatorError):
    """The database cannot be used. The message says why."""


class StoreDamagedError(StoreError):
    """The database does not hold what was stored. The message names its file, the cause and the fix."""


class ContentConflictError(CoordinatorError):
    """The slot holds other bytes already. A silo may send only one byte string for a round, attempt and tensor."""


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

    def __init__(self, url: str) -> None:
        """Open the database and make its tables if there are none. Raises `StoreError`."""
        self._kept: dict[str, Kept] = {}
        self._uploads: dict[str, deque[UploadSize]] = {}
        self._guard = threading.Lock()
        self.older: frozenset[str] = frozenset()
        """The studies whose state, as `load` found it, a version up to 0.6 has stored last."""
        try:
            self._engine = create_engine(url)
            if self._engine.dialect.name == "sqlite":
                event.listen(self._engine, "connect", _durable_sqlite)
            _metadata.create_all(self._engine)
            self.audit = AuditLog(self._engine)
            """Who did what, in the same database."""
            event.listen(self._engine, "handle_error", self._said)
        except (SQLAlchemyError, ImportError) as error:
            # The first line says what is wrong; the rest is SQL and links. It has no URL, which could hold a password.
            msg = f"the database cannot be used: {str(error).splitlines()[0]}; fix `database` or `data`"
            raise StoreError(msg) from None

    @classmethod
    def in_folder(cls, folder: Path) -> Store:
        """Open a SQLite database in `folder`. Folder and database are open to their owner alone. Raises OSError."""
        path = folder / "coordinator.sqlite3"
        close_to_others(folder, path)
        return cls(f"sqlite:///{path}")

    def _said(self, context: ExceptionContext) -> None:
        """Say in a sentence why the database cannot be used. Raises `DatabaseShortError`, `StoreDamagedError`."""
        error = context.sqlalchemy_exception
        if isinstance(error, IntegrityError) or not isinstance(error, DatabaseError):
            return
        url = self._engine.url
        name = url.database if url.get_backend_name() == "sqlite" else f"the database on {url.host}"
        kind = DatabaseShortError if isinstance(error, OperationalError) else StoreDamagedError
        raise kind(database_told(str(name), error)) from None

    def probe(self) -> None:
        """Write and delete a row, as large as most. Raises `DatabaseShortError` if that cannot be done now.

        Both are transactions of their own, so the pages that the first one took are free for what is stored next.
        """
        with self._transaction() as connection:
            connection.execute(insert(_room).values(blob=bytes(_PROBE_BYTES)))
        with self._transaction() as connection:
            connection.execute(delete(_room))

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
            with self._transaction() as connection:
                if after:
                    given_up = {"name": after[:_NAME]}
                    connection.execute(update(_studies).where(_studies.c.study == after).values(given_up))
                connection.execute(insert(_studies).values(row))
                connection.execute(insert(_created).values(study=script.study))
                connection.execute(insert(_owners).values(study=script.study, owner=entry.who))
                if author is not None:
                    connection.execute(insert(_authors).values(study=script.study, **asdict(author)))
                audit_log.append(connection, entry)
        except IntegrityError:
            msg = f"a study named {script.name!r} exists already; give the new one another name"
            raise StudyExistsError(msg) from None

    def delete(self, study: str, entry: AuditEntry) -> None:
        """Forget a study that was never started, with an entry in the audit log."""
        with self._transaction() as connection:
            for table in (_studies, _created, _owners, _authors, _changes, _archived):
                connection.execute(delete(table).where(table.c.study == study))
            audit_log.append(connection, entry)
        self._kept.pop(study, None)

    def archive(self, study: str, entry: AuditEntry) -> None:
        """Note that a study is left out of lists, with an entry in the audit log. Again changes nothing else."""
        with self._transaction() as connection:
            if connection.execute(select(_archived).where(_archived.c.study == study)).first() is None:
                connection.execute(insert(_archived).values(study=study))
            audit_log.append(connection, entry)

    def archived(self) -> set[str]:
        """Return the digests of all studies that are left out of lists."""
        with self._transaction() as connection:
            return {row.study for row in connection.execute(select(_archived))}

    def see(self, seen: Mapping[str, float]) -> None:
        """Store when silos last called, in seconds since the epoch."""
        with self._transaction() as connection:
            connection.execute(delete(_seen).where(_seen.c.silo.in_(seen)))
            connection.execute(insert(_seen), [{"silo": silo, "heard": at} for silo, at in seen.items()])

    def seen(self) -> dict[str, float]:
        """Return when each silo last called, as far as that was stored."""
        with self._transaction() as connection:
            return {row.silo: row.heard for row in connection.execute(select(_seen))}

    def owners(self) -> dict[str, str]:
        """Return who created each study, as a URI by the study's digest."""
        with self._transaction() as connection:
            return {row.study: row.owner for row in connection.execute(select(_owners))}

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
        with self._transaction() as connection:
            kept = _store_state(connection, progress, before)
            for time in times:
                connection.execute(
                    insert(_phases).values(
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
                connection.execute(insert(_publications).values(**asdict(place), **asdict(signed)))
            if entry is not None:
                audit_log.append(connection, entry)
        self._kept[study] = kept

    def load(self) -> list[Progress]:
        """Return all studies in the order of their creation. Studies of version 0.1 come first, by name.

        Raises `StoreDamagedError` if a change is missing, cannot be read, or does not fit what it changes.
        """
        query = (
            select(_studies.c.study, _studies.c.progress)
            .outerjoin(_created, _created.c.study == _studies.c.study)
            .order_by(_created.c.id.nulls_first(), _studies.c.name)
        )
        with self._transaction() as connection:
            rows = connection.execute(query).all()
            changed = connection.execute(select(_changes).order_by(_changes.c.number)).all()
        self.older = frozenset(row.study for row in rows if _SINCE not in json.loads(row.progress))
        found: defaultdict[str, list[tuple[int, str]]] = defaultdict(list)
        for row in changed:
            found[row.study].append((row.number, row.change))
        return [_read_state(row.progress, found[row.study]) for row in rows]

    def author(self, study: str) -> AuthorSignature | None:
        """Return the signature of a study's author; None if a version up to 0.6 stored the study."""
        with self._transaction() as connection:
            row = connection.execute(select(_authors).where(_authors.c.study == study)).first()
        return None if row is None else AuthorSignature(bytes(row.certificate_pem), bytes(row.signature))

    def canonical(self, study: str) -> bytes | None:
        """Return a study's canonical JSON, or None if the study is unknown."""
        with self._transaction() as connection:
            row = connection.execute(select(_studies.c.canonical).where(_studies.c.study == study)).first()
        return None if row is None else bytes(row.canonical)

    def holds(self, header: UploadHeader) -> bool:
        """Whether the slot is filled with exactly these bytes. Raises `ContentConflictError` if others fill it."""
        with self._transaction() as connection:
            row = connection.execute(select(_contents.c.sha256).where(*_slot(header))).first()
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
                with self._transaction() as connection:
                    connection.execute(insert(_contents).values(row))
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
        table = _contents.c
        query = select(table.silo, table.sha256).where(
            table.study == place.study,
            table.round == place.round,
            table.attempt == place.attempt,
            table.slot == slot,
        )
        with self._transaction() as connection:
            return {row.silo: row.sha256 for row in connection.execute(query)}

    def tell(self, study: str, silo: str) -> None:
        """Record that a silo knows that the study is over for it."""
        with self._transaction() as connection:
            known = connection.execute(select(_told).where(_told.c.study == study, _told.c.silo == silo)).first()
            if known is None:
                connection.execute(insert(_told).values(study=study, silo=silo))

    def told(self) -> set[tuple[str, str]]:
        """Return all pairs (study, silo) of which the silo knows that the study is over for it."""
        with self._transaction() as connection:
            return {(row.study, row.silo) for row in connection.execute(select(_told))}

    def times(self, study: str) -> tuple[PhaseTime, ...]:
        """Return how long each of the latest phases lasted, in order."""
        with self._transaction() as connection:
            rows = connection.execute(_latest(_phases, study)).all()[::-1]
        return tuple(
            PhaseTime(row.round, row.attempt, row.phase, Tensor(row.tensor) if row.tensor else None, row.seconds)
            for row in rows
        )

    def publications(self, place: Place) -> tuple[SignedPublication, ...]:
        """Return what the silos published in an attempt, sorted by name."""
        table = _publications.c
        query = select(_publications).where(
            table.study == place.study, table.round == place.round, table.attempt == place.attempt
        )
        with self._transaction() as connection:
            rows = connection.execute(query.order_by(table.silo)).all()
        return tuple(
            SignedPublication(row.silo, bytes(row.blob), bytes(row.signature), bytes(row.certificate_pem))
            for row in rows
        )

    def uploads(self, study: str) -> tuple[UploadSize, ...]:
        """Return the sizes of the latest uploads, in order. They are read once: this process alone adds to them."""
        with self._guard:
            if study not in self._uploads:
                with self._transaction() as connection:
                    rows = connection.execute(_latest(_contents, study)).all()[::-1]
                sizes = (_size_of(row.slot, row.round, row.attempt, row.kind, row.silo, row.size) for row in rows)
                self._uploads[study] = deque(sizes, MAX_HISTORY)
            return tuple(self._uploads[study])

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        with self._engine.begin() as connection:
            yield connection

    @property
    def engine(self) -> Engine:
        """The connection pool. The owner must dispose of it at the end."""
        return self._engine


def _whole(progress: Progress) -> str:
    return json.dumps(record.plain(progress) | {_SINCE: 0}, sort_keys=True)


def _store_state(connection: Connection, progress: Progress, before: Kept | None) -> Kept:
    """Store what has changed, or the whole state if that is shorter than all changes since."""
    study = progress.script.study
    if before is not None:
        change = json.dumps(changes.difference(before.progress, progress))
        if before.length + len(change) <= before.whole:
            number = before.number + 1
            connection.execute(insert(_changes).values(study=study, number=number, change=change))
            return Kept(progress, before.whole, number, before.length + len(change))
    text = _whole(progress)
    connection.execute(update(_studies).where(_studies.c.study == study).values(progress=text))
    connection.execute(delete(_changes).where(_changes.c.study == study))
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
    place, table = header.place, _contents.c
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


_SMALL_PAGES: Final = "page_size=1024"
"""Of a new database. An event is a row of a kilobyte in a transaction of its own, which writes each page that it
changes twice: a third less reaches an ext4 disk than with pages of 4 kB (bench/RESULTS.md, "silos")."""


def _durable_sqlite(connection: object, _record: object) -> None:
    """Set full synchronous writes, a rollback journal and waiting writers, so that every reply's promise is durable."""
    make_durable(connection, "foreign_keys=ON", _SMALL_PAGES)
