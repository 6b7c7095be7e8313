"""An authority's register, `issued.jsonl`: all that it certified, admitted, delegated and took back.

Guarantees: an entry is on the disk before the call that writes it returns. Every entry has the SHA-256 of all bytes
before it, so nobody removes or changes one without changing all that follow (entries of version 0.5 have none, and may
only stand at the beginning). An entry that a crash cut short is taken away when the register is opened next: no call
returned for it. If two processes open the register, one waits for the other, so neither misses what the
other certifies. A silo keeps one data set and a data set has one silo for good, expired certificates included, so
neither a new name, nor a new silo, nor a reinstallation refills a budget. Silos that were certified before 0.5 have no
data set in the register; their next certificate binds them, and until then their data set can still be certified for
another silo. The person who certifies must know whether two data sets are different patients. A new root goes on with
the register of the root before it.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Self, cast

from cryptography.hazmat.primitives.asymmetric import ec

from crypto.errors import CertificateError, EnrolmentError
from crypto.pki.admission import Admission
from crypto.pki.identity import Identity, Subject
from crypto.pki.reading import fingerprint, key_fingerprint, parse_certificate

REGISTER_FILE = "issued.jsonl"
CERTIFICATE, ADMISSION, AUTHORITY, REDEMPTION, REVOCATION, SUCCESSION = (
    "certificate",
    "admission",
    "authority",
    "redemption",
    "revocation",
    "succession",
)
_WITH_SUBJECT = (CERTIFICATE, ADMISSION)

Entry = Mapping[str, Any]
"""One entry: `kind`, and the fields that the methods of `Register` write."""


@dataclass(frozen=True)
class Admitted:
    """Who is admitted, by the newest admission."""

    subject: Subject
    hosts: tuple[str, ...]
    until: datetime
    key: str | None
    """SHA-256 of the key that the admission names; None if it names none."""


class Register:
    """The open register, locked for this process alone."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    @classmethod
    @contextmanager
    def open(cls, folder: Path) -> Iterator[Self]:
        """Open the register of the authority in this folder. Raises `EnrolmentError` if it cannot be opened."""
        try:
            file = (folder / REGISTER_FILE).open("r+b")
        except OSError as error:
            msg = (
                f"the register cannot be opened ({error.strerror}), so nothing is certified; restore {REGISTER_FILE}"
                " from its newest backup"
            )
            raise EnrolmentError(msg) from None
        with file:
            fcntl.flock(file, fcntl.LOCK_EX)
            register = cls(file)
            register._take_away_half_an_entry()
            yield register

    def require_free(self, subject: Subject) -> None:
        """Raise `EnrolmentError` if the silo has another data set, or the data set another silo."""
        for other in self._silos():
            if other.keeps_budget_of(subject):
                continue
            if other.identity == subject.identity:
                msg = (
                    f"{other.identity} was certified for the data set {other.data_set}, and a new name does not refill"
                    " a budget; put back data_set.id in the policy, or enrol another silo for other patients"
                )
                raise EnrolmentError(msg)
            if other.data_set == subject.data_set:
                msg = (
                    f"the data set {other.data_set} was certified for {other.identity}, whose ledger keeps its budget;"
                    " enrol that silo again, or, if these are other patients, give their data set another id"
                )
                raise EnrolmentError(msg)

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

    def count_certificates(self, admission: Admission, after: datetime) -> int:
        """Return how many certificates of an admission begin after a time. Raises as `entries`."""
        serial = f"{admission.serial:x}"
        mine = (one for one in self.entries() if one["kind"] == CERTIFICATE and one.get("admission") == serial)
        return sum(datetime.fromisoformat(one["not_before"]) > after for one in mine)

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
        found = [one for one in self.own() if one["kind"] == AUTHORITY and one["name"] == name]
        if not found:
            msg = f"this root delegated to no authority {name!r}; see `register`"
            raise EnrolmentError(msg)
        return int(found[-1]["serial"], 16)

    def standing(self, now: datetime) -> list[Admitted]:
        """Return who is admitted now: not taken back, by this root or one before it. Raises as `entries`."""
        entries = self.entries()
        gone = {one["serial"] for one in entries if one["kind"] == REVOCATION}
        newest = {one["identity"]: one for one in entries if one["kind"] == ADMISSION}
        return [
            Admitted(
                Subject(Identity.parse(one["identity"]), one["data_set"], one.get("institution")),
                tuple(one["hosts"]),
                datetime.fromisoformat(one["not_after"]),
                one.get("key"),
            )
            for one in newest.values()
            if one["serial"] not in gone and datetime.fromisoformat(one["not_after"]) > now
        ]

    def redeem(self, admission: Admission, key: str) -> None:
        """Append that a token was redeemed by the key with this fingerprint, durably.

        The same key may come again, so that a party whose connection broke gets its certificate. Raises
        `EnrolmentError` if another key redeemed the token.
        """
        serial = f"{admission.serial:x}"
        before = next((one for one in self.entries() if one["kind"] == REDEMPTION and one["serial"] == serial), None)
        if before is None:
            self._append(REDEMPTION, serial=serial, identity=admission.subject.identity.uri, key=key)
        elif before["key"] != key:
            msg = (
                f"the token of {admission.subject} was redeemed already, by a key with SHA-256 {before['key']}; if that"
                " is not your key, tell the authority at once, and have it revoke the admission and make a new token"
            )
            raise EnrolmentError(msg)

    def next_number(self) -> int:
        """The number of the entry that is written next, from 1. Raises as `entries`."""
        return len(self.entries()) + 1

    def redeemed(self) -> dict[str, str]:
        """Return the URIs of parties with the key that redeemed their newest token. Raises as `entries`."""
        return {one["identity"]: one["key"] for one in self.entries() if one["kind"] == REDEMPTION}

    def succeed(self, root: str) -> None:
        """Append that a new root, with this SHA-256, goes on with the register, durably. Raises `EnrolmentError`."""
        self._append(SUCCESSION, sha256=root)

    def own(self) -> list[Entry]:
        """Return the entries of this root itself, without those of the roots before it. Raises as `entries`."""
        found = self.entries()
        begins = [number for number, one in enumerate(found, 1) if one["kind"] == SUCCESSION]
        return found[begins[-1] :] if begins else found

    def revoke(self, serial: int, since: datetime, what: str, reason: str) -> None:
        """Append a revocation, durably. Raises `EnrolmentError`."""
        date = since.astimezone(UTC).isoformat()
        self._append(REVOCATION, serial=f"{serial:x}", since=date, what=what, reason=reason)

    def revoked(self) -> dict[int, datetime]:
        """Return serial number to the date from which it counts for nothing. Raises `EnrolmentError`."""
        found: dict[int, datetime] = {}
        for one in self.own():
            if one["kind"] == REVOCATION:
                serial, since = int(one["serial"], 16), datetime.fromisoformat(one["since"])
                found[serial] = min(since, found.get(serial, since))
        return found

    def entries(self) -> list[Entry]:
        """Return all entries in order. Raises `EnrolmentError` if a line is none, or does not follow those before."""
        self._file.seek(0)
        found: list[Entry] = []
        before, chained = hashlib.sha256(), False
        for number, line in enumerate(self._file, 1):
            entry = _parse(line)
            if entry is None:
                msg = (
                    f"{REGISTER_FILE}: line {number} is no entry of the register, so nothing is certified; restore the"
                    " file from its newest backup"
                )
                raise EnrolmentError(msg)
            chained = chained or "previous" in entry
            if chained and entry.get("previous") != before.hexdigest():
                msg = (
                    f"{REGISTER_FILE}: the entry in line {number} does not follow from the lines before it, so one was"
                    " changed or removed and nothing is certified; restore the file from its newest backup"
                )
                raise EnrolmentError(msg)
            before.update(line)
            found.append(entry)
        return found

    def head(self) -> str:
        """SHA-256 of the whole register, lowercase hex: who notes it down can tell later that nothing was removed."""
        self._file.seek(0)
        return _sha256(self._file.read())

    def _take_away_half_an_entry(self) -> None:
        """Cut off a last line without an end, if it is a piece of an entry or one that follows from those before."""
        content = self._file.read()
        end = content.rfind(b"\n") + 1
        if end == len(content):
            return
        try:
            entry = json.loads(content[end:])
        except (ValueError, RecursionError):
            entry = None
        if entry is None or (isinstance(entry, dict) and entry.get("previous") == _sha256(content[:end])):
            self._file.truncate(end)
            os.fsync(self._file.fileno())

    def _append(self, kind: str, **fields: object) -> None:
        self.entries()  # A register that was tampered with gets no more entries.
        entry = {"kind": kind, **fields, "at": datetime.now(UTC).isoformat(timespec="seconds"), "previous": self.head()}
        end = self._file.seek(0, os.SEEK_END)
        try:
            self._file.write(json.dumps(entry, sort_keys=True).encode() + b"\n")
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            with suppress(OSError):
                self._file.truncate(end)
            msg = (
                f"the register cannot be written ({error.strerror}), so nothing is certified; check the owner of"
                f" {REGISTER_FILE} and the room on its disk"
            )
            raise EnrolmentError(msg) from None

    def _silos(self) -> Iterator[Subject]:
        """Yield silos with their data sets, without the silos certified before 0.5, which have none."""
        for entry in self.entries():
            if entry["kind"] in _WITH_SUBJECT and entry.get("data_set") is not None:
                yield Subject(Identity.parse(entry["identity"]), entry["data_set"])


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _described(certificate_pem: bytes) -> dict[str, object]:
    certificate = parse_certificate(certificate_pem)
    return {
        "serial": f"{certificate.serial_number:x}",
        "not_before": certificate.not_valid_before_utc.isoformat(),
        "not_after": certificate.not_valid_after_utc.isoformat(),
        "sha256": fingerprint(certificate_pem),
    }


def _parse(line: bytes) -> dict[str, Any] | None:
    """Read one line; None if it is no whole entry. Entries of version 0.5 have no kind: all are certificates."""
    try:
        entry = {"kind": CERTIFICATE, **json.loads(line)}
        if entry["kind"] in _WITH_SUBJECT:
            identity, data_set = Identity.parse(entry["identity"]), entry.get("data_set")
            if data_set is not None:
                Subject(identity, data_set)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, CertificateError):
        return None
    return entry if line.endswith(b"\n") else None
