"""Which authorities a party trusts now, and what they took back: `authority.pem` and `crls.pem`, read as they change.

Guarantees: both files are read anew as soon as one of them changes, and count together. If a change cannot be read,
what stood before it stays in force (lists until they are stale), and the fault is reported once. A revocation that was
read once is never forgotten, whatever a later file says.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from crypto.errors import CertificateError
from crypto.pki.chain import Bundle
from crypto.pki.revocation import RevocationLists

T = TypeVar("T")
LISTS_FILE = "crls.pem"
"""The revocation lists lie beside `authority.pem` under this name, unless a configuration names another file."""

Stamp = tuple[int, int, int, int] | None
"""What changes if a file does, or who may read it; None if there is no file."""


@dataclass(frozen=True)
class CertificateStanding:
    """The authorities and their lists at one moment."""

    bundle: Bundle
    lists: RevocationLists | None = None
    """None if the party keeps no lists."""


class StandingFiles:
    """The two files. Safe for many threads; files that did not change cost two calls of `stat`, and no lock."""

    def __init__(self, authority: Path, lists: Path | None = None) -> None:
        """Read the files. Without `lists` it is `crls.pem` beside `authority`, if that exists or comes to exist.

        Raises `CertificateError`.
        """
        self.on_fault: Callable[[str], object] | None = None
        """Hears of a change that cannot be read. It may be set at any time."""
        self._authority, self._lists = authority, lists or authority.parent / LISTS_FILE
        self._needs_lists = lists is not None
        self._guard = threading.Lock()
        stamps = self._look()
        self._known = stamps, self._read(stamps, None)

    def __call__(self) -> CertificateStanding:
        """Return what stands now."""
        # Both in one value, so that whoever takes no lock never sees the one of before with the other of now.
        stamps, standing = self._known
        if self._look() == stamps:
            return standing
        with self._guard:
            stamps, standing = self._known
            now = self._look()
            if now != stamps:
                try:
                    standing = self._read(now, standing)
                except CertificateError as error:
                    if self.on_fault is not None:
                        self.on_fault(f"{error}. What stood before this change stays in force")
                self._known = now, standing
            return standing

    def _look(self) -> tuple[Stamp, Stamp]:
        return stamp(self._authority), stamp(self._lists)

    def _read(self, stamps: tuple[Stamp, Stamp], before: CertificateStanding | None) -> CertificateStanding:
        bundle = _named(self._authority, Bundle.read)
        if stamps[1] is None and not self._needs_lists and (before is None or before.lists is None):
            return CertificateStanding(bundle)
        lists = _named(self._lists, lambda pem: RevocationLists.read(pem, bundle))
        return CertificateStanding(
            bundle, lists if before is None or before.lists is None else lists.merged(before.lists)
        )


def stamp(path: Path) -> Stamp:
    """Look at a file without reading it."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino


def _named(path: Path, parse: Callable[[bytes], T]) -> T:
    """Read a file. Raises `CertificateError` with its name."""
    try:
        content = path.read_bytes()
    except OSError as error:
        msg = f"{path.name} cannot be read ({error.strerror}); fix its path or its owner"
        raise CertificateError(msg) from None
    try:
        return parse(content)
    except CertificateError as error:
        msg = f"{path.name}: {error}"
        raise CertificateError(msg) from None
