"""Signatures by certificates that may have expired, or may have been revoked, since.

Guarantees: a signature counts if its certificate is valid today. It also counts if the certificate has expired or was
revoked since, but was valid, and not yet revoked, at the time that the signed content names; `Signer` then says so. The
authority vouched for the key at that time, but whoever holds the key later can name any earlier time. Only a timestamp
from before the end shows that a signature is as old as it says (`Signer.known`). A revocation for a stolen key is
therefore dated when the key was stolen.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from crypto.errors import CertificateError
from crypto.pki.certificates import Trust
from crypto.pki.identity import Identity, Role
from crypto.pki.revocation import CLOCK_SKEW


@dataclass(frozen=True, slots=True)
class Signer:
    """Who signed something."""

    identity: Identity
    expired: datetime | None
    """When the certificate expired; None if it is still valid.

    An expired certificate was valid at the time at which the content says it was made.
    """
    revoked: datetime | None = None
    """From when on the certificate, or an authority above it, counts for nothing; None if it was never revoked.

    The content says that it was made before.
    """
    known: datetime | None = None
    """When, by a timestamp, the signature was there while its certificate still counted; None if none shows it."""


def signer_at(
    trust: Trust,
    certificate: bytes,
    message: bytes,
    signature: bytes,
    at: str,
    *,
    role: Role | None = None,
    now: datetime | None = None,
    known: datetime | None = None,
) -> Signer:
    """Return who signed a message, by a certificate that is valid today or was valid `at` the time the message names.

    `now` (aware) defaults to the clock. `known` is when a timestamp of the signature, or of what holds it, was made.
    Raises `CertificateError`, also if the message names a later time than `known`; `SignatureRefused`.
    """
    stated = _time(at)
    if known is not None and stated is not None and stated > known + CLOCK_SKEW:
        msg = f"the message says that it was signed at {at}, but its timestamp is of {known:%Y-%m-%d %H:%M} UTC, before"
        raise CertificateError(msg)
    expired, revoked = trust.ran_out(certificate, now=now), trust.revoked(certificate)
    named = None if expired is None and revoked is None else stated
    counted = known is not None and all(end is None or known < end for end in (expired, revoked))
    if named is None:
        return Signer(
            trust.verify(certificate, message, signature, role=role, now=now), None, known=known if counted else None
        )
    try:
        identity = trust.verify(certificate, message, signature, role=role, as_of=named)
        return Signer(identity, expired, revoked, known if counted else None)
    except CertificateError as error:
        msg = f"the message says that it was signed at {at}: {error}"
        raise CertificateError(msg) from None


def _time(text: str) -> datetime | None:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return time if time.tzinfo is not None else None
