"""Certificates as the authorities write them, and the requests that they read.

`root` and `issuing` decide who is certified. Here is only what a certificate of each kind looks like (RFC 5280).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from crypto.errors import CertificateError, EnrolmentError
from crypto.pki.admission import Admission
from crypto.pki.certificates import KEY_USES
from crypto.pki.hosts import general_names, hosts_of
from crypto.pki.identity import Role, Subject
from crypto.pki.reading import extension, is_p256, key_fingerprint, subject_of, to_pem

CLOCK_SKEW = timedelta(minutes=5)
"""A certificate begins this much before it is made, so that a party whose clock is behind can use it at once."""
_MAX_DAYS = 36_500
_MAX_NAME = 64
_DELEGABLE = 1


@dataclass(frozen=True)
class Request:
    """What a party's signing request asks for."""

    subject: Subject
    hosts: tuple[str, ...]
    public_key: ec.EllipticCurvePublicKey

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the public key (DER), lowercase hex. Two people compare it over the telephone."""
        return key_fingerprint(self.public_key)


def read_request(request: bytes) -> Request:
    """Read a party's request, PEM or DER (PKCS #10). Raises `EnrolmentError` unless it proves a key of ECDSA P-256."""
    try:
        loaded = _load(request)
        key = _proven(loaded)
        return Request(subject_of(loaded), hosts_of(extension(loaded, x509.SubjectAlternativeName)), key)
    except (ValueError, TypeError, UnsupportedAlgorithm, CertificateError):
        msg = "the file is no signing request with a FedWard identity; make the request with FedWard's enrolment"
        raise EnrolmentError(msg) from None


def read_authority_request(request: bytes) -> tuple[str, ec.EllipticCurvePublicKey]:
    """Return name and key of an issuing or timestamping authority's request. Raises `EnrolmentError`."""
    try:
        loaded = _load(request)
        names = [str(one.value) for one in loaded.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)]
        plain = len(names) == 1 and len(loaded.extensions) == 0
        key = _proven(loaded)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        plain = False
    if not plain:
        msg = "it is no request of an issuing authority or of one for timestamps; take the .csr that its command wrote"
        raise EnrolmentError(msg)
    return names[0], key


def _load(request: bytes) -> x509.CertificateSigningRequest:
    if request.lstrip().startswith(b"-----"):
        return x509.load_pem_x509_csr(request)
    return x509.load_der_x509_csr(request)


def _proven(request: x509.CertificateSigningRequest) -> ec.EllipticCurvePublicKey:
    key = request.public_key()
    if not request.is_signature_valid or not isinstance(key, ec.EllipticCurvePublicKey) or not is_p256(key):
        msg = "the request does not prove an ECDSA P-256 key; make a new request with FedWard's enrolment"
        raise EnrolmentError(msg)
    return key


def require_hosts(subject: Subject, hosts: Sequence[str]) -> None:
    """Raise `EnrolmentError` unless a coordinator has hosts and every other role has none."""
    if subject.identity.role is not Role.COORDINATOR and hosts:
        msg = f"only a coordinator is certified for hosts, not {subject.identity}; leave out --host"
        raise EnrolmentError(msg)
    if subject.identity.role is Role.COORDINATOR and not hosts:
        msg = "a coordinator's certificate needs a host name; give --host"
        raise EnrolmentError(msg)
    general_names(hosts)


def common_name(name: str) -> x509.Name:
    """Return an X.500 name of a common name alone. Raises `EnrolmentError` for more than 64 characters (X.520)."""
    if not 0 < len(name) <= _MAX_NAME:
        msg = "the authority's name must have 1 to 64 characters; give --name"
        raise EnrolmentError(msg)
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])


def period(days: int, now: datetime | None = None) -> tuple[datetime, datetime]:
    """Begin and end of a certificate of so many days. Raises `EnrolmentError`."""
    if not 1 <= days <= _MAX_DAYS:
        msg = f"a certificate must last 1 to {_MAX_DAYS} days; fix --days"
        raise EnrolmentError(msg)
    begin = (now or datetime.now(UTC)).replace(microsecond=0)
    return begin - CLOCK_SKEW, begin + timedelta(days=days)


def root(name: str, key: ec.EllipticCurvePrivateKey, times: tuple[datetime, datetime]) -> bytes:
    """A root that may have issuing authorities under it (path length 1). PEM."""
    subject = common_name(name)
    builder = _authority(subject, subject, key.public_key(), times, path_length=_DELEGABLE)
    return to_pem(builder.sign(key, hashes.SHA256()))


def issuing(
    name: str,
    public_key: ec.EllipticCurvePublicKey,
    hosts: Sequence[str],
    times: tuple[datetime, datetime],
    above: tuple[x509.Certificate, ec.EllipticCurvePrivateKey],
) -> bytes:
    """An issuing authority's certificate, signed by a root. PEM.

    It may certify servers for these hosts alone (name constraints, RFC 5280, 4.2.1.10), so that a stolen online key
    stands for no other machine towards any TLS library.
    """
    certificate, key = above
    builder = _authority(common_name(name), certificate.subject, public_key, times, path_length=0).add_extension(
        _only(hosts), critical=True
    )
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key())
    return to_pem(builder.add_extension(identifier, critical=False).sign(key, hashes.SHA256()))


def _authority(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    times: tuple[datetime, datetime],
    *,
    path_length: int,
) -> x509.CertificateBuilder:
    return (
        _builder(subject, issuer, key, times)
        .add_extension(x509.BasicConstraints(ca=True, path_length=path_length), critical=True)
        .add_extension(_key_usage(authority=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _only(hosts: Sequence[str]) -> x509.NameConstraints:
    """Permit these DNS names and their subdomains, and no address."""
    permitted = [name for name in general_names(hosts) if isinstance(name, x509.DNSName)]
    excluded = [x509.IPAddress(ipaddress.ip_network(everything)) for everything in ("0.0.0.0/0", "::/0")]
    return x509.NameConstraints(permitted or None, excluded if permitted else [x509.DNSName(""), *excluded])


def require_names(hosts: Sequence[str]) -> None:
    """Raise `EnrolmentError` if a host is an address.

    gRPC's TLS library refuses a certificate with an address if its authority's addresses are constrained, so an issuing
    authority certifies DNS names alone.
    """
    addresses = [str(name.value) for name in general_names(hosts) if isinstance(name, x509.IPAddress)]
    if addresses:
        msg = (
            f"an issuing authority certifies no addresses ({', '.join(addresses)}), because TLS libraries cannot bound"
            " them; give DNS names with --host (localhost for tries), or have the root sign the request itself"
        )
        raise EnrolmentError(msg)


def require_permitted(certificate: x509.Certificate, hosts: Sequence[str]) -> None:
    """Raise `EnrolmentError` if an issuing authority may not certify a server for one of the hosts."""
    constraints = extension(certificate, x509.NameConstraints)
    permitted = [] if constraints is None else constraints.permitted_subtrees or []
    names = [str(one.value) for one in permitted if isinstance(one, x509.DNSName)]
    foreign = [host for host in hosts if not any(host == name or host.endswith(f".{name}") for name in names)]
    if foreign:
        msg = (
            f"the root allowed this authority servers for {', '.join(names) or 'no host'}, not for"
            f" {', '.join(foreign)}; give one of those with --host, or have the root delegate anew"
        )
        raise EnrolmentError(msg)


def leaf(  # a certificate has so many parts
    subject: Subject,
    hosts: Sequence[str],
    public_key: ec.EllipticCurvePublicKey,
    times: tuple[datetime, datetime],
    above: tuple[x509.Certificate, ec.EllipticCurvePrivateKey],
    *,
    admission: Admission | None = None,
) -> bytes:
    """A party's certificate, signed by a root, or by an issuing authority with the root's admission. PEM.

    A coordinator calls the issuing authority when it renews, so under one it is certified as a client too.
    """
    certificate, key = above
    uses = {KEY_USES[subject.identity.role]: None}
    if admission is not None:
        uses[ExtendedKeyUsageOID.CLIENT_AUTH] = None
    names = [*map(x509.UniformResourceIdentifier, subject.uris), *general_names(hosts)]
    builder = (
        _leaf(common_name(subject.identity.name), certificate.subject, public_key, times, key)
        .add_extension(x509.ExtendedKeyUsage(list(uses)), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
    )
    if admission is not None:
        # Not critical: no TLS library knows it, and one that must would refuse the connection.
        builder = builder.add_extension(admission.to_extension(), critical=False)
    return to_pem(builder.sign(key, hashes.SHA256()))


def server(
    hosts: Sequence[str],
    public_key: ec.EllipticCurvePublicKey,
    times: tuple[datetime, datetime],
    above: tuple[x509.Certificate, ec.EllipticCurvePrivateKey],
) -> bytes:
    """A certificate for the issuing authority's own HTTPS. It names no party, so `Trust` never accepts it. PEM."""
    certificate, key = above
    builder = (
        _leaf(common_name("issuing service"), certificate.subject, public_key, times, key)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(general_names(hosts)), critical=False)
    )
    return to_pem(builder.sign(key, hashes.SHA256()))


def timestamping(
    name: str,
    public_key: ec.EllipticCurvePublicKey,
    times: tuple[datetime, datetime],
    above: tuple[x509.Certificate, ec.EllipticCurvePrivateKey],
) -> bytes:
    """A timestamping authority's certificate, signed by a root: for timestamps alone (RFC 3161, 2.3). PEM."""
    certificate, key = above
    builder = _leaf(common_name(name), certificate.subject, public_key, times, key).add_extension(
        x509.ExtendedKeyUsage([ExtendedKeyUsageOID.TIME_STAMPING]), critical=True
    )
    return to_pem(builder.sign(key, hashes.SHA256()))


def _leaf(
    subject: x509.Name,
    issuer: x509.Name,
    public_key: ec.EllipticCurvePublicKey,
    times: tuple[datetime, datetime],
    key: ec.EllipticCurvePrivateKey,
) -> x509.CertificateBuilder:
    return (
        _builder(subject, issuer, public_key, times)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(authority=False), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
    )


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, times: tuple[datetime, datetime]
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(times[0])
        .not_valid_after(times[1])
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
