"""Whether an issuing authority's register was put back from an older copy: what others show, and what it published.

Guarantees: nothing is certified with a register that lacks what this authority has signed. Two things tell so, and no
other party is trusted for either. A certificate that this authority's key signed and that the register does not have is
noted durably when somebody shows it; it stays noted until a register that has it is put back. Each list that the
authority makes says how many entries the register had then, and their digest. What neither tells is an older copy of
the whole folder, lists included, before anybody renews (docs/design/enrolment.md, "The register").
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from cryptography import x509

from crypto.errors import EnrolmentError
from crypto.pki.authority.entries import REGISTER_FILE, Index
from crypto.pki.key_files import replace

SHOWN_FILE: Final = "shown.json"
"""Serial numbers of certificates that this authority's key signed, and that were not in its register when shown."""
HEAD_FILE: Final = "issued.head"
LIST_OID: Final = x509.ObjectIdentifier("2.25.18808338444583560638552220443976257127")
"""The extension of a revocation list, not critical, that holds a `Mark`."""
_UTF8_STRING: Final = b"\x0c"
_MEND: Final = (
    f"put the newest {REGISTER_FILE} and {HEAD_FILE} back; if they are lost, or never were put back because the issuing"
    " key was stolen, have the root revoke this authority and delegate to one with a new key"
)


@dataclass(frozen=True)
class Mark:
    """How far a register had come."""

    entries: int
    sha256: str

    @classmethod
    def of(cls, index: Index) -> Self:
        """The register as it is now."""
        return cls(index.count, index.head)

    @property
    def extension(self) -> x509.UnrecognizedExtension:
        """The mark as a list holds it."""
        text = f"{self.entries} {self.sha256}".encode()
        return x509.UnrecognizedExtension(LIST_OID, _UTF8_STRING + bytes([len(text)]) + text)

    @classmethod
    def read(cls, list_pem: bytes) -> Self | None:
        """The mark in a list that this authority made; None if it has none, as those of 0.6."""
        try:
            extension = x509.load_pem_x509_crl(list_pem).extensions.get_extension_for_oid(LIST_OID).value
        except (ValueError, x509.ExtensionNotFound, x509.DuplicateExtension):
            return None
        text = extension.value[2:].decode() if isinstance(extension, x509.UnrecognizedExtension) else ""
        entries, _, sha256 = text.partition(" ")
        return cls(int(entries), sha256) if entries.isdecimal() else None

    def is_in(self, index: Index) -> bool:
        """Whether a register has come as far, or farther."""
        return index.had(self.entries, self.sha256)


def require_newest(folder: Path, index: Index, list_pem: bytes) -> None:
    """Raise `EnrolmentError` if the register lacks what was shown, or what it had when the newest list was made."""
    lacks = sorted(_shown(folder) - index.certified.keys())
    if lacks:
        msg = (
            f"{REGISTER_FILE} was put back from an older copy: it lacks the certificate with the serial number"
            f" {lacks[0]}, which this authority has signed ({SHOWN_FILE}), so nothing is certified; {_MEND}"
        )
        raise EnrolmentError(msg)
    mark = Mark.read(list_pem) if list_pem else None
    if mark is not None and not mark.is_in(index):
        msg = (
            f"{REGISTER_FILE} was put back from an older copy: its {index.count} entries do not begin with the"
            f" {mark.entries} that it had when the newest list was made, so nothing is certified; {_MEND}"
        )
        raise EnrolmentError(msg)


def note_shown(folder: Path, index: Index, serial: int) -> None:
    """Note a certificate that this authority's key has signed, durably, if the register does not have it.

    Raises `EnrolmentError` if it cannot be noted.
    """
    number, before = f"{serial:x}", _shown(folder)
    if number not in index.certified and number not in before:
        replace(folder / SHOWN_FILE, json.dumps(sorted({*before, number})).encode() + b"\n")


def _shown(folder: Path) -> set[str]:
    try:
        return {str(one) for one in json.loads((folder / SHOWN_FILE).read_bytes())}
    except FileNotFoundError:
        return set()
    except (OSError, ValueError, TypeError, RecursionError):
        msg = f"{SHOWN_FILE} cannot be read, so nothing is certified; restore it from a backup, or fix its owner"
        raise EnrolmentError(msg) from None
