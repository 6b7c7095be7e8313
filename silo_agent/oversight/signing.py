"""Signatures of files and heads, by certificates of the consortium's authority.

Guarantees: a signature names the kind of its file and the time at which it was made, and fits only the file's bytes.
Anybody with the authority's public certificate can check it, also after the signer's certificate has expired
(crypto.pki.dated).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from common import durable
from crypto.canonical import canonical
from crypto.errors import CertificateError, UnknownAuthorityError
from crypto.pki import timestamps
from crypto.pki.certificates import Credential, Trust
from crypto.pki.dated import Signer, signer_at
from crypto.pki.identity import Role
from policies.errors import ExportError
from policies.ledger.cosign import Cosignature, Verify, check

SUFFIX: Final = ".sig"
_FORMAT: Final = "fedward detached signature 1"
_MAX_BYTES: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Detached:
    """A signature in a separate file beside the signed file."""

    kind: str
    """`json`, `csv` or `html`."""
    at: str
    """The time at which it was made, ISO 8601 in UTC. The time is signed too."""
    certificate: bytes
    signature: bytes

    def write(self, path: Path) -> None:
        """Write the signature as JSON."""
        content = {
            "format": _FORMAT,
            "kind": self.kind,
            "at": self.at,
            "certificate": self.certificate.decode("ascii"),
            "signature": self.signature.hex(),
        }
        durable.write_over(path, (json.dumps(content, indent=1) + "\n").encode())

    @classmethod
    def read(cls, path: Path) -> Detached:
        """Read a signature from a file. Raises `ExportError`."""
        try:
            content = json.loads(path.read_text("utf-8")) if path.stat().st_size <= _MAX_BYTES else {}
            if content["format"] != _FORMAT:
                raise ValueError  # noqa: TRY301 - everything that is no signature leaves by the same except clause
            signature = bytes.fromhex(content["signature"])
            return cls(str(content["kind"]), str(content["at"]), content["certificate"].encode("ascii"), signature)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            msg = f"{path.name}: the file is no signature of an export; get it from the silo together with its export"
            raise ExportError(msg) from None


def sign_file(credential: Credential, kind: str, at: str, content: bytes) -> Detached:
    """Sign a file's bytes with the silo's own key."""
    return Detached(kind, at, credential.certificate_pem, credential.sign(_message(kind, at, content)))


def read_signed(
    path: Path, authority: Path, beside: Path | None = None, *, lists: Path | None = None
) -> tuple[bytes, Detached, Trust]:
    """Read a file, its signature (from `beside`, or else from the file beside it), and the authority's certificate.

    Revocation lists are read from `lists`, or else from `crls.pem` beside the authority's file, if it exists.

    Checks nothing yet. Raises `ExportError` if a file cannot be read, `CertificateError` if there is no authority.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        msg = f"{Path(str(error.filename)).name} cannot be read ({error.strerror}); give its path"
        raise ExportError(msg) from None
    trust = Trust.load(authority, lists)
    return content, Detached.read(beside or path.with_name(path.name + SUFFIX)), trust


def stamp_beside(signature: Path) -> Path:
    """The file of the timestamp of a signature's file."""
    return signature.with_name(signature.name + timestamps.SUFFIX)


def signer_of(
    trust: Trust, detached: Detached, content: bytes, *, now: datetime | None = None, known: datetime | None = None
) -> Signer:
    """Return the silo that signed these bytes. `known` is when the signature was timestamped, if it was.

    Raises `CertificateError`, `SignatureRefused`.
    """
    message, at = _message(detached.kind, detached.at, content), detached.at
    return signer_at(trust, detached.certificate, message, detached.signature, at, role=Role.SILO, now=now, known=known)


def vouched(signer: Signer, at: str) -> str:
    """Return who signed and when, and what that time is worth if the certificate has ended."""
    if signer.expired is None and signer.revoked is None:
        return f"{signer.identity}, {at}"
    ends = [f"expired on {signer.expired:%Y-%m-%d}"] if signer.expired is not None else []
    ends += [f"was revoked as of {signer.revoked:%Y-%m-%d}"] if signer.revoked is not None else []
    proof = (
        f"The timestamp of {signer.known:%Y-%m-%d} shows that the signature is that old"
        if signer.known is not None
        else "Nobody can prove that the signature is that old"
    )
    return (
        f"{signer.identity}, who says that it signed at {at}: its certificate was valid then and {' and '.join(ends)}."
        f" {proof}"
    )


def cosigner_of(
    trust: Trust, item: Cosignature, *, now: datetime | None = None, known: datetime | None = None
) -> tuple[Cosignature, Signer]:
    """Return a cosignature with its true signer. If the certificate has expired since, the checkpoint's time counts.

    `known` is when what holds it was timestamped, if it was. Raises `CryptoError`, and `CosignError` for a signer who
    cannot cosign.
    """
    message, at = item.checkpoint.message, item.checkpoint.at
    signer = signer_at(trust, item.certificate, message, item.signature, at, now=now, known=known)

    def verify(certificate: bytes, message: bytes, signature: bytes, _: str | None) -> str:
        return signer_at(trust, certificate, message, signature, at, now=now).identity.uri

    return check(item, verify), signer


def held_by(trust: Trust, item: Cosignature) -> Cosignature:
    """Return a cosignature that this silo kept, with its true signer.

    It was checked when it was kept, and can only require more of the ledger. So it counts on if its signer was revoked
    since, from whatever day, and as it stands if the signer's root was taken out of `authority.pem`. Raises
    `CryptoError` for one that was forged, `CosignError`.
    """
    try:
        return check(
            item, lambda certificate, message, signature, _: trust.verify_ever(certificate, message, signature).uri
        )
    except UnknownAuthorityError:
        return item


def binding(trust: Trust, held: Iterable[Cosignature]) -> tuple[Cosignature, ...]:
    """Those of the cosignatures that this silo kept which still bind its ledger.

    A head that somebody stated under this silo's key, and that this silo heard of after the time from which the root
    revoked that key as stolen, is not the silo's own. What others remember of the ledger, they judge themselves.
    """
    return tuple(item for item in held if not _is_stolen(trust, item))


def _is_stolen(trust: Trust, item: Cosignature) -> bool:
    try:
        stolen = trust.stolen(item.stated_certificate)
    except CertificateError:  # of a root that authority.pem holds no more: nobody can say that it was stolen
        return False
    try:
        heard = datetime.fromisoformat(item.received or item.checkpoint.at)
    except ValueError:
        return False
    return stolen is not None and heard >= stolen


def is_vouched(trust: Trust, item: Cosignature) -> bool:
    """Whether others can still check a cosignature that was kept: its signer's certificate counted when it was made."""
    try:
        cosigner_of(trust, item)
    except CertificateError:
        return False
    return True


def verifier(trust: Trust) -> Verify:
    """Return the function with which `policies.ledger.cosign` checks signatures against the consortium's authority."""

    def verify(certificate: bytes, message: bytes, signature: bytes, at: str | None) -> str:
        if at is None:
            return trust.verify(certificate, message, signature).uri
        return signer_at(trust, certificate, message, signature, at).identity.uri

    return verify


def _message(kind: str, at: str, content: bytes) -> bytes:
    return canonical("ledger export", kind, at, content)
