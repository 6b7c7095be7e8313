"""Who is at the console: the person of a certificate, who counts for as long as the certificate does."""

from __future__ import annotations

import hashlib
import ssl
from dataclasses import dataclass

from coordinator.core.rights import READERS, Action, Deed
from crypto.errors import CertificateError
from crypto.pki.certificates import Trust
from crypto.pki.identity import Identity
from protos.bounds import sentence


@dataclass(frozen=True)
class Person:
    """Somebody with a certificate of the consortium (PEM)."""

    identity: Identity
    certificate_pem: bytes

    def deed(self, action: Action, reason: str = "", silo: str = "") -> Deed:
        """Return what this person does, as the desk takes it."""
        shown = hashlib.sha256(self.certificate_pem).hexdigest()
        return Deed(self.identity, action, sentence(reason.strip()), silo, shown)

    def stands(self, trust: Trust) -> bool:
        """Whether the certificate still counts, and is of a role that reads here."""
        try:
            return trust.identify(self.certificate_pem, role=READERS) == self.identity
        except CertificateError:
            return False

    def __str__(self) -> str:
        return f"{self.identity.role.value} {self.identity.name}"


def shown_by(trust: Trust, certificate: bytes) -> Person | None:
    """Return who shows a certificate (DER); None if it does not count, or is of a role that reads nothing here."""
    pem = ssl.DER_cert_to_PEM_cert(certificate).encode()
    try:
        return Person(trust.identify(pem, role=READERS), pem)
    except CertificateError:
        return None
