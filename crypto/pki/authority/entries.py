"""What stands in a register, kept ready: each entry is read once, and every question is answered without reading again.

Pure: `Index` takes lines and answers; `register` has the file. A chain of SHA-256 binds every entry to all before it.
"""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from crypto.errors import CertificateError, EnrolmentError
from crypto.pki.identity import Identity, Subject

REGISTER_FILE = "issued.jsonl"
CERTIFICATE, ADMISSION, AUTHORITY, REDEMPTION, REVOCATION, SUCCESSION, PARTY = (
    "certificate",
    "admission",
    "authority",
    "redemption",
    "revocation",
    "succession",
    "party",
)
_WITH_SUBJECT = (CERTIFICATE, ADMISSION)
_REMEMBERED = 64
"""Of each admission, the beginnings of so many certificates: more than anybody gets in a day."""

Entry = Mapping[str, Any]
"""One entry: `kind`, and the fields that the methods of `Register` write."""


@dataclass(frozen=True)
class Admitted:
    """Who is admitted, by the newest admission."""

    subject: Subject
    hosts: tuple[str, ...]
    until: datetime
    key: str | None
    """SHA-256 of the key that the root named last for the party; None if it has named none."""


class Index:
    """What the lines of a register say, from its first line on."""

    def __init__(self) -> None:
        self.count = 0
        """Number of entries."""
        self.size = 0
        """Bytes of all of them."""
        self.counted = False
        """Whether an entry has a number, as all have whose register has a signed head."""
        self.revoked: dict[int, datetime] = {}
        """Serial number to the date from which it counts for nothing, by this authority and not one before it."""
        self.revocations = 0
        """How many entries of revocations there are."""
        self.taken_back: dict[str, datetime] = {}
        """A party's URI to when all was taken back that it was admitted for until then."""
        self.redeemed: dict[str, str] = {}
        """An admission's serial number (hexadecimal) to the key that redeemed its token."""
        self.keys: dict[str, str] = {}
        """A party's URI to the key that redeemed its newest token."""
        self.certified: dict[str, str] = {}
        """A certificate's serial number (hexadecimal) to its SHA-256."""
        self._gone: set[str] = set()
        self._newest: dict[str, Entry] = {}
        self._named: dict[str, str] = {}
        self._begins: dict[str, deque[datetime]] = {}
        self._sets_of: dict[str, set[str]] = {}
        self._silos_of: dict[str, set[str]] = {}
        self._before = hashlib.sha256()
        self._heads = [self._before.digest()]
        self._chained = False

    @property
    def head(self) -> str:
        """SHA-256 of all lines, lowercase hex."""
        return self._before.hexdigest()

    def had(self, entries: int, sha256: str) -> bool:
        """Whether there are so many entries or more, and the first of them, so many, have this SHA-256."""
        return 0 <= entries < len(self._heads) and self._heads[entries].hex() == sha256

    def add(self, line: bytes) -> None:
        """Take the next line. Raises `EnrolmentError` if it is no entry, or does not follow from those before."""
        entry, number = parse(line), self.count + 1
        if entry is None:
            msg = (
                f"{REGISTER_FILE}: line {number} is no entry of the register, so nothing is certified; restore the"
                " file from its newest backup"
            )
            raise EnrolmentError(msg)
        self._chained = self._chained or "previous" in entry
        if (self._chained and entry.get("previous") != self.head) or entry.get("number", number) != number:
            msg = (
                f"{REGISTER_FILE}: the entry in line {number} does not follow from the lines before it, so one was"
                " changed or removed and nothing is certified; restore the file from its newest backup"
            )
            raise EnrolmentError(msg)
        self._note(entry)
        self._before.update(line)
        self._heads.append(self._before.digest())
        self.count, self.size = number, self.size + len(line)
        self.counted = self.counted or "number" in entry

    def follows(self, line: bytes) -> bool:
        """Whether a line is an entry that may come next."""
        entry = parse(line)
        return entry is not None and entry.get("previous") == self.head and entry.get("number") == self.count + 1

    def _note(self, entry: Entry) -> None:
        kind, uri = entry["kind"], entry.get("identity", "")
        if kind in _WITH_SUBJECT and entry.get("data_set") is not None:
            self._sets_of.setdefault(uri, set()).add(entry["data_set"])
            self._silos_of.setdefault(entry["data_set"], set()).add(uri)
        if kind == CERTIFICATE:
            self._certificate(entry)
        elif kind == ADMISSION:
            self._newest[uri] = entry
            if entry.get("key") is not None:
                self._named[uri] = entry["key"]
        elif kind == REDEMPTION:
            self.redeemed.setdefault(entry["serial"], entry["key"])
            self.keys[uri] = entry["key"]
        elif kind == REVOCATION:
            serial, since = int(entry["serial"], 16), datetime.fromisoformat(entry["since"])
            self.revoked[serial] = min(since, self.revoked.get(serial, since))
            self.revocations += 1
            self._gone.add(entry["serial"])
        elif kind == PARTY:
            self.taken_back[uri] = datetime.fromisoformat(entry["at"])
        elif kind == SUCCESSION:
            self.revoked, self.taken_back = {}, {}

    def _certificate(self, entry: Entry) -> None:
        if "serial" in entry and "sha256" in entry:
            self.certified[entry["serial"]] = entry["sha256"]
        if "admission" in entry:
            begins = self._begins.setdefault(entry["admission"], deque(maxlen=_REMEMBERED))
            begins.append(datetime.fromisoformat(entry["not_before"]))

    def require_free(self, subject: Subject) -> None:
        """Raise `EnrolmentError` if the silo has another data set, or the data set another silo."""
        uri, data_set = subject.identity.uri, subject.data_set
        for other in sorted(self._sets_of.get(uri, set()) - {data_set}):
            msg = (
                f"{uri} was certified for the data set {other}, and a new name does not refill"
                " a budget; put back data_set.id in the policy, or enrol another silo for other patients"
            )
            raise EnrolmentError(msg)
        for other in sorted(self._silos_of.get(data_set or "", set()) - {uri}):
            msg = (
                f"the data set {data_set} was certified for {other}, whose ledger keeps its budget;"
                " enrol that silo again, or, if these are other patients, give their data set another id"
            )
            raise EnrolmentError(msg)

    def count_certificates(self, serial: str, after: datetime) -> int:
        """Return how many certificates of an admission begin after a time."""
        return sum(begin > after for begin in self._begins.get(serial, ()))

    def standing(self, now: datetime) -> list[Admitted]:
        """Return who is admitted now: not taken back, by this root or one before it."""
        return [
            Admitted(
                Subject(Identity.parse(one["identity"]), one["data_set"], one.get("institution")),
                tuple(one["hosts"]),
                datetime.fromisoformat(one["not_after"]),
                self._named.get(one["identity"]),
            )
            for one in self._newest.values()
            if one["serial"] not in self._gone and datetime.fromisoformat(one["not_after"]) > now
        ]


def parse(line: bytes) -> dict[str, Any] | None:
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
