"""An authority's register, `issued.jsonl`: all that it certified, admitted, delegated and took back.

Guarantees: an entry is on the disk before the call that writes it returns. Every entry has the SHA-256 of all bytes
before it, and the authority signs the newest of these with the number of entries (`issued.head`). So nobody without the
authority's key removes, changes or appends an entry, at the end either. Who has an older copy of both files can put
back both: an issuing authority keeps a register of its own, and each admission carries the number of its entry.

A register of version 0.6 has no head and gets one with its next entry; those of 0.5 have no chain and may only stand at
the beginning. An entry that a crash cut short, or whose head was not written any more, is taken away when the register
is opened next: no call returned for it. If two processes open the register, one waits for the other, so neither misses
what the other certifies. A silo keeps one data set and a data set has one silo for good, expired certificates included,
so neither a new name, nor a new silo, nor a reinstallation refills a budget. Silos that were certified before 0.5 have
no data set in the register; their next certificate binds them, and until then their data set can still be certified for
another silo. The person who certifies must know whether two data sets are different patients. A new root goes on with
the register of the root before it.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Self, cast

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from common.durable import sync_file
from common.file_lock import lock
from crypto.canonical import canonical
from crypto.errors import CertificateError, EnrolmentError
from crypto.pki.admission import Admission
from crypto.pki.authority.entries import (
    ADMISSION,
    AUTHORITY,
    CERTIFICATE,
    PARTY,
    REDEMPTION,
    REGISTER_FILE,
    REVOCATION,
    SUCCESSION,
    Entry,
    Index,
    parse,
)
from crypto.pki.identity import Subject
from crypto.pki.key_files import replace
from crypto.pki.reading import fingerprint, key_fingerprint, parse_certificate
from crypto.pki.standing import Stamp, stamp

HEAD_FILE = "issued.head"
"""What the authority has signed of its register."""


class RegisterMemory:
    """What a program remembers of a register between two openings: a register of years is long to read."""

    def __init__(self) -> None:
        self.index = Index()
        self.seen: Stamp = None


class Register:
    """The open register, locked for this process alone."""

    def __init__(
        self, folder: Path, file: IO[bytes], key: ec.EllipticCurvePrivateKey | None, known: RegisterMemory
    ) -> None:
        self._path, self._file, self._key, self._known = folder / REGISTER_FILE, file, key, known

    @classmethod
    @contextmanager
    def open(
        cls, folder: Path, key: ec.EllipticCurvePrivateKey | None = None, known: RegisterMemory | None = None
    ) -> Iterator[Self]:
        """Open the register of the authority in this folder; without the authority's key, to read.

        `known` is what this program knows of it already. Raises `EnrolmentError` if it cannot be opened or read, or is
        not what the authority has signed.
        """
        try:
            file = (folder / REGISTER_FILE).open("r+b")
        except OSError as error:
            msg = (
                f"the register cannot be opened ({error.strerror}), so nothing is certified; restore {REGISTER_FILE}"
                " from its newest backup"
            )
            raise EnrolmentError(msg) from None
        with file:
            lock(file)
            register = cls(folder, file, key, known or RegisterMemory())
            register._read()
            yield register

    @classmethod
    def adopt(cls, folder: Path, key: ec.EllipticCurvePrivateKey) -> None:
        """Sign a register as it lies there: the copy of another authority's, with which this one goes on.

        Raises `EnrolmentError`.
        """
        index = Index()
        with (folder / REGISTER_FILE).open("rb") as file:
            for line in file:
                index.add(line)
        _sign_head(folder, index, key)

    def require_free(self, subject: Subject) -> None:
        """Raise `EnrolmentError` if the silo has another data set, or the data set another silo."""
        self.index.require_free(subject)

    @property
    def index(self) -> Index:
        """What the entries say."""
        return self._known.index

    def record(
        self, certificate_pem: bytes, subject: Subject, hosts: Sequence[str], *, admission: Admission | None = None
    ) -> None:
        """Append a party's certificate, durably. Raises `EnrolmentError`."""
        fields = {"identity": subject.identity.uri, "data_set": subject.data_set, "hosts": list(hosts)}
        if subject.institution is not None:
            fields["institution"] = subject.institution
        if admission is not None:
            fields["admission"] = f"{admission.serial:x}"
        self._append(CERTIFICATE, **_described(certificate_pem), **fields)

    def admit(self, admission: Admission) -> None:
        """Append an admission, durably: the party may be certified online. Raises `EnrolmentError`."""
        self._append(
            ADMISSION,
            serial=f"{admission.serial:x}",
            identity=admission.subject.identity.uri,
            data_set=admission.subject.data_set,
            institution=admission.subject.institution,
            hosts=list(admission.hosts),
            key=admission.key,
            not_after=admission.expires.isoformat(),
            redeem_until=admission.redeem_until.isoformat(),
        )

    def delegate(self, certificate_pem: bytes, name: str, hosts: Sequence[str]) -> None:
        """Append an issuing authority's certificate, durably. Raises `EnrolmentError`."""
        key = key_fingerprint(cast("ec.EllipticCurvePublicKey", parse_certificate(certificate_pem).public_key()))
        self._append(AUTHORITY, **_described(certificate_pem), name=name, key=key, hosts=list(hosts))

    def delegated(self, name: str) -> int:
        """Return the serial number of the newest certificate of an authority of that name under this root.

        Raises `EnrolmentError` if there is none.
        """
        entries = [one for one in self.own() if one["kind"] == AUTHORITY and one["name"] == name]
        if not entries:
            msg = f"this root delegated to no authority {name!r}; see `register`"
            raise EnrolmentError(msg)
        return int(entries[-1]["serial"], 16)

    def redeem(self, admission: Admission, key: str) -> None:
        """Append that a token was redeemed by the key with this fingerprint, durably.

        The same key may come again, so that a party whose connection broke gets its certificate. Raises
        `EnrolmentError` if another key redeemed the token.
        """
        serial = f"{admission.serial:x}"
        before = self.index.redeemed.get(serial)
        if before is None:
            self._append(REDEMPTION, serial=serial, identity=admission.subject.identity.uri, key=key)
        elif before != key:
            msg = (
                f"the token of {admission.subject} was redeemed already, by a key with SHA-256 {before}; if that"
                " is not your key, tell the authority at once, and have it revoke the admission and make a new token"
            )
            raise EnrolmentError(msg)

    def next_number(self) -> int:
        """The number of the entry that is written next, from 1."""
        return self.index.count + 1

    def succeed(self, root: str) -> None:
        """Append that a new root, with this SHA-256, goes on with the register, durably. Raises `EnrolmentError`."""
        self._append(SUCCESSION, sha256=root)

    def own(self) -> list[Entry]:
        """Return the entries of this root itself, without those of the roots before it. Raises as `entries`."""
        entries = self.entries()
        begins = [number for number, one in enumerate(entries, 1) if one["kind"] == SUCCESSION]
        return entries[begins[-1] :] if begins else entries

    def revoke(self, serial: int, since: datetime, what: str, reason: str) -> None:
        """Append a revocation, durably. Raises `EnrolmentError`."""
        date = since.astimezone(UTC).isoformat()
        self._append(REVOCATION, serial=f"{serial:x}", since=date, what=what, reason=reason)

    def take_back(self, identity: str, reason: str) -> None:
        """Append that all is taken back that a party was admitted for until now, durably. Raises `EnrolmentError`.

        Its tokens have serial numbers that an issuing authority learns only when they are redeemed.
        """
        self._append(PARTY, identity=identity, reason=reason)

    def entries(self) -> list[Entry]:
        """Return all entries in order."""
        self._file.seek(0)
        return [entry for line in self._file if (entry := parse(line)) is not None]

    def head(self) -> str:
        """SHA-256 of the whole register, lowercase hex: who notes it down can tell later that nothing was removed."""
        return self.index.head

    def _read(self) -> None:
        """Read the file, unless nobody has written to it since."""
        if self._known.seen is not None and stamp(self._path) == self._known.seen:
            return
        content = self._file.read()
        index, signed, at_head = Index(), _read_head(self._path.parent), None
        lines = list(io.BytesIO(content))
        for number, line in enumerate(lines, 1):
            if not line.endswith(b"\n") and _is_piece(line, index.head):
                break
            if signed is not None and index.count == signed.entries:
                at_head = index.head
                if number == len(lines) and index.follows(line):
                    break  # no call returned for it
            index.add(line)
        if signed is not None and index.count == signed.entries:
            at_head = index.head
        self._require_signed(index, signed, at_head)
        if index.size != len(content):
            self._file.truncate(index.size)
            sync_file(self._file)
        self._known.index, self._known.seen = index, stamp(self._path)

    def _require_signed(self, index: Index, signed: Head | None, at_head: str | None) -> None:
        """Raise `EnrolmentError` unless the entries are those that the authority signed last."""
        if signed is None and not index.counted:
            return
        if signed is None:
            msg = (
                f"{HEAD_FILE}, which signs the register, is not there, so nothing is certified; restore it and"
                f" {REGISTER_FILE} from their newest backup"
            )
            raise EnrolmentError(msg)
        key = _public_key(self._path.parent) if self._key is None else self._key.public_key()
        if not signed.is_by(key):
            msg = f"{HEAD_FILE} was not signed by this authority, so nothing is certified; restore it from its backup"
            raise EnrolmentError(msg)
        if at_head != signed.sha256 or index.count != signed.entries:
            msg = (
                f"{REGISTER_FILE} has {index.count} entries that are not the {signed.entries} which this authority has"
                " signed, so some were removed or written by somebody else and nothing is certified; restore it and"
                f" {HEAD_FILE} from their newest backup"
            )
            raise EnrolmentError(msg)

    def _append(self, kind: str, **fields: object) -> None:
        if self._key is None:
            msg = "the register was opened to read, and only who has the authority's key can write to it"
            raise EnrolmentError(msg)
        index, at = self.index, datetime.now(UTC).isoformat(timespec="seconds")
        entry = {"kind": kind, **fields, "at": at, "number": index.count + 1, "previous": index.head}
        line, end = json.dumps(entry, sort_keys=True).encode() + b"\n", index.size
        self._known.seen = None
        try:
            self._file.seek(end)
            self._file.write(line)
            sync_file(self._file)
            index.add(line)
            _sign_head(self._path.parent, index, self._key)
        except (OSError, EnrolmentError) as error:
            self._key = None  # nothing more is written in this opening, and the next one reads anew
            with suppress(OSError):
                self._file.truncate(end)
            msg = (
                f"the register cannot be written ({getattr(error, 'strerror', None) or error}), so nothing is"
                f" certified; check the owner of {REGISTER_FILE} and the room on its disk"
            )
            raise EnrolmentError(msg) from None
        self._known.seen = stamp(self._path)


@dataclass(frozen=True)
class Head:
    """What an authority has signed: so many entries with this digest."""

    entries: int
    sha256: str
    signature: bytes

    @staticmethod
    def to_sign(entries: int, sha256: str) -> bytes:
        """The bytes that are signed (ECDSA P-256, SHA-256)."""
        return canonical("fedward register", str(entries), sha256)

    def is_by(self, key: ec.EllipticCurvePublicKey) -> bool:
        """Whether this key has signed it."""
        try:
            key.verify(self.signature, self.to_sign(self.entries, self.sha256), ec.ECDSA(hashes.SHA256()))
        except InvalidSignature:
            return False
        return True


def _sign_head(folder: Path, index: Index, key: ec.EllipticCurvePrivateKey) -> None:
    signature = key.sign(Head.to_sign(index.count, index.head), ec.ECDSA(hashes.SHA256()))
    head = {"entries": index.count, "sha256": index.head, "signature": signature.hex()}
    replace(folder / HEAD_FILE, json.dumps(head).encode() + b"\n")


def _read_head(folder: Path) -> Head | None:
    """Read what was signed last; None if there is no file. Raises `EnrolmentError`."""
    try:
        fields = json.loads((folder / HEAD_FILE).read_bytes())
        return Head(int(fields["entries"]), str(fields["sha256"]), bytes.fromhex(fields["signature"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        msg = f"{HEAD_FILE} cannot be read, so nothing is certified; restore it and {REGISTER_FILE} from a backup"
        raise EnrolmentError(msg) from None


def _public_key(folder: Path) -> ec.EllipticCurvePublicKey:
    """The authority's own, from its folder. Raises `EnrolmentError`."""
    request, certificate = folder / "issuing.csr", folder / "authority.pem"
    try:
        if request.exists():
            key = x509.load_pem_x509_csr(request.read_bytes()).public_key()
        else:
            key = parse_certificate(certificate.read_bytes()).public_key()
    except (OSError, ValueError, CertificateError):
        key = None
    if not isinstance(key, ec.EllipticCurvePublicKey):
        msg = f"the folder has no {request.name} and no {certificate.name} to check {HEAD_FILE} by; restore it"
        raise EnrolmentError(msg)
    return key


def _is_piece(line: bytes, before: str) -> bool:
    """Whether a line without an end is a piece of an entry, or an entry that follows: what a crash leaves."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return True
    return isinstance(entry, dict) and entry.get("previous") == before


def _described(certificate_pem: bytes) -> dict[str, object]:
    certificate = parse_certificate(certificate_pem)
    return {
        "serial": f"{certificate.serial_number:x}",
        "not_before": certificate.not_valid_before_utc.isoformat(),
        "not_after": certificate.not_valid_after_utc.isoformat(),
        "sha256": fingerprint(certificate_pem),
    }
