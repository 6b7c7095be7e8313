"""The authority's register, `issued.jsonl`: everything it certified, and which silo keeps which data set's budget.

Guarantees: an entry is on the disk before `record` returns. If two processes open the register, one waits for the
other, so neither misses what the other certifies. A silo keeps one data set and a data set has one silo for good,
expired certificates included, so neither a new name, nor a new silo, nor a reinstallation refills a budget. Silos that
were certified before 0.5 have no data set in the register; their next certificate binds them, and until then their data
set can still be certified for another silo. The person who certifies must know whether two data sets are different
patients.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Self

from crypto.errors import CertificateError, EnrolmentError
from crypto.pki.identity import Identity, Subject
from crypto.pki.reading import fingerprint, parse_certificate

REGISTER_FILE = "issued.jsonl"


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
            yield cls(file)

    def require_free(self, subject: Subject) -> None:
        """Raise `EnrolmentError` if the silo has another data set, or the data set another silo."""
        for other in self._silos():
            if other == subject:
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

    def record(self, certificate_pem: bytes, subject: Subject, hosts: Sequence[str]) -> None:
        """Append a certificate, durably. Raises `EnrolmentError`."""
        certificate = parse_certificate(certificate_pem)
        entry = {
            "serial": f"{certificate.serial_number:x}",
            "identity": subject.identity.uri,
            "data_set": subject.data_set,
            "hosts": list(hosts),
            "not_before": certificate.not_valid_before_utc.isoformat(),
            "not_after": certificate.not_valid_after_utc.isoformat(),
            "sha256": fingerprint(certificate_pem),
        }
        try:
            self._file.seek(0, os.SEEK_END)
            self._file.write(json.dumps(entry, sort_keys=True).encode() + b"\n")
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            msg = (
                f"the register cannot be written ({error.strerror}), so nothing is certified; check the owner of"
                f" {REGISTER_FILE} and the room on its disk"
            )
            raise EnrolmentError(msg) from None

    def _silos(self) -> Iterator[Subject]:
        """Yield silos with their data sets, without the silos certified before 0.5, which have none."""
        self._file.seek(0)
        for number, line in enumerate(self._file, 1):
            try:
                entry = json.loads(line)
                identity, data_set = Identity.parse(entry["identity"]), entry.get("data_set")
                subject = None if data_set is None else Subject(identity, data_set)
                whole = line.endswith(b"\n")
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError, CertificateError):
                whole = False
            if not whole:
                msg = (
                    f"{REGISTER_FILE}: line {number} is no entry of the register, so nothing is certified; restore the"
                    " file from its newest backup. If it is the last line and was cut short, you may delete it: no"
                    " certificate was handed out for it"
                )
                raise EnrolmentError(msg)
            if subject is not None:
                yield subject
