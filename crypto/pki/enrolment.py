"""Enrolment: a party makes its own key, on its own machine, and a request for the authority to sign.

Guarantees: the private key never leaves the folder, is readable by its owner alone and is never overwritten. The
request carries its subject's URIs and no others. People carry the request to the authority and make sure of each
other's identity.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from crypto.errors import EnrolmentError
from crypto.pki.hosts import general_names
from crypto.pki.identity import Subject
from crypto.pki.key_files import make_folder, new_key, open_key, write_new
from crypto.pki.reading import key_fingerprint

KEY_FILE = "key.pem"
REQUEST_FILE = "request.csr"


def create_request(
    folder: Path, subject: Subject, hosts: Sequence[str] = (), *, passphrase: bytes | None = None
) -> Path:
    """Write `key.pem` (mode 0600) and `request.csr` into the folder; return the request's path.

    `hosts` are the DNS names and IP addresses under which a coordinator is reached. The key is encrypted if a
    passphrase is given. Raises `EnrolmentError`, also if
    either file exists.
    """
    general_names(hosts)
    make_folder(folder)
    _, pem = new_key(passphrase)
    request_pem, _ = request_of(open_key(pem, passphrase), subject, hosts)
    write_new(folder / KEY_FILE, pem, secret=True)
    path = folder / REQUEST_FILE
    write_new(path, request_pem, secret=False)
    return path


def request_of(key_pem: bytes, subject: Subject, hosts: Sequence[str] = ()) -> tuple[bytes, str]:
    """Return a signing request (PEM) for a private key, and the SHA-256 of its public key (DER), lowercase hex.

    Raises `EnrolmentError` if the key cannot be read.
    """
    try:
        key = serialization.load_pem_private_key(key_pem, None)
    except (ValueError, TypeError):
        key = None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        msg = f"{KEY_FILE} cannot be read as a private key; move it away, and a new one is made"
        raise EnrolmentError(msg)
    names = [*map(x509.UniformResourceIdentifier, subject.uris), *general_names(hosts)]
    request = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, subject.identity.name)]))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(key, hashes.SHA256())
    )
    return request.public_bytes(serialization.Encoding.PEM), key_fingerprint(key.public_key())
