"""What the agent must not forget, beside the ledger: noised releases, sealed bytes by label, promises, models.

Guarantees: a release is drawn once and kept, so a repeated attempt sends the same noised integers and never new noise
for an old charge. A mask label gives only one byte string, for good. `promises` says which sums it signed, revealed and
opened. A file is written completely or not at all, and synced before the row that names it; every digest is keyed
(`digests`). The record of what was used up stays when a study's files are removed (`begin_removal`), so a study that is
over cannot be used again. A release and its sealed form are read and written piece by piece. The folder belongs to one
agent.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, Final

import numpy as np
import structlog
from numpy.typing import NDArray
from sqlalchemy import (
    Connection,
    Row,
    Table,
    create_engine,
    delete,
    event,
    insert,
    select,
    update,
)
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.exc import DatabaseError, IntegrityError

from common.private_files import private_file, private_folder
from common.sqlite import make_durable
from protos.chunks import ChunkList
from protos.messages import Place, Tensor
from silo_agent.storage import tables
from silo_agent.storage.durable import write_pieces
from silo_agent.storage.errors import StateError, StateFileError
from silo_agent.storage.folders import StateFolder
from silo_agent.storage.keyed.anchored import Anchored
from silo_agent.storage.keyed.digests import NEVER, Digests, Kind
from silo_agent.storage.keyed.heard import Heard
from silo_agent.storage.own_files import own_files
from silo_agent.storage.promises import Promises, key_sums

KEYED: Final = 1
"""`PRAGMA user_version` of a database whose digests are keyed. That of 0.6 and of a backup's copy is 0."""
_PIECE = 1 << 16
"""Number of integers of a release that are written at once."""
log = structlog.get_logger()


@dataclass(frozen=True, repr=False)
class DrawnRelease:
    """A drawn release. `repr` prints only its kind."""

    integers: NDArray[np.int64]
    label: str
    """Digest of the mask label for which it was drawn."""

    def __repr__(self) -> str:
        return "DrawnRelease(<private>)"


@dataclass(frozen=True)
class Ending:
    """When a study ended for this silo, and whether its private files were removed. Days are in UTC."""

    study: str
    ended: date | None
    """None if it ended under a version that stored no day."""
    noticed: date | None = None
    """The day on which the clock first said that `ended` is too long ago or in the future (see `retention.weigh`)."""
    removed: date | None = None
    """The day on which the removal began. Files that are left after it are never used."""


class State:
    """The agent's folder: `state.sqlite3` and the files it names."""

    def __init__(self, folder: Path, digests: Digests | None = None) -> None:
        """Open the folder, and make what is not there. Without `digests` no release and no sealed bytes can be used.

        With them, plain digests of an earlier version are replaced. Raises `StateFileError`.
        """
        self.folder, self.files, self._digests = folder, StateFolder(folder), digests
        for path, opened in (
            (folder, private_folder(folder)),
            (self.files.database, private_file(self.files.database)),
        ):
            if opened:
                log.warning("was open to others, and is closed to them now", path=str(path))
        self._engine = create_engine(f"sqlite:///{self.files.database}")
        event.listen(self._engine, "connect", _durable)
        event.listen(self._engine, "handle_error", self._said)
        tables.metadata.create_all(self._engine)
        self.anchored, self.heard = Anchored(self._engine), Heard(self._engine)
        self.promises = Promises(self._engine, digests, self.anchored)
        if digests is not None:
            self._key_digests(digests)

    @property
    def digests(self) -> Digests:
        """The folder's keyed digests. Raises `StateError` for whoever opened it without the folder's secret."""
        if self._digests is None:
            msg = f"{self.files.database} was opened without {self.files.secret.name}; only the agent uses its digests"
            raise StateError(msg)
        return self._digests

    def _said(self, context: ExceptionContext) -> None:
        """Say in a sentence why the database cannot be used. Raises `StateFileError`."""
        if isinstance(context.sqlalchemy_exception, DatabaseError) and not isinstance(
            context.sqlalchemy_exception, IntegrityError
        ):
            free = shutil.disk_usage(self.folder).free
            msg = (
                f"{self.files.database} cannot be used ({context.original_exception}); {free} bytes are free there;"
                " make room on the disk, or fix the file's owner, and start again; if it is damaged, put it or a backup"
                " back (fedward-silo restore)"
            )
            raise StateFileError(msg) from None

    def close(self) -> None:
        """Close the database."""
        self._engine.dispose()

    def withdrawals(self) -> int:
        """How many people had withdrawn when an agent started last."""
        with self._transaction() as connection:
            return int(_value(connection, "withdrawn") or 0)

    def keep_withdrawals(self, names: int) -> None:
        """Remember how many people have withdrawn."""
        with self._transaction() as connection:
            _set(connection, "withdrawn", str(names))

    # --- studies ------------------------------------------------------------------------------------------------
    def study_folder(self, study: str) -> Path:
        """Where models and results of a study lie."""
        folder = self.files.study(study).path
        with own_files():
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return folder

    def add_study(self, study: str, canonical: bytes) -> None:
        """Store a study's text. The same text again changes nothing."""
        if self.canonical(study) is None:
            with self._transaction() as connection:
                connection.execute(
                    insert(tables.studies).values(study=study, canonical=canonical, committed=-1, why="")
                )

    def canonical(self, study: str) -> bytes | None:
        """Return a study's text, or None if the study is unknown."""
        with self._transaction() as connection:
            row = connection.execute(select(tables.studies.c.canonical).where(tables.studies.c.study == study)).first()
        return None if row is None else bytes(row.canonical)

    def committed(self, study: str) -> int:
        """Return the last committed round, -1 before the first."""
        with self._transaction() as connection:
            row = connection.execute(select(tables.studies.c.committed).where(tables.studies.c.study == study)).first()
        return -1 if row is None else int(row.committed)

    def commit(self, study: str, round_number: int) -> None:
        """Make a round's candidate model the study's model from now on."""
        with self._transaction() as connection:
            connection.execute(
                update(tables.studies).where(tables.studies.c.study == study).values(committed=round_number)
            )

    def finish(self, study: str, why: str, day: date) -> None:
        """Record that the study is over for this silo. If this is called again, the first day stays."""
        with self._transaction() as connection:
            connection.execute(update(tables.studies).where(tables.studies.c.study == study).values(why=why))
            known = connection.execute(select(tables.endings.c.study).where(tables.endings.c.study == study)).first()
            if known is None:
                connection.execute(insert(tables.endings).values(study=study, **_written(Ending(study, day))))

    def is_over(self, study: str) -> bool:
        """Whether the study has ended for this silo. It never starts again."""
        return any(digest == study and why for digest, _, why in self.studies())

    def studies(self) -> list[tuple[str, int, str]]:
        """Return all known studies: digest, last committed round, why it is over (empty while it runs)."""
        with self._transaction() as connection:
            rows = connection.execute(
                select(tables.studies.c.study, tables.studies.c.committed, tables.studies.c.why)
            ).all()
        return [(row.study, row.committed, row.why) for row in rows]

    def names(self) -> dict[str, str]:
        """Return the names of all known studies by digest; a name that cannot be read is empty."""
        with self._transaction() as connection:
            rows = connection.execute(select(tables.studies.c.study, tables.studies.c.canonical)).all()
        return {row.study: _name_in(bytes(row.canonical)) for row in rows}

    def attempt(self, study: str) -> str | None:
        """Return the silo's stored place in a study (`journal`), or None if nothing is stored."""
        with self._transaction() as connection:
            row = connection.execute(select(tables.attempts.c.body).where(tables.attempts.c.study == study)).first()
        return None if row is None else str(row.body)

    def keep_attempt(self, study: str, body: str) -> None:
        """Replace the silo's stored place in a study, in one transaction."""
        with self._transaction() as connection:
            connection.execute(delete(tables.attempts).where(tables.attempts.c.study == study))
            connection.execute(insert(tables.attempts).values(study=study, body=body))

    def forget_attempt(self, study: str) -> None:
        """Delete the silo's stored place in a study, because the study is over."""
        with self._transaction() as connection:
            connection.execute(delete(tables.attempts).where(tables.attempts.c.study == study))

    # --- studies that are over ----------------------------------------------------------------------------------
    def endings(self) -> list[Ending]:
        """Return the endings of all studies that are over."""
        with self._transaction() as connection:
            rows = {row.study: row for row in connection.execute(select(tables.endings)).all()}
        over = [study for study, _, why in self.studies() if why]
        return [_read(rows[study]) if study in rows else Ending(study, None) for study in over]

    def removed(self, study: str) -> date | None:
        """Return the day on which the removal of a study's private files began, or None if they are kept."""
        return next((ending.removed for ending in self.endings() if ending.study == study), None)

    def keep_ending(self, ending: Ending) -> None:
        """Replace the stored ending of a study."""
        with self._transaction() as connection:
            _replace(connection, ending)

    def begin_removal(self, ending: Ending) -> None:
        """Record, durably, that nothing private of the study may be used from now on, even if files are left.

        Only the fact that its charge was used stays of a release, because a digest of few integers would reveal them.
        Labels and promises stay as they are (docs/design/threat-model.md, "Invariants" 2 to 4).
        """
        with self._transaction() as connection:
            _replace(connection, ending)
            connection.execute(delete(tables.attempts).where(tables.attempts.c.study == ending.study))
            connection.execute(update(tables.releases).where(tables.releases.c.study == ending.study).values(sha256=""))

    def folders(self, study: str) -> tuple[Path, ...]:
        """Where files of a study may lie: models and results, then outbox and inbox. None is made."""
        return self.files.study(study).path, self.files.outbox(study), self.files.inbox(study)

    # --- releases -----------------------------------------------------------------------------------------------
    def release(self, place: Place, tensor: Tensor, attempt: int) -> DrawnRelease | None:
        """Return the release that was drawn for a charge, or None if there is none."""
        with self._transaction() as connection:
            row = connection.execute(
                select(tables.releases.c.sha256, tables.releases.c.label).where(
                    tables.releases.c.study == place.study,
                    tables.releases.c.round == place.round,
                    tables.releases.c.tensor == tensor,
                    tables.releases.c.attempt == attempt,
                )
            ).first()
        if row is None:
            return None
        path = self.files.study(place.study).release(place, tensor, attempt)
        self._check(path, "release", row.sha256)
        with own_files():
            return DrawnRelease(np.memmap(path, dtype="<i8", mode="r"), row.label)

    def keep_release(self, place: Place, tensor: Tensor, attempt: int, integers: NDArray[np.int64], label: str) -> None:
        """Store noised integers before they are sealed. A second draw for one charge is an error."""
        path = self.files.study(place.study).release(place, tensor, attempt)
        pieces = (
            integers[begin : begin + _PIECE].astype("<i8", copy=False).tobytes()
            for begin in range(0, len(integers), _PIECE)
        )
        row = {"study": place.study, "round": place.round, "tensor": tensor, "attempt": attempt, "label": label}
        self._keep(tables.releases, "release", place, row, path, pieces)

    # --- sealed bytes -------------------------------------------------------------------------------------------
    def sealed(self, study: str, label: str) -> Path | None:
        """Return the file of the bytes that were sealed under a mask label, or None if the label is unused."""
        with self._transaction() as connection:
            row = connection.execute(select(tables.sealed.c.sha256).where(tables.sealed.c.label == label)).first()
        if row is None:
            return None
        path = self.files.sealed(study, label)
        self._check(path, "sealed", row.sha256)
        return path

    def keep_sealed(self, place: Place, label: str, frames: Iterable[bytes]) -> Path:
        """Store sealed frames before they are sent; from now on the label is used."""
        path = self.files.sealed(place.study, label)
        self._keep(tables.sealed, "sealed", place, {"label": label}, path, frames)
        return path

    # --- notes ---------------------------------------------------------------------------------------------------
    def note_path(self, place: Place, kind: str) -> Path:
        """Where a sealed note for the roster lies until its round is committed."""
        return self.files.note(place, kind)

    def received_path(self, place: Place, kind: str, silo: str) -> Path:
        """Return the path of another silo's note, still sealed. It is kept until its round is committed."""
        return self.files.received(place, kind, silo)

    def forget_round(self, study: str, round_number: int) -> None:
        """Delete the bytes of a committed round. The record of its used labels and draws stays."""
        for path in list(self.files.study(study).releases(round_number)):
            path.unlink()
        for box in (self.files.outbox(study), self.files.inbox(study)):
            for path in box.glob("*"):
                path.unlink()

    # --- inside -------------------------------------------------------------------------------------------------
    def _check(self, path: Path, kind: Kind, stored: str) -> None:
        with own_files():
            kept = path.exists() and self.digests.fits(stored, kind, ChunkList.of(path).digest)
        if not kept:
            msg = f"{path}: the file is missing or was changed; restore it from the same backup as state.sqlite3"
            raise StateError(msg)

    def _keep(  # noqa: PLR0917  # a row, and the file that it names
        self, table: Table, kind: Kind, place: Place, row: dict[str, object], path: Path, pieces: Iterable[bytes]
    ) -> None:
        """Write a file durably, then commit the row that names it. A stored file is never replaced."""
        digests = self.digests
        try:
            with self.anchored.binding(place) as connection:
                # The row comes first. It is refused before any byte of an existing file is touched.
                connection.execute(insert(table).values(**row, sha256=NEVER))
                sha256 = digests.keyed(kind, write_pieces(path, pieces))
                connection.execute(
                    update(table).where(*(table.c[k] == v for k, v in row.items())).values(sha256=sha256)
                )
        except IntegrityError:
            msg = f"{path}: the file was stored before and is never replaced; begin a new attempt"
            raise StateError(msg) from None

    def _key_digests(self, digests: Digests) -> None:
        """Replace the plain digests of an earlier version, once and in one transaction. Their places are overwritten.

        A file that is not as it was stored fits no digest from then on, as it fitted none before.
        """
        with self._transaction() as connection:
            if connection.exec_driver_sql("PRAGMA user_version").scalar_one() == KEYED:
                if _value(connection, "secret") != digests.folder:
                    msg = (
                        f"{self.files.database} belongs to another state folder than {self.files.secret.name}; put back"
                        " the one that lay beside it, or put back a backup, which ends the studies that run"
                        " (fedward-silo restore)"
                    )
                    raise StateFileError(msg)
                return
            for row in connection.execute(select(tables.releases)).all():
                home = self.files.study(row.study)
                path = home.release(Place(row.study, row.round, 1), row.tensor, row.attempt)
                stored = _as_keyed(digests, "release", row.sha256, path)
                connection.execute(update(tables.releases).where(tables.releases.c.id == row.id).values(sha256=stored))
            boxes = {path.stem: path for path in self.files.all_sealed()}
            for row in connection.execute(select(tables.sealed)).all():
                stored = _as_keyed(digests, "sealed", row.sha256, boxes.get(row.label))
                connection.execute(
                    update(tables.sealed).where(tables.sealed.c.label == row.label).values(sha256=stored)
                )
            key_sums(connection, digests)
            _set(connection, "secret", digests.folder)
            connection.exec_driver_sql(f"PRAGMA user_version = {KEYED}")

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        with self._engine.begin() as connection:
            yield connection


def blank(database: Path) -> None:
    """Take everything out of a copy that a restored folder does not use: digests, and places in studies.

    Nothing of it stays in the file. The copy then rests on no secret. Raises `sqlite3.Error`.
    """
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        connection.execute("PRAGMA secure_delete=ON")
        there = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        for table in ("releases", "sealed", "sums"):
            if table in there:
                connection.execute(f"UPDATE {table} SET sha256 = ?", (NEVER,))  # noqa: S608  # a name from above
        for table in ("attempts", "folder"):
            if table in there:
                connection.execute(f"DELETE FROM {table}")  # noqa: S608  # a name from above
        connection.execute("PRAGMA user_version = 0")
        connection.execute("VACUUM")


def _value(connection: Connection, name: str) -> str | None:
    row = connection.execute(select(tables.folder.c.value).where(tables.folder.c.name == name)).first()
    return None if row is None else str(row.value)


def _set(connection: Connection, name: str, value: str) -> None:
    connection.execute(delete(tables.folder).where(tables.folder.c.name == name))
    connection.execute(insert(tables.folder).values(name=name, value=value))


def _as_keyed(digests: Digests, kind: Kind, plain: str, path: Path | None) -> str:
    """The digest in the place of a plain one. Its file is compared, unless it is gone with its round."""
    if path is not None and path.exists() and ChunkList.of(path).digest != plain:
        log.error("is not as it was stored, and is not used", path=str(path))
        return NEVER
    return digests.keyed(kind, plain) if plain else NEVER


def _name_in(canonical: bytes) -> str:
    try:
        return str(json.loads(canonical)["name"])
    except (ValueError, TypeError, KeyError):
        return ""


def _replace(connection: Connection, ending: Ending) -> None:
    connection.execute(delete(tables.endings).where(tables.endings.c.study == ending.study))
    connection.execute(insert(tables.endings).values(study=ending.study, **_written(ending)))


def _written(ending: Ending) -> dict[str, str]:
    days = {"ended": ending.ended, "noticed": ending.noticed, "removed": ending.removed}
    return {name: "" if day is None else day.isoformat() for name, day in days.items()}


def _read(row: Row[Any]) -> Ending:
    ended, noticed, removed = (
        date.fromisoformat(text) if text else None for text in (row.ended, row.noticed, row.removed)
    )
    return Ending(row.study, ended, noticed, removed)


def _durable(connection: object, _record: object) -> None:
    """Set full synchronous writes and a rollback journal, because a release must survive everything that follows it.

    Deleted content of a row is overwritten, and does not remain in the file.
    """
    make_durable(connection, "secure_delete=ON")
