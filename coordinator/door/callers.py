"""Who calls, by the certificate of the connection. Its signatures are checked once, its revocation in every call."""

from __future__ import annotations

import grpc

from crypto.errors import CertificateError
from crypto.pki.certificates import Holder, Trust
from crypto.pki.identity import Identity

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
    """`Trust` that does not check the signatures of a certificate again in each of thousands of calls.

    It remembers no refusal, and nothing if the authorities change. Time, role and revocation are judged in every call.
    """

    def vouched(self, certificate_pem: bytes) -> Holder:
        """Return what the certificate says, as `Trust.vouched` does. Whose key it is, is asked in every call."""
        bundle = self.bundle
        known, holders = self.__dict__.get("_known", (None, {}))
        if known is not bundle or len(holders) >= _MOST:
            holders = {}
            self.__dict__["_known"] = (bundle, holders)
        holder: Holder | None = holders.get(certificate_pem)
        if holder is None:
            holder = holders[certificate_pem] = super().vouched(certificate_pem)
        return holder

    def label(self, context: grpc.ServicerContext) -> str:
        """Return the caller as role and name, for metrics and logs; `UNKNOWN` without a valid certificate."""
        try:
            return label(self.identify(certificate_of(context)))
        except CertificateError:
            return UNKNOWN


def label(identity: Identity) -> str:
    """Return an identity as metrics and logs write it, such as `silo/north`."""
    return f"{identity.role.value}/{identity.name}"
