"""The rows that a study began with, and who has withdrawn, on this machine's disk, sealed.

Guarantees: both are sealed under the certificate's key, the rows by way of a key of their own for each study, and each
write is complete or absent. A withdrawal is durable before any row is removed, and whoever reads rows leaves out
everybody on the list: a crash on the way brings nobody back. Names are never removed from the list. What the rows are,
`data.sources.snapshot` knows. They are removed with the study's other private files (`retention`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

from common.durable import write_pieces
from common.file_lock import one_at_a_time
from crypto import sealed_file
from crypto.entropy import Entropy, SystemEntropy
from crypto.errors import SealError
from crypto.pki.at_rest import KeyHolder, Vault
from silo_agent.storage.durable import write_whole
from silo_agent.storage.errors import LocalFileError, StateError
from silo_agent.storage.folders import StateFolder, StudyFolder
from silo_agent.storage.keyed.secret import PURPOSE as STATE_SECRET

_PURPOSE: Final = "withdrawn"


class Withdrawals:
    """Everybody who has withdrawn from this silo's data set, each named as in `data.records.Records.identities`."""

    def __init__(self, files: StateFolder, credential: KeyHolder, entropy: Entropy) -> None:
        self._files, self._vault = files, Vault(credential, _PURPOSE, entropy)

    def names(self) -> frozenset[str]:
        """Who has withdrawn. Raises `StateError` if the list does not open."""
        try:
            return frozenset(json.loads(self._vault.open(self._files.withdrawn.read_bytes())))
        except FileNotFoundError:
            return frozenset()
        except SealError:
            msg = (
                f"{self._files.withdrawn.name} in the state folder was sealed by another key, or was changed; without"
                " it nobody knows who has withdrawn: finish `fedward-silo rekey` if it was cut off, put back the silo's"
                " key, or delete the file and enter every withdrawal again (fedward-silo data withdraw)"
            )
            raise LocalFileError(msg) from None

    def add(self, name: str) -> bool:
        """Add a person, within `alone`. Returns False if the person had withdrawn before."""
        names = self.names()
        write_whole(self._files.withdrawn, self._vault.seal(json.dumps(sorted(names | {name})).encode()))
        return name not in names


def join(files: StateFolder, others: StateFolder, holder: KeyHolder, entropy: Entropy) -> None:
    """Enter everybody on the list of another folder into this one's. Raises `StateError` if a list does not open."""
    names = Withdrawals(files, holder, entropy).names() | Withdrawals(others, holder, entropy).names()
    write_whole(files.withdrawn, Vault(holder, _PURPOSE, entropy).seal(json.dumps(sorted(names)).encode()))


def withdrawn_of(files: StateFolder, holder: Callable[[], KeyHolder]) -> frozenset[str]:
    """Who has withdrawn, for whoever only reads; no key is needed if nobody has. Raises `StateError`."""
    return Withdrawals(files, holder(), SystemEntropy()).names() if files.withdrawn.exists() else frozenset()


def _purpose(folder: StudyFolder) -> str:
    return f"rows of {folder.path.name}"


def seal_anew(files: StateFolder, former: KeyHolder, credential: KeyHolder, entropy: Entropy) -> None:
    """Seal under a new key what the former one sealed and what must outlive it: withdrawals, secret, rows' keys.

    It may be cut off and begun again, as long as both keys are there. The list of withdrawals comes first, and is made
    if there is none, so that no agent starts in between. Raises `StateError` if neither key opens a file.
    """
    rows = ((one.row_key, _purpose(one)) for one in files.studies())
    sealed = [(files.withdrawn, _PURPOSE), (files.secret, STATE_SECRET), *rows]
    with alone(files):
        if not files.withdrawn.exists():
            write_whole(files.withdrawn, Vault(credential, _PURPOSE, entropy).seal(b"[]"))
        for path, purpose in sealed:
            if path.exists():
                _seal_anew(path, Vault(former, purpose, entropy), Vault(credential, purpose, entropy))


def _seal_anew(path: Path, former: Vault, vault: Vault) -> None:
    content = path.read_bytes()
    try:
        vault.open(content)
    except SealError:
        try:
            plain = former.open(content)
        except SealError:
            msg = f"{path.name} in {path.parent} opens neither with the former key nor with the new; put back its own"
            raise StateError(msg) from None
        write_whole(path, vault.seal(plain))


def alone(files: StateFolder) -> AbstractContextManager[None]:
    """Wait until nobody else, of whatever process, withdraws a person or keeps rows, and keep others from it."""
    return one_at_a_time(files.withdrawing)


def row_key(folder: StudyFolder, credential: KeyHolder, entropy: Entropy) -> bytes:
    """The key of a study's rows, which is made if there are neither rows nor key.

    Raises `LocalFileError` if the key does not open, or is gone while the rows are there.
    """
    vault = Vault(credential, _purpose(folder), entropy)
    try:
        return vault.open(folder.row_key.read_bytes())
    except SealError:
        raise LocalFileError(_lost(folder.row_key, "was sealed by another key, or was changed")) from None
    except FileNotFoundError:
        if folder.rows.exists():
            raise LocalFileError(_lost(folder.row_key, "is gone")) from None
        key = entropy.bytes(sealed_file.KEY_BYTES)
        write_whole(folder.row_key, vault.seal(key))
        return key


def _lost(path: Path, what: str) -> str:
    return (
        f"{path} {what}, so the rows that this study began with cannot be read; put back {path.name}, or remove"
        " rows.sealed and rows.key from that folder: the study then goes on with the data as they are now"
    )


class SealedRows:
    """The rows of one study (`data.sources.snapshot.SnapshotStore`). `withdrawn` says who has withdrawn."""

    def __init__(
        self, folder: StudyFolder, key: Callable[[], bytes], withdrawn: Callable[[], frozenset[str]], entropy: Entropy
    ) -> None:
        self._folder, self._files, self._key = folder, folder.state, key
        self._withdrawn, self._entropy = withdrawn, entropy
        self._had_key = folder.row_key.exists()

    def kept(self) -> bool:
        """Whether there was a first reading."""
        return self._folder.rows.exists()

    def recall(self) -> Iterator[bytes]:
        """What was kept, in pieces. Raises `LocalFileError` if one cannot be opened, and if there was no reading."""
        path = self._folder.rows
        try:
            with path.open("rb") as file:
                yield from sealed_file.opened(self._key(), self._name, file)
        except SealError:
            raise LocalFileError(_lost(path, "was sealed by another key, or was changed")) from None
        except OSError as fault:
            raise LocalFileError(_lost(path, f"cannot be read ({fault.strerror})")) from None

    def require_whole(self, *, begun: bool) -> None:
        """Open rows, their key and the list of withdrawals, as far as they are there. Nothing is made.

        `begun`: whether this silo has finished a round of the study. Then there was a first reading, if there was a key
        when this object was made; version 0.5 kept no rows. Raises `LocalFileError`. Whether it does follows from the
        seals and not from what the rows hold.
        """
        self._withdrawn()
        if self.kept():
            for _ in self.recall():
                pass
        elif begun and self._had_key:
            raise LocalFileError(_lost(self._folder.rows, "is gone"))

    def keep(self, content: Iterable[bytes]) -> None:
        """Keep bytes durably, in place of those before; if they raise, those before stay. Raises `SealError`, OSError.

        The content may come from `recall`.
        """
        write_pieces(self._folder.rows, sealed_file.seal(self._key(), self._name, content, self._entropy))
        self._had_key = True

    def withdrawn(self) -> frozenset[str]:
        """Everybody who has withdrawn. Raises `StateError`."""
        return self._withdrawn()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Within it nobody else withdraws or keeps anything."""
        with alone(self._files):
            yield

    def stamp(self) -> tuple[int, int] | None:
        """Another value after every withdrawal."""
        try:
            found = self._files.withdrawn.stat()
        except FileNotFoundError:
            return None
        return found.st_mtime_ns, found.st_ino

    @property
    def _name(self) -> str:
        return _purpose(self._folder)


def kept_rows(files: StateFolder, holder: Callable[[], KeyHolder]) -> Iterator[Iterator[bytes]]:
    """What every study keeps, in pieces, for whoever only reads: nothing is made, and no key is needed without rows.

    Raises `SealError`, OSError, and what `holder` raises.
    """
    studies = files.path / "studies"
    for folder in map(StudyFolder, sorted(studies.iterdir()) if studies.exists() else ()):
        if folder.rows.exists():
            key = Vault(holder(), _purpose(folder), SystemEntropy()).open(folder.row_key.read_bytes())
            with folder.rows.open("rb") as file:
                yield sealed_file.opened(key, _purpose(folder), file)


def rows_of(folder: StudyFolder, credential: KeyHolder, entropy: Entropy) -> SealedRows:
    """The rows of one study, for whoever has the silo's key."""
    withdrawals = Withdrawals(folder.state, credential, entropy)
    return SealedRows(folder, lambda: row_key(folder, credential, entropy), withdrawals.names, entropy)
