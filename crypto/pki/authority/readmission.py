"""Admissions made anew by a root, with which an issuing authority goes on to certify parties that it has certified.

An admission ends after two years, and with the root that made it. The root admits the parties again, and the file of
these admissions lies in the issuing authority's folder: whoever renews a certificate from then on gets the newest
admission into it, and no party does anything. So a change of root, too, reaches all parties within a week.

Guarantees: these admissions redeem no token, because nobody knows the secret to which they are bound. Each counts only
for the party, data set and hosts that it names, by the signature of a root that the issuing authority knows.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from crypto.errors import CertificateError
from crypto.pki.admission import Admission

READMISSIONS_FILE = "admissions.json"
_MAX_BYTES = 1 << 24


def to_json(admissions: Sequence[Admission]) -> bytes:
    """Return the file's content."""
    return json.dumps([one.to_json() for one in admissions], indent=1).encode() + b"\n"


def read(path: Path) -> list[Admission]:
    """Read the file; an empty list if there is none. Raises `CertificateError`."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return []
    except OSError as error:
        msg = f"{path.name} cannot be read ({error.strerror}); fix its owner"
        raise CertificateError(msg) from None
    try:
        listed = json.loads(content) if len(content) <= _MAX_BYTES else None
    except (ValueError, RecursionError):
        listed = None
    if not isinstance(listed, list):
        msg = f"{path.name} is not what `fedward-authority readmit` wrote; carry it over again"
        raise CertificateError(msg)
    try:
        return [Admission.from_json(one) for one in listed]
    except CertificateError as error:
        msg = f"{path.name}: {error}"
        raise CertificateError(msg) from None
