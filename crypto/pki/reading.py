"""What certificates and requests say, read without a judgement on whether it is true.

`chain` and `certificates` judge. Every function raises `CertificateError` for what cannot be read.
"""

from __future__ import annotations

from datetime import datetime
from typing import TypeVar

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from crypto.errors import CertificateError
from crypto.pki.hosts import hosts_of
from crypto.pki.identity import Subject

E = TypeVar("E", bound=x509.ExtensionType)

MAX_PEM = 1 << 16


def fingerprint(certificate_pem: bytes) -> str:
    """SHA-256 of the certificate's DER form, lowercase hex. Raises `CertificateError` if this is no certificate."""
    return fingerprint_of(parse_certificate(certificate_pem))


def fingerprint_of(certificate: x509.Certificate) -> str:
    """SHA-256 of the certificate's DER form, lowercase hex."""
    return certificate.fingerprint(hashes.SHA256()).hex()


def key_fingerprint(key: ec.EllipticCurvePublicKey) -> str:
    """SHA-256 of a public key (DER, SubjectPublicKeyInfo), lowercase hex."""
    digest = hashes.Hash(hashes.SHA256())
    digest.update(key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo))
    return digest.finalize().hex()


def parse_certificate(certificate_pem: bytes) -> x509.Certificate:
    """Read exactly one PEM certificate. Raises `CertificateError`; checks nothing else."""
    certificates = parse_certificates(certificate_pem)
    if len(certificates) != 1:
        msg = "the file must hold exactly one PEM certificate; give the file that `fedward-authority sign` wrote"
        raise CertificateError(msg)
    return certificates[0]


def ends(certificate_pem: bytes) -> datetime:
    """When a certificate expires, aware, in UTC. Raises `CertificateError` if this is no certificate."""
    return parse_certificate(certificate_pem).not_valid_after_utc


def valid(certificate_pem: bytes) -> tuple[datetime, datetime]:
    """From when until when a certificate is valid, aware, in UTC. Raises `CertificateError` if this is none."""
    certificate = parse_certificate(certificate_pem)
    return certificate.not_valid_before_utc, certificate.not_valid_after_utc


def parse_certificates(pem: bytes) -> list[x509.Certificate]:
    """Read all PEM certificates of a text of at most 64 KiB; an empty list if it cannot be read."""
    try:
        return x509.load_pem_x509_certificates(pem) if len(pem) <= MAX_PEM else []
    except ValueError:
        return []


def to_pem(certificate: x509.Certificate) -> bytes:
    """Write a certificate as PEM."""
    return certificate.public_bytes(serialization.Encoding.PEM)


def subject_of(source: x509.Certificate | x509.CertificateSigningRequest) -> Subject:
    """Return the subject that the URIs among the subject alternative names describe. Raises `CertificateError`."""
    names = extension(source, x509.SubjectAlternativeName)
    return Subject.parse(names.get_values_for_type(x509.UniformResourceIdentifier) if names else [])


def hosts_in(source: x509.Certificate | x509.CertificateSigningRequest) -> tuple[str, ...]:
    """Return the hosts among the subject alternative names. Raises `CertificateError`."""
    return hosts_of(extension(source, x509.SubjectAlternativeName))


def extension(source: x509.Certificate | x509.CertificateSigningRequest, kind: type[E]) -> E | None:
    """Return the extension of that kind, or None if there is none. Raises `CertificateError` if it is malformed."""
    try:
        return source.extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        return None
    except (ValueError, x509.DuplicateExtension, x509.UnsupportedGeneralNameType):
        msg = "the certificate's extensions cannot be read; make a new request with FedWard's enrolment"
        raise CertificateError(msg) from None


def private_extension(certificate: x509.Certificate, oid: x509.ObjectIdentifier) -> bytes | None:
    """Return the bytes of an extension that X.509 does not know, or None. Raises `CertificateError` as `extension`."""
    extension(certificate, x509.BasicConstraints)
    try:
        value = certificate.extensions.get_extension_for_oid(oid).value
    except x509.ExtensionNotFound:
        return None
    return value.value if isinstance(value, x509.UnrecognizedExtension) else b""


def is_issued(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    """Say whether the authority's key signed the certificate (SHA-256), its name fits, and its key is ECDSA P-256."""
    try:
        certificate.verify_directly_issued_by(authority)
        key = certificate.public_key()
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return is_p256(key) and isinstance(certificate.signature_hash_algorithm, hashes.SHA256)


def is_p256(key: object) -> bool:
    """Say whether a public key is of ECDSA P-256, the only kind that counts here."""
    return isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, ec.SECP256R1)


def common_name(name: x509.Name) -> str:
    """Return the common name, for people."""
    names = name.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    return str(names[0].value) if names else "(without a name)"
