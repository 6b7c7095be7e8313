"""A spool whose files also lie as objects at a URL, for coordinators that share no folder: S3, or what fsspec knows.

Guarantees: what a silo was told is stored lies at the URL: each chunk is put there before it is acknowledged, and a
finished upload before it has its final name. Who takes over has the objects of the epoch before copied below its own
epoch, deletes all others, and fetches them. So nothing that was acknowledged is sent again, and whatever a former
coordinator still writes or deletes, it does where nobody looks. The folder on this machine is a copy, and is made anew
at each start.

Only sealed bytes leave for the URL. Credentials are the environment's (AWS_ACCESS_KEY_ID and others, AWS_ENDPOINT_URL).
"""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Final, TypeVar

import fsspec
import structlog

from coordinator.storage.shortage import Shortage
from coordinator.storage.spool import Spool, SpoolError, SpoolFullError
from coordinator.storage.words import WORD, WordDamagedError, new_word
from protos.chunks import ChunkList
from protos.messages import MAX_CHUNK, Place

log = structlog.get_logger()
_DIGITS: Final = 15
"""Of the offset in the name of a chunk, so that names sort as offsets do."""
_WORD_OBJECT: Final = "spool.id"
_EPOCH_OBJECT: Final = "epoch"
"""It says that an epoch has begun, also before anything is stored."""
_FIX: Final = "check the URL, its credentials and the network"
R = TypeVar("R")


class SpoolAwayError(SpoolFullError):
    """The URL cannot be used now. Everything stored before is intact. The silo resumes as soon as it can be used."""

    def __init__(self, url: str, error: Exception) -> None:
        told = f"spool_url {url} cannot be used ({type(error).__name__}: {error}); {_FIX}"
        super().__init__(OSError(0, told))
        self.args = ("the coordinator's spool cannot be used now; try again later",)
        self.shortage = Shortage("disk", told)


class SpoolObjects:
    """Objects below a URL. Every method raises `SpoolAwayError` if the URL cannot be used."""

    def __init__(self, url: str) -> None:
        """Open a URL of fsspec, such as `s3://bucket/fedward`. Raises `SpoolError` if nothing here can open it."""
        self.url = url
        try:
            self._system, root = fsspec.core.url_to_fs(url, use_listings_cache=False, skip_instance_cache=True)
        except (ImportError, ValueError) as error:
            msg = f"spool_url {url} cannot be opened: {error}; install the extra `objects`, or fix the URL"
            raise SpoolError(msg) from None
        self._root = root.rstrip("/")

    def names(self, below: str = "") -> dict[str, int]:
        """Return every object below a name, with its size, by its name from the root on."""

        def listed() -> dict[str, int]:
            found: dict[str, Any] = self._system.find(self._at(below), detail=True)
            return {name[len(self._root) + 1 :]: int(one["size"] or 0) for name, one in found.items()}

        try:
            return self._asked(listed)
        except FileNotFoundError:
            return {}

    def put(self, name: str, content: bytes) -> None:
        """Store an object, in place of any other."""
        self._asked(lambda: self._system.makedirs(self._at(name).rpartition("/")[0], exist_ok=True))
        self._asked(lambda: self._system.pipe_file(self._at(name), content))

    def put_file(self, name: str, path: Path) -> None:
        """Store a file as an object."""
        self._asked(lambda: self._system.makedirs(self._at(name).rpartition("/")[0], exist_ok=True))
        self._asked(lambda: self._system.put_file(str(path), self._at(name)))

    def get(self, name: str) -> bytes:
        """Return an object. Raises FileNotFoundError if there is none."""
        return self._asked(lambda: bytes(self._system.cat_file(self._at(name))))

    def copy(self, name: str, to: str) -> None:
        """Copy an object, where it lies."""
        self._asked(lambda: self._system.makedirs(self._at(to).rpartition("/")[0], exist_ok=True))
        self._asked(lambda: self._system.cp_file(self._at(name), self._at(to)))

    def remove(self, names: Collection[str]) -> None:
        """Delete objects that may be gone."""
        for name in names:
            try:
                self._asked(functools.partial(self._system.rm_file, self._at(name)))
            except FileNotFoundError:
                continue

    def word(self) -> str:
        """Return the word of chance by which a database knows this spool; make one if there is none."""
        if _WORD_OBJECT not in self.names():
            self.put(_WORD_OBJECT, new_word().encode())
        word = self.get(_WORD_OBJECT).decode(errors="replace").strip()
        if not WORD.fullmatch(word):
            msg = f"{self.url}/{_WORD_OBJECT} is damaged; write into it the word that the database has (table lease)"
            raise WordDamagedError(msg)
        return word

    def _at(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root

    def _asked(self, ask: Callable[[], R]) -> R:
        try:
            return ask()
        except FileNotFoundError:
            raise
        except Exception as error:  # noqa: BLE001  # each file system of fsspec has errors of its own
            raise SpoolAwayError(self.url, error) from None


class MirroredSpool(Spool):
    """A spool in a folder of this machine, with everything at a URL as well."""

    def __init__(self, root: Path, epoch: int, objects: SpoolObjects) -> None:
        """Take over what lies at the URL. Raises `SpoolError`, `SpoolAwayError`, OSError."""
        for old in root.iterdir() if root.is_dir() else ():
            if old.name.isdigit():  # an epoch's; nothing else is a spool's to delete
                shutil.rmtree(old, ignore_errors=True)
        super().__init__(root, epoch)
        self._objects, self._epoch = objects, epoch
        self._take_over()

    def append(self, path: Path, offset: int, data: bytes) -> None:
        """As `Spool.append`; the bytes lie at the URL when it returns."""
        super().append(path, offset, data)
        self._objects.put(f"{self._name(path)}/{offset:0{_DIGITS}d}", data)

    def cut(self, path: Path, length: int) -> None:
        """As `Spool.cut`."""
        super().cut(path, length)
        parts = self._objects.names(self._name(path))
        self._objects.remove([name for name in parts if _offset(name) >= length])

    def keep_chunk_list(self, path: Path, chunks: ChunkList) -> None:
        """As `Spool.keep_chunk_list`."""
        super().keep_chunk_list(path, chunks)
        self._objects.put(self._name(path), chunks.to_bytes())

    def publish(self, partial: Path, complete: Path) -> None:
        """As `Spool.publish`. The file lies whole at the URL before it has its final name here."""
        self._objects.put_file(self._name(complete), partial)
        super().publish(partial, complete)
        self._objects.remove(list(self._objects.names(self._name(partial))))

    def discard(self, path: Path) -> None:
        """As `Spool.discard`."""
        super().discard(path)
        self._objects.remove(list(self._objects.names(self._name(path))))

    def probe(self) -> None:
        """As `Spool.probe`, and the same at the URL."""
        super().probe()
        name = f"{self._epoch}/probe"
        self._objects.put(name, bytes(MAX_CHUNK))
        self._objects.remove([name])

    def clear(self, place: Place) -> None:
        """As `Spool.clear`. Objects that cannot be deleted now are deleted at the next start."""
        super().clear(place)
        try:
            self._objects.remove(list(self._objects.names(self._name(self._folder(place)))))
        except SpoolAwayError as error:
            log.warning("objects are left until the next start", why=str(error.shortage.told))

    def sweep(self, kept: Collection[Place]) -> None:
        """As `Spool.sweep`, at the URL as well."""
        super().sweep(kept)
        folders = tuple(f"{self._name(self._folder(place))}/" for place in kept)
        mine = set(self._objects.names(str(self._epoch))) - {f"{self._epoch}/{_EPOCH_OBJECT}"}
        self._objects.remove([name for name in mine if not name.startswith(folders)])

    # --- inside -----------------------------------------------------------------------------------------------------
    def _name(self, path: Path) -> str:
        """The object of a file: its path below the root, which begins with the epoch."""
        return path.relative_to(self._root.parent).as_posix()

    def _take_over(self) -> None:
        """Bring the newest epoch's objects under this one, delete all others, and fetch what is left."""
        there = self._objects.names()
        epochs = {_epoch(name) for name in there} - {None}
        newest = max((one for one in epochs if one is not None), default=self._epoch)
        if newest > self._epoch:
            msg = f"{self._objects.url} was used under epoch {newest}, and the lease has {self._epoch}; is it another?"
            raise SpoolError(msg)
        self._objects.put(f"{self._epoch}/{_EPOCH_OBJECT}", str(self._epoch).encode())
        mine = {name for name in there if _epoch(name) == newest and not name.endswith(f"/{_EPOCH_OBJECT}")}
        for name in sorted(mine) if newest != self._epoch else ():
            self._objects.copy(name, f"{self._epoch}/{name.partition('/')[2]}")
        self._objects.remove([name for name in there if _epoch(name) not in (None, self._epoch)])
        self._fetch()

    def _fetch(self) -> None:
        """Write every object into its file. Parts of an upload make a file as far as they follow each other."""
        for name, size in sorted(self._objects.names(str(self._epoch)).items()):
            if name.endswith(f"/{_EPOCH_OBJECT}"):
                continue
            path = self._root.parent / name
            if ".partial/" not in name:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(self._objects.get(name))
            elif _offset(name) == self.length(path.parent) and size:
                super().append(path.parent, _offset(name), self._objects.get(name))


def _epoch(name: str) -> int | None:
    """The epoch in whose folder an object lies; None if it lies in none."""
    first, slash, _ = name.partition("/")
    return int(first) if slash and first.isdigit() else None


def _offset(name: str) -> int:
    """Where the bytes of a part of an upload begin."""
    return int(name.rpartition("/")[2])
