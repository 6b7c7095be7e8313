"""Who calls, by the certificate of the connection. Time, role and revocation are judged in every call."""

from __future__ import annotations

import grpc

from crypto.errors import CertificateError
from crypto.pki.certificates import Trust
from crypto.pki.identity import Identity

UNKNOWN = "unknown"
"""The label of callers without a valid certificate."""


def certificate_of(context: grpc.ServicerContext) -> bytes:
    """Return the caller's certificate in PEM. Raises `CertificateError` if it presented none."""
    pem = context.auth_context().get("x509_pem_cert", [b""])[0]
    if not pem:
        msg = "no client certificate was presented; enrol this machine and give its certificate"
        raise CertificateError(msg)
    return bytes(pem)


def label_of(trust: Trust, context: grpc.ServicerContext) -> str:
    """Return the caller as role and name, for metrics and logs; `UNKNOWN` without a valid certificate."""
    try:
        return label(trust.identify(certificate_of(context)))
    except CertificateError:
        return UNKNOWN


def label(identity: Identity) -> str:
    """Return an identity as metrics and logs write it, such as `silo/north`."""
    return f"{identity.role.value}/{identity.name}"
