"""What accompanies a sealed upload in the clear, and the silo's signature over it.

Guarantees: a header that verifies was signed by the silo it names and binds the content by its SHA-256. Leaves it to
the receiver to compare `size` and `content_sha256` with the bytes it got, and the rest with what it asked for.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

from crypto.canonical import canonical
from crypto.certificates import Credential, Trust
from crypto.errors import FrameError, SignatureRefused
from crypto.identity import Identity, Role

Kind = Literal["ckks", "ring"]
"""The two rings in which sums are sealed: ciphertexts, and integers mod 2^32."""

_SHA256 = re.compile(r"[0-9a-f]{64}")


def sha256(chunks: Iterable[bytes | bytearray | memoryview]) -> str:
    """SHA-256 over the chunks one after the other, lowercase hex; holds one chunk at a time."""
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()


@dataclass(frozen=True)
class UploadHeader:
    """Public facts of one upload. Raises `FrameError` where a field is impossible."""

    study: str
    round: int
    attempt: int
    tensor: str
    silo: str
    kind: Kind
    values: int
    """Integers in the payload."""
    size: int
    """Bytes of sealed content."""
    content_sha256: str

    def __post_init__(self) -> None:
        numbers = (self.round, self.attempt, self.values, self.size)
        if (
            any(number < 0 or number >= 1 << 63 for number in numbers)
            or self.kind not in get_args(Kind)
            or not _SHA256.fullmatch(self.content_sha256)
        ):
            msg = "an upload's header is malformed; both sides must run the same version of FedWard"
            raise FrameError(msg)

    def canonical(self) -> bytes:
        """Return the unambiguous bytes that are signed."""
        return canonical(
            "upload header",
            self.study,
            self.round,
            self.attempt,
            self.tensor,
            self.silo,
            self.kind,
            self.values,
            self.size,
            self.content_sha256,
        )


def sign_header(credential: Credential, header: UploadHeader) -> bytes:
    """Sign a header with the silo's certificate key."""
    return credential.sign(header.canonical())


def verify_header(trust: Trust, certificate_pem: bytes, header: UploadHeader, signature: bytes) -> Identity:
    """Return the silo that signed. Raises `CertificateError`, or `SignatureRefused` where it is not the named one."""
    identity = trust.verify(certificate_pem, header.canonical(), signature, role=Role.SILO)
    if identity.name != header.silo:
        msg = f"{identity} signed an upload in the name of {header.silo!r}; every silo signs its own"
        raise SignatureRefused(msg)
    return identity
