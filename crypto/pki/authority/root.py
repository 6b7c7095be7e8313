"""The consortium's authority: an offline root that certifies silos, coordinators and operators.

Guarantees: the authority certifies exactly the subject and hosts that the person typed, and only if the request asks
for them and proves its key. Every certificate is in the register, durably, before it is handed out, and contradicts no
earlier entry (register.py). Nothing is overwritten. The person must know whom the request came from, and must keep this
folder offline.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from crypto.errors import CertificateError, EnrolmentError
from crypto.pki.authority.register import REGISTER_FILE, Register
from crypto.pki.certificates import KEY_USES
from crypto.pki.hosts import general_names, hosts_of
from crypto.pki.identity import Role, Subject
from crypto.pki.key_files import make_folder, new_key, write_new
from crypto.pki.reading import extension, parse_certificate, subject_of

CERTIFICATE_FILE = "authority.pem"
KEY_FILE = "authority.key"
_CLOCK_SKEW = timedelta(minutes=5)
_MAX_DAYS = 36_500


@dataclass(frozen=True)
class Request:
    """What a signing request asks for."""

    subject: Subject
    hosts: tuple[str, ...]
    fingerprint: str
    """SHA-256 of the public key (DER), lowercase hex. Two people compare it over the telephone."""


def init(folder: Path, name: str, days: int, *, passphrase: bytes | None = None) -> bytes:
    """Make an authority: `authority.pem`, `authority.key` (mode 0600) and an empty register. Return the certificate.

    The key is encrypted if a passphrase is given. Raises `EnrolmentError`, also if any of the files exists.
    """
    if not name or len(name) > 64:  # noqa: PLR2004  # the bound of X.520 on a common name
        msg = "the authority's name must have 1 to 64 characters; give --name"
        raise EnrolmentError(msg)
    begin, end = _period(days)
    make_folder(folder)
    key, pem = new_key(passphrase)
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    certificate = (
        _builder(subject, subject, key.public_key(), begin, end)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(authority=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    write_new(folder / KEY_FILE, pem, secret=True)
    write_new(folder / REGISTER_FILE, b"", secret=False)
    certificate_pem = certificate.public_bytes(serialization.Encoding.PEM)
    write_new(folder / CERTIFICATE_FILE, certificate_pem, secret=False)
    return certificate_pem


def read_request(request_pem: bytes) -> Request:
    """Return what a request asks for. Raises `EnrolmentError` if it is malformed or does not prove its key."""
    return _read(request_pem)[1]


def sign(
    folder: Path,
    request_pem: bytes,
    *,
    subject: Subject,
    days: int,
    hosts: Sequence[str] = (),
    passphrase: bytes | None = None,
) -> bytes:
    """Certify a request and return the certificate (PEM), valid for `days`.

    Raises `EnrolmentError` if the request asks for another subject or for hosts that are not given, if the hosts do not
    fit the role, or if the register has another data set for the silo or another silo for the data set. Raises
    `CertificateError` if the authority's files cannot be used.
    """
    public_key, request = _read(request_pem)
    _check_asked(request, subject, hosts)
    root, key = _load(folder, passphrase)
    begin, end = _period(days)
    if end > root.not_valid_after_utc:
        last = f"{root.not_valid_after_utc:%Y-%m-%d}"
        msg = f"the certificate would outlive the authority, which ends on {last}; give fewer --days"
        raise EnrolmentError(msg)
    names = [*map(x509.UniformResourceIdentifier, subject.uris), *general_names(hosts)]
    common_name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, subject.identity.name)])
    certificate = (
        _builder(common_name, root.subject, public_key, begin, end)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([KEY_USES[subject.identity.role]]), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
    )
    with Register.open(folder) as register:
        register.require_free(subject)
        certificate_pem = certificate.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        register.record(certificate_pem, subject, hosts)
    return certificate_pem


def _period(days: int) -> tuple[datetime, datetime]:
    if not 1 <= days <= _MAX_DAYS:
        msg = f"a certificate must last 1 to {_MAX_DAYS} days; fix --days"
        raise EnrolmentError(msg)
    now = datetime.now(UTC).replace(microsecond=0)
    return now - _CLOCK_SKEW, now + timedelta(days=days)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, begin: datetime, end: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(end)
    )


def _key_usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=authority,
        crl_sign=authority,
        encipher_only=False,
        decipher_only=False,
    )


def _read(request_pem: bytes) -> tuple[ec.EllipticCurvePublicKey, Request]:
    try:
        found = x509.load_pem_x509_csr(request_pem)
        key = found.public_key()
        proven = found.is_signature_valid
        subject = subject_of(found)
        hosts = hosts_of(extension(found, x509.SubjectAlternativeName))
    except (ValueError, TypeError, UnsupportedAlgorithm, CertificateError):
        msg = "the file is no signing request with a FedWard identity; make the request with FedWard's enrolment"
        raise EnrolmentError(msg) from None
    if not proven or not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        msg = "the request does not prove an ECDSA P-256 key; make a new request with FedWard's enrolment"
        raise EnrolmentError(msg)
    der = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    digest = hashes.Hash(hashes.SHA256())
    digest.update(der)
    return key, Request(subject, hosts, digest.finalize().hex())


def _check_asked(request: Request, subject: Subject, hosts: Sequence[str]) -> None:
    identity = subject.identity
    if request.subject != subject:
        msg = (
            f"the request is for {request.subject}, not for {subject}; fix --role, --name or --data-set, or refuse"
            " the request"
        )
        raise EnrolmentError(msg)
    if identity.role is not Role.COORDINATOR and (hosts or request.hosts):
        msg = f"only a coordinator is certified for hosts, not {identity}; make the request without hosts"
        raise EnrolmentError(msg)
    missing = sorted(set(request.hosts) - set(hosts))
    if missing:
        msg = f"the request asks for the hosts {', '.join(missing)}; give --host for each, or refuse the request"
        raise EnrolmentError(msg)
    if identity.role is Role.COORDINATOR and not hosts:
        msg = "a coordinator's certificate needs a host name; give --host"
        raise EnrolmentError(msg)


def _load(folder: Path, passphrase: bytes | None) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    try:
        root = parse_certificate((folder / CERTIFICATE_FILE).read_bytes())
        pem = (folder / KEY_FILE).read_bytes()
    except OSError as error:
        msg = (
            f"the authority's files cannot be read ({error.strerror}); run `fedward-authority init` in the folder first"
        )
        raise EnrolmentError(msg) from None
    encrypted = b"ENCRYPTED" in pem
    if encrypted and not passphrase:
        msg = "the authority's key is protected by a passphrase; give the passphrase"
        raise EnrolmentError(msg)
    try:
        key = serialization.load_pem_private_key(pem, password=passphrase if encrypted else None)
    except (ValueError, TypeError):
        msg = "the authority's key cannot be opened; give the passphrase that was set at `fedward-authority init`"
        raise EnrolmentError(msg) from None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != root.public_key():
        msg = f"{KEY_FILE} does not belong to {CERTIFICATE_FILE}; restore both from the same backup"
        raise EnrolmentError(msg)
    return root, key
