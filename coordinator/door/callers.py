"""Who calls, by the certificate of the connection. It is examined once in some seconds, not in every call."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime

import grpc

from crypto.errors import CertificateError
from crypto.pki.certificates import Trust, parse_certificate
from crypto.pki.identity import Identity, Role

REMEMBERED_SECONDS = 60.0
_MOST = 1024
UNKNOWN = "unknown"
"""The label of callers without a valid certificate."""


def certificate_of(context: grpc.ServicerContext) -> bytes:
    """Return the caller's certificate in PEM. Raises `CertificateError` if it presented none."""
    pem = context.auth_context().get("x509_pem_cert", [b""])[0]
    if not pem:
        msg = "no client certificate was presented; enrol this machine and give its certificate"
        raise CertificateError(msg)
    return bytes(pem)


class RememberingTrust(Trust):
    """`Trust` that does not examine a certificate again in each of thousands of calls. It remembers no refusal."""

    def __init__(self, authority_pem: bytes, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(authority_pem)
        self._clock = clock
        self._known: dict[bytes, tuple[Identity, float, datetime]] = {}

    def identify(self, certificate_pem: bytes, *, role: Role | None = None, now: datetime | None = None) -> Identity:
        """Return whom the authority certified, as `Trust.identify` does."""
        if now is not None:
            return super().identify(certificate_pem, role=role, now=now)
        found = self._known.get(certificate_pem)
        if found is not None:
            known, until, ends = found
            if self._clock() < until and datetime.now(UTC) < ends and role in (None, known.role):
                return known
        identity = super().identify(certificate_pem, role=role)
        if len(self._known) >= _MOST:
            self._known.clear()
        ends = min(one.not_valid_after_utc for one in (parse_certificate(certificate_pem), self._root))
        self._known[certificate_pem] = (identity, self._clock() + REMEMBERED_SECONDS, ends)
        return identity

    def label(self, context: grpc.ServicerContext) -> str:
        """Return the caller as role and name, for metrics and logs; `UNKNOWN` without a valid certificate."""
        try:
            return label(self.identify(certificate_of(context)))
        except CertificateError:
            return UNKNOWN


def label(identity: Identity) -> str:
    """Return an identity as metrics and logs write it, such as `silo/north`."""
    return f"{identity.role.value}/{identity.name}"
