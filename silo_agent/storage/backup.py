"""A backup of the agent's folder, and its way back.

Guarantees: a backup holds the ledger, the shared and personal models, results, and the record of what was used up. It
holds no key, no rows, no noised integers of a silo alone and no digest of them, and nothing sealed under a key but the
list of who has withdrawn. The agent may run while it is made. A restore never puts an older ledger in the place of a
newer one, loses no entry that others are known to have cosigned, and brings back nobody who has withdrawn, by the
backup or by the folder that is there. It forgets no key that another party was met with. It ends every study that was
not over: what the silo has drawn or signed in it since the backup is unknown, and nothing is drawn twice for one charge
(docs/design/threat-model.md, "Invariants"). A restore that fails or is cut off leaves the folder that was there, or
none; the agent does not start without a ledger.

Left to others: who may read the file (it holds models as private as the records), and the charge for entries that the
backup does not have (`fedward-silo ledger recover`).
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import shutil
import sqlite3
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path, PurePosixPath
from typing import IO, Final
from urllib.parse import quote

from dacite import Config, DaciteError, from_dict

from common.durable import sync_file
from crypto.entropy import SystemEntropy
from crypto.errors import CertificateError
from crypto.pki import known_keys
from crypto.pki.at_rest import KeyHolder
from policies.errors import LedgerError
from policies.ledger.anchors import Anchor, Anchors
from policies.ledger.cosign import CosignatureFile
from policies.ledger.ledger import read_history, read_ledger
from policies.ledger.lock import WriterLock
from silo_agent.storage.durable import sync_folder, write_whole
from silo_agent.storage.errors import StateError
from silo_agent.storage.folders import StateFolder
from silo_agent.storage.rows import alone, join
from silo_agent.storage.state import State, blank

_FORMAT: Final = 1
_MANIFEST: Final = "manifest.json"
_LARGEST_MANIFEST: Final = 64 << 20
_PIECE: Final = 1 << 20
ENDED: Final = "ended: the silo's state was put back from a backup"


class BackupError(StateError):
    """A backup cannot be made, or must not be put back."""


@dataclass(frozen=True)
class Manifest:
    """What a backup says of itself. `files` has the SHA-256 of each file by its path in the folder."""

    format: int
    version: str
    """Version of FedWard that made it."""
    made: str
    """Day in UTC, YYYY-MM-DD."""
    data_set: str
    entries: int
    """Number of the ledger's newest entry."""
    files: dict[str, str]


@dataclass(frozen=True)
class Restored:
    """What a restore has done."""

    manifest: Manifest
    ended: tuple[str, ...]
    """Digests of the studies that were not over and are now."""
    aside: Path | None
    """Where the folder is that was there before."""


def make_backup(state: Path, out: Path, *, version: str, day: date) -> Manifest:
    """Write a backup of a state folder to a new file that only its owner can read.

    Raises `BackupError` if the file exists or a file cannot be read, `LedgerError` if the ledger cannot be read or is
    damaged, OSError.
    """
    source, folder = StateFolder(state), out.resolve().parent
    if state.resolve() in (folder, *folder.parents):
        msg = f"{out} lies in the folder that is backed up; give a file outside it"
        raise BackupError(msg)
    with tempfile.TemporaryDirectory(prefix=".backup-", dir=folder) as scratch:
        copies = {}
        # The ledger comes last, so that it has every entry that the state knows of.
        for database in (source.database, source.ledger):
            if database == source.ledger or database.exists():
                copies[database.name] = _copy_database(database, Path(scratch) / database.name)
        if source.database.name in copies:
            _blanked(copies[source.database.name])
        genesis, entries = read_history(copies[source.ledger.name])
        files = {name: state / name for name in _names(state)} | copies
        hashes: dict[str, str] = {}
        with _new(out) as file, tarfile.open(fileobj=file, mode="w") as archive:
            for name, path in sorted(files.items()):
                with contextlib.suppress(FileNotFoundError):  # of a round that ended meanwhile
                    hashes[name] = _add(archive, name, path)
            sequence = entries[-1].sequence if entries else 0
            manifest = Manifest(_FORMAT, version, day.isoformat(), genesis.data_set, sequence, hashes)
            (Path(scratch) / _MANIFEST).write_text(json.dumps(asdict(manifest), indent=1))
            _add(archive, _MANIFEST, Path(scratch) / _MANIFEST)
        sync_folder(folder)
    note = {"made": day.isoformat(), "entries": manifest.entries}
    write_whole(source.last_backup, json.dumps(note).encode())
    return manifest


def restore(backup: Path, state: Path, *, data_set: str, day: date, key: Callable[[], KeyHolder]) -> Restored:
    """Put a backup in place of a state folder, which is moved aside if it is there.

    `key` is asked for the silo's key if folder and backup have different lists of who has withdrawn.

    Raises `BackupError` with the reason if the backup is damaged or of another data set, or if the ledger that is
    there, or cosignatures beside it, know of more than the backup, or if a list of who has withdrawn does not open;
    `CertificateError` from `key`; `LedgerBusyError` while an agent runs; OSError.
    """
    there = StateFolder(state)
    if state.exists() and not any(state.iterdir()):
        state.rmdir()
    state.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as undo:
        if state.exists():
            undo.callback(WriterLock(there.ledger.with_name(there.ledger.name + ".lock")).leave)
            undo.enter_context(alone(there))
        scratch = Path(undo.enter_context(tempfile.TemporaryDirectory(prefix=".restore-", dir=state.parent)))
        fresh = scratch / "state"
        fresh.mkdir(mode=0o700)
        manifest = _unpack(backup, fresh)
        if manifest.data_set != data_set:
            msg = f"{backup.name}: it is a backup of the data set {manifest.data_set}, and the policy is for {data_set}"
            raise BackupError(msg)
        _require_newest(StateFolder(fresh), there)
        _keep_withdrawals(StateFolder(fresh), there, key)
        _keep_known_keys(StateFolder(fresh), there)
        _keep_epoch(StateFolder(fresh), there)
        ended = _end_studies(fresh, day)
        _give_to_owner(fresh, state if state.exists() else state.parent)
        aside = None
        if state.exists():
            aside = _free_name(state, day)
            state.rename(aside)
        fresh.rename(state)
        sync_folder(state.parent)
    return Restored(manifest, ended, aside)


def _require_newest(backup: StateFolder, there: StateFolder) -> None:
    """Refuse a backup that lacks an entry of the ledger that is there, or one that its cosigners have seen."""
    genesis, entries = read_history(backup.ledger)
    known = {entry.head for entry in entries}
    if there.ledger.exists():
        try:
            of_there, newer = read_history(there.ledger)
        except LedgerError as fault:
            msg = (
                f"the ledger that is there cannot be compared ({fault}); move {there.path} away yourself if it is lost"
            )
            raise BackupError(msg) from None
        lost = [entry for entry in newer if entry.head not in known]
        if of_there != genesis or lost:
            what = f"{len(lost)} entries that the backup lacks" if of_there == genesis else "another beginning"
            msg = f"the ledger that is there has {what}, and is never replaced by an older one; keep it"
            raise BackupError(msg)
    last = entries[-1].sequence if entries else 0
    beyond = [
        item.checkpoint.head for item in CosignatureFile(there.ledger).latest() if item.checkpoint.head.sequence > last
    ]
    if beyond:
        msg = (
            f"others have cosigned entry {max(head.sequence for head in beyond)} of this ledger, and the backup ends"
            f" before it; put back a newer one, or move {there.path} away yourself and charge what is lost"
            " (fedward-silo ledger recover)"
        )
        raise BackupError(msg)


def _give_to_owner(fresh: Path, place: Path) -> None:
    """If the administrator restores for a service's user, let everything belong to that user."""
    owner = place.stat()
    if os.geteuid() == 0 and owner.st_uid != 0:
        for path in (fresh, *fresh.rglob("*")):
            os.chown(path, owner.st_uid, owner.st_gid)


def _keep_withdrawals(fresh: StateFolder, there: StateFolder, key: Callable[[], KeyHolder]) -> None:
    """Neither list may be the newer one: a backup that is newer than the folder may be put back into it."""
    if not there.withdrawn.exists():
        return
    kept = there.withdrawn.read_bytes()
    if not fresh.withdrawn.exists():
        write_whole(fresh.withdrawn, kept)
    elif fresh.withdrawn.read_bytes() != kept:
        try:
            join(fresh, there, key(), SystemEntropy())
        except StateError:
            msg = (
                "backup and state folder have different lists of who has withdrawn, and the silo's key does not open"
                f" both; put back its key, or move {there.path} away yourself and enter every withdrawal again"
                " (fedward-silo data withdraw)"
            )
            raise BackupError(msg) from None


def _keep_known_keys(fresh: StateFolder, there: StateFolder) -> None:
    """Who was met since the backup stays known. A memory that is damaged is what a backup is for."""
    if not there.known_keys.exists():
        return
    if not fresh.known_keys.exists():
        write_whole(fresh.known_keys, there.known_keys.read_bytes())
        return
    with contextlib.suppress(CertificateError):
        known_keys.add(fresh.known_keys, known_keys.read_memory(there.known_keys))


def _keep_epoch(fresh: StateFolder, there: StateFolder) -> None:
    """A coordinator that was replaced since the backup stays replaced. The longer number is the higher one."""
    kept = [one.coordinator_epoch.read_bytes() for one in (fresh, there) if one.coordinator_epoch.exists()]
    if kept:
        write_whole(fresh.coordinator_epoch, max(kept, key=lambda text: (len(text), text)))


def _end_studies(fresh: Path, day: date) -> tuple[str, ...]:
    if not StateFolder(fresh).database.exists():
        _begin_without_state(fresh)
        return ()
    _blanked(StateFolder(fresh).database)  # a backup of an earlier version may hold plain digests
    state = State(fresh)
    try:
        running = [digest for digest, _, why in state.studies() if not why]
        for digest in running:
            state.finish(digest, ENDED, day)
            state.forget_attempt(digest)
    finally:
        state.close()
    return tuple(running)


def _begin_without_state(fresh: Path) -> None:
    """Make an empty database. Every round that was charged counts as one in which the silo has said what is lost."""
    State(fresh).close()
    last: dict[str, int] = {}
    ledger = StateFolder(fresh).ledger
    for entry in read_ledger(ledger)[1]:
        last[entry.debit.study] = max(entry.debit.round, last.get(entry.debit.study, 0))
    for study, number in last.items():
        Anchors(ledger).raise_to(study, Anchor(number, 1))


def _unpack(backup: Path, fresh: Path) -> Manifest:
    """Unpack a backup and compare every file with its manifest, which comes last."""
    hashes: dict[str, str] = {}
    content = b""
    try:
        with tarfile.open(backup, "r:") as archive:
            for member in archive:
                # A sparse file of a few bytes could fill the disk.
                plain = member.isfile() and not member.issparse() and StateFolder.backed_up(member.name)
                file, path = archive.extractfile(member) if plain else None, PurePosixPath(member.name)
                twice = member.name in hashes or (member.name == _MANIFEST and bool(content))
                if file is None or path.is_absolute() or ".." in path.parts or twice:
                    msg = f"{backup.name}: {member.name!r} does not belong into a backup; take another one"
                    raise BackupError(msg)
                if member.name == _MANIFEST:
                    content = file.read(_LARGEST_MANIFEST)
                else:
                    for folder in reversed(path.parents):
                        (fresh / folder).mkdir(mode=0o700, exist_ok=True)
                    hashes[member.name] = _write_out(file, fresh / path)
    except tarfile.TarError:
        msg = f"{backup.name}: it is no backup of an agent, or it is cut off; take another one"
        raise BackupError(msg) from None
    manifest = _manifest(content, backup)
    wrong = sorted(name for name in hashes.keys() | manifest.files if hashes.get(name) != manifest.files.get(name))
    if wrong:
        msg = f"{backup.name}: {', '.join(wrong[:5])} is not as it was backed up; take another backup"
        raise BackupError(msg)
    return manifest


def _manifest(content: bytes, backup: Path) -> Manifest:
    try:
        manifest = from_dict(Manifest, json.loads(content), Config(strict=True))
    except (ValueError, TypeError, DaciteError):
        msg = f"{backup.name}: it is no backup of an agent, or it is cut off; take another one"
        raise BackupError(msg) from None
    if manifest.format != _FORMAT:
        msg = f"{backup.name}: version {manifest.version} of FedWard made it, in a form that is unknown here; upgrade"
        raise BackupError(msg)
    return manifest


def _write_out(content: IO[bytes], target: Path) -> str:
    """Write a new file and return its SHA-256."""
    digest = hashlib.sha256()
    with _private(target) as file:
        while piece := content.read(_PIECE):
            digest.update(piece)
            file.write(piece)
    return digest.hexdigest()


def _names(state: Path) -> Iterator[str]:
    """Paths of the files that a backup holds, beside the databases."""
    for path in sorted(state.rglob("*")):
        name = path.relative_to(state).as_posix()
        if path.is_file() and not path.is_symlink() and StateFolder.backed_up(name):
            yield name


def _copy_database(source: Path, to: Path) -> Path:
    """Copy a database as it is between two writes."""
    if not source.is_file():
        read_history(source)  # says what to do about a ledger that is not there
    with (
        contextlib.closing(sqlite3.connect(f"file:{quote(str(source))}?mode=ro", uri=True)) as old,
        contextlib.closing(sqlite3.connect(to)) as new,
    ):
        try:
            old.backup(new)
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
                free = shutil.disk_usage(to.parent).free
                msg = (
                    f"{to.parent.parent}: there is no room for the backup ({free} bytes are free); make some, or choose"
                    " another folder"
                )
            else:
                msg = (
                    f"{source.name}: it cannot be read ({error}); try again, or start the agent once so that it repairs"
                    " it"
                )
            raise BackupError(msg) from None
    return to


def _blanked(copy: Path) -> None:
    try:
        blank(copy)
    except sqlite3.Error as error:
        msg = f"{copy.name}: it is damaged ({error}); put back another backup, or take this one again"
        raise BackupError(msg) from None


def _add(archive: tarfile.TarFile, name: str, path: Path) -> str:
    """Add a file as long as it is now, though it may grow meanwhile. Return the SHA-256 of what was added."""
    member = tarfile.TarInfo(name)
    member.mode = 0o600
    with path.open("rb") as file:
        member.size = os.fstat(file.fileno()).st_size
        hashing = _Hashing(file)
        archive.addfile(member, hashing)
    return hashing.digest.hexdigest()


class _Hashing(io.RawIOBase):
    """A file whose digest is taken while it is read."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self.digest = file, hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        piece = self._file.read(size)
        self.digest.update(piece)
        return piece


@contextlib.contextmanager
def _private(path: Path) -> Iterator[IO[bytes]]:
    """A new file for its owner alone, which is on the disk at the end. A full disk is told with its place and room."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        try:
            yield file
            sync_file(file)
        except OSError as error:
            if error.filename is None:
                free = shutil.disk_usage(path.parent).free
                raise OSError(error.errno, f"{error.strerror}; {free} bytes are free there", str(path)) from None
            raise


@contextlib.contextmanager
def _new(out: Path) -> Iterator[IO[bytes]]:
    """`_private` for a backup: an existing file is an error, and one that could not be completed is removed."""
    if out.exists():
        msg = f"{out}: the file exists and is not replaced; give a new name"
        raise BackupError(msg)
    try:
        with _private(out) as file:
            yield file
    except BaseException:
        out.unlink(missing_ok=True)
        raise


def _free_name(state: Path, day: date) -> Path:
    names = (
        state.with_name(f"{state.name}.before-{day}{suffix}") for suffix in ("", *(f"-{n}" for n in range(1, 100)))
    )
    free = next((name for name in names if not name.exists()), None)
    if free is None:
        msg = f"{state} was moved aside a hundred times today; remove those folders"
        raise BackupError(msg)
    return free
