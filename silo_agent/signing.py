"""Signatures under files and heads, by certificates of the consortium's authority.

Guarantees: a signature names the kind of file it is for, the time at which it was made, and fits its bytes alone;
whoever has the authority's public certificate can check it. Where the certificate expired since, it is checked as of
the time that the signed content names, and `Signer.expired` says so: the authority vouched for the key at that time,
and whoever holds the key later can name any time before. That a signature is as old as it says, nothing here shows.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from crypto.canonical import canonical
from crypto.certificates import Credential, Trust
from crypto.errors import CertificateError
from crypto.identity import Identity, Role
from policies.countersign import Countersignature, Verify, check
from policies.errors import ExportError

SUFFIX: Final = ".sig"
_FORMAT: Final = "fedward detached signature 1"
_MAX_BYTES: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Detached:
    """A signature that lies beside the file that it is for."""

    kind: str
    """`json`, `csv` or `html`."""
    at: str
    """When it was made, ISO 8601 in UTC; signed too."""
    certificate: bytes
    signature: bytes

    def write(self, path: Path) -> None:
        """As JSON."""
        content = {
            "format": _FORMAT,
            "kind": self.kind,
            "at": self.at,
            "certificate": self.certificate.decode("ascii"),
            "signature": self.signature.hex(),
        }
        path.write_text(json.dumps(content, indent=1) + "\n", "utf-8")

    @classmethod
    def read(cls, path: Path) -> Detached:
        """From a file. Raises `ExportError`."""
        try:
            content = json.loads(path.read_text("utf-8")) if path.stat().st_size <= _MAX_BYTES else {}
            if content["format"] != _FORMAT:
                raise ValueError  # noqa: TRY301 - one way out for whatever is no signature
            signature = bytes.fromhex(content["signature"])
            return cls(str(content["kind"]), str(content["at"]), content["certificate"].encode("ascii"), signature)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            msg = f"{path.name}: no detached signature can be read here; get it from the silo together with its export"
            raise ExportError(msg) from None


@dataclass(frozen=True, slots=True)
class Signer:
    """Who signed something."""

    identity: Identity
    expired: datetime | None
    """When the certificate ran out, where it is valid no more; then it was valid when the content says it was made."""


def sign_file(credential: Credential, kind: str, at: str, content: bytes) -> Detached:
    """Sign a file's bytes with the silo's own key."""
    return Detached(kind, at, credential.certificate_pem, credential.sign(_message(kind, at, content)))


def read_signed(path: Path, authority: Path, beside: Path | None = None) -> tuple[bytes, Detached, Trust]:
    """A file, the signature that lies beside it unless it lies elsewhere, and whom the authority vouches for.

    Checks nothing yet. Raises `ExportError` for what cannot be read, `CertificateError` where there is no authority.
    """
    try:
        content, trust = path.read_bytes(), Trust(authority.read_bytes())
    except OSError as error:
        msg = f"{Path(str(error.filename)).name} cannot be read ({error.strerror}); give its path"
        raise ExportError(msg) from None
    return content, Detached.read(beside or path.with_name(path.name + SUFFIX)), trust


def signer_of(trust: Trust, detached: Detached, content: bytes, *, now: datetime | None = None) -> Signer:
    """The silo that signed these bytes. Raises `CertificateError`, `SignatureRefused`."""
    message = _message(detached.kind, detached.at, content)
    return signer_at(trust, detached.certificate, message, detached.signature, detached.at, role=Role.SILO, now=now)


def signer_at(
    trust: Trust,
    certificate: bytes,
    message: bytes,
    signature: bytes,
    at: str,
    *,
    role: Role | None = None,
    now: datetime | None = None,
) -> Signer:
    """Who signed a message: by a certificate that is valid today, or was `at` the time that the message names.

    `now` (aware) defaults to the clock. Raises `CertificateError`, `SignatureRefused`.
    """
    expired = trust.ran_out(certificate, now=now)
    named = None if expired is None else _time(at)
    if named is None:
        return Signer(trust.verify(certificate, message, signature, role=role, now=now), None)
    try:
        return Signer(trust.verify(certificate, message, signature, role=role, now=named), expired)
    except CertificateError as error:
        msg = f"signed at {at}, by its own word: {error}"
        raise CertificateError(msg) from None


def countersigner_of(
    trust: Trust, item: Countersignature, *, now: datetime | None = None
) -> tuple[Countersignature, Signer]:
    """A countersignature as its true signer's, as of the time of its statement where the certificate expired since.

    Raises `CryptoError`, and `CountersignError` for a signer who cannot countersign.
    """
    message, at = item.statement.message, item.statement.at
    signer = signer_at(trust, item.certificate, message, item.signature, at, now=now)
    return check(item, lambda *_: signer.identity.uri), signer


def verifier(trust: Trust) -> Verify:
    """How `policies.countersign` checks signatures here: against the consortium's authority, as of today."""
    return lambda certificate, message, signature: trust.verify(certificate, message, signature).uri


def _message(kind: str, at: str, content: bytes) -> bytes:
    return canonical("ledger export", kind, at, content)


def _time(text: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None else None
