"""An author's signature under a study: over its digest and its purpose, so that a person signs what they read.

Guarantees: a signature counts only by a certificate of the role author that counts now. Because the signed bytes hold
the whole digest, nobody, the coordinator neither, can put a study behind an author's name (docs/studies.md, "The
author's signature"). A file of it is JSON with `certificate` (PEM) and `signature` (hex), as beside a policy.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from crypto.canonical import canonical
from crypto.errors import CertificateError, SignatureRefused
from crypto.pki.certificates import Credential, Trust
from crypto.pki.identity import Identity, Role

_MOST_BYTES: Final = 1 << 16


@dataclass(frozen=True)
class SignatureBeside:
    """A signature that lies beside what it is over, with the certificate of who signed."""

    certificate: bytes
    """PEM."""
    signature: bytes

    @classmethod
    def made(cls, credential: Credential, message: bytes) -> Self:
        """Sign a message."""
        return cls(credential.certificate_pem, credential.sign(message))

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a file that holds one. Raises `SignatureRefused` if it holds none, OSError."""
        with path.open("rb") as opened:
            return cls.parse(opened.read(_MOST_BYTES), path)

    @classmethod
    def parse(cls, content: bytes, origin: Path | str) -> Self:
        """Read what a file holds; `origin` is its name in messages. Raises `SignatureRefused`."""
        try:
            found = json.loads(content[:_MOST_BYTES])
            return cls(found["certificate"].encode(), bytes.fromhex(found["signature"]))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            msg = f"{origin}: cannot be read; sign again"
            raise SignatureRefused(msg) from None

    @property
    def text(self) -> str:
        """What a file of it holds."""
        content = {"certificate": self.certificate.decode("ascii"), "signature": self.signature.hex()}
        return json.dumps(content, indent=1) + "\n"


def author_message(digest: str, purpose: str) -> bytes:
    """Return the bytes that a study's author signs. `digest`: SHA-256 of the study, lowercase hex."""
    return canonical("study author", digest, purpose)


def sign_study(credential: Credential, digest: str, purpose: str) -> SignatureBeside:
    """Sign a study. Raises `CertificateError` if the credential is no author's: nobody would accept the signature."""
    if credential.identity.role is not Role.AUTHOR:
        msg = f"{credential.identity} signs no study; an author does (a certificate of the role author)"
        raise CertificateError(msg)
    return SignatureBeside.made(credential, author_message(digest, purpose))


def author_of(trust: Trust, digest: str, purpose: str, signed: SignatureBeside) -> Identity:
    """Return who stands behind a study. Raises `CertificateError` or `SignatureRefused` with the fault."""
    if not signed.certificate.isascii():  # text around the certificate that no file of a signature could hold
        msg = "the certificate of the study's author has characters that are no ASCII; sign the study again"
        raise SignatureRefused(msg)
    return trust.verify(signed.certificate, author_message(digest, purpose), signed.signature, role=Role.AUTHOR)
