"""Certificates: whom the consortium's authority vouches for, and signatures by those parties.

Guarantees: `Trust` returns an `Identity` only for an ECDSA P-256 certificate that the authority itself issued, that is
valid at the time asked for, and that has the URIs of one `Subject` and the key usages of its role. Each way of failing
has its own message. A `Credential` exists only if its certificate, key and authority belong together. Revocation is
left to the deny lists of the two services, and host names to TLS.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Self, TypeVar, cast

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, ObjectIdentifier

from crypto.canonical import canonical
from crypto.errors import CertificateError, SignatureRefused
from crypto.pki.identity import Identity, Role, Subject
from crypto.stream import derive

E = TypeVar("E", bound=x509.ExtensionType)

_MAX_PEM = 1 << 16
_OPEN_TO_OTHERS = 0o077
_SCALAR_BYTES = 32

KEY_USES: dict[Role, ObjectIdentifier] = {
    Role.SILO: ExtendedKeyUsageOID.CLIENT_AUTH,
    Role.OPERATOR: ExtendedKeyUsageOID.CLIENT_AUTH,
    Role.COORDINATOR: ExtendedKeyUsageOID.SERVER_AUTH,
}
"""The extended key usage that a certificate of each role carries: silos and operators call, coordinators answer."""


def fingerprint(certificate_pem: bytes) -> str:
    """SHA-256 of the certificate's DER form, lowercase hex. Raises `CertificateError` if this is no certificate."""
    return parse_certificate(certificate_pem).fingerprint(hashes.SHA256()).hex()


def parse_certificate(certificate_pem: bytes) -> x509.Certificate:
    """Read exactly one PEM certificate. Raises `CertificateError`; checks nothing else."""
    try:
        found = x509.load_pem_x509_certificates(certificate_pem) if len(certificate_pem) <= _MAX_PEM else []
    except ValueError:
        found = []
    if len(found) != 1:
        msg = "the file must hold exactly one PEM certificate; give the file that `fedward-authority sign` wrote"
        raise CertificateError(msg)
    return found[0]


def ends(certificate_pem: bytes) -> datetime:
    """When a certificate expires, aware, in UTC. Raises `CertificateError` if this is no certificate."""
    return parse_certificate(certificate_pem).not_valid_after_utc


def subject_of(source: x509.Certificate | x509.CertificateSigningRequest) -> Subject:
    """Return the subject that the URIs among the subject alternative names describe. Raises `CertificateError`."""
    names = extension(source, x509.SubjectAlternativeName)
    return Subject.parse(names.get_values_for_type(x509.UniformResourceIdentifier) if names else [])


def require_data_set(certificate_pem: bytes, data_set: str) -> None:
    """Raise `CertificateError` unless this is the certificate of a silo for this data set.

    It does not check who issued the certificate; call `Trust.identify` first.
    """
    subject = subject_of(parse_certificate(certificate_pem))
    if subject.data_set != data_set:
        msg = (
            f"the certificate is for {subject}, not for the data set {data_set}, and a new name does not refill a"
            " budget; put back data_set.id in the policy, or enrol another silo for other patients"
        )
        raise CertificateError(msg)


def extension(source: x509.Certificate | x509.CertificateSigningRequest, kind: type[E]) -> E | None:
    """Return the extension of that kind, or None if there is none. Raises `CertificateError` if it is malformed."""
    try:
        return source.extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        return None
    except (ValueError, x509.DuplicateExtension, x509.UnsupportedGeneralNameType):
        msg = "the certificate's extensions cannot be read; make a new request with FedWard's enrolment"
        raise CertificateError(msg) from None


class Trust:
    """What the consortium's authority vouches for."""

    def __init__(self, authority_pem: bytes) -> None:
        """Take the authority's own certificate. Raises `CertificateError` if it is not an authority's."""
        root = parse_certificate(authority_pem)
        constraints, usage = extension(root, x509.BasicConstraints), extension(root, x509.KeyUsage)
        is_authority = constraints is not None and constraints.ca and usage is not None and usage.key_cert_sign
        if not is_authority or not _issued(root, root):
            msg = "the file is not an authority's certificate; give the authority.pem of your consortium"
            raise CertificateError(msg)
        self._root = root

    def identify(self, certificate_pem: bytes, *, role: Role | None = None, now: datetime | None = None) -> Identity:
        """Return whom the authority certified.

        `now` (aware) defaults to the clock. Raises `CertificateError` with a message of its own for each fault: another
        authority, expired, not yet valid, no identity, another role, a key or key usage that does not fit.
        """
        certificate = parse_certificate(certificate_pem)
        if not _issued(certificate, self._root):
            msg = (
                f"the certificate was not issued by the authority {_common_name(self._root)!r};"
                " have its request signed by that authority, or give the authority.pem of the right consortium"
            )
            raise CertificateError(msg)
        identity = subject_of(certificate).identity
        now = now or datetime.now(UTC)
        _check_time(certificate, now, f"the certificate of {identity}", "make a new request and have it signed")
        _check_time(self._root, now, "the authority", "the consortium needs a new authority")
        if role is not None and identity.role is not role:
            msg = f"the certificate is for {identity}, but a {role.value} is needed; give the right party's certificate"
            raise CertificateError(msg)
        _check_usage(certificate, identity)
        return identity

    def ran_out(self, certificate_pem: bytes, *, now: datetime | None = None) -> datetime | None:
        """Return when the certificate, or the authority behind it, expired; None if neither has expired at `now`.

        Raises `CertificateError` if this is no certificate. It does not check who issued it; `identify` does.
        """
        ends = min(one.not_valid_after_utc for one in (parse_certificate(certificate_pem), self._root))
        return ends if ends < (now or datetime.now(UTC)) else None

    def verify(
        self,
        certificate_pem: bytes,
        message: bytes,
        signature: bytes,
        *,
        role: Role | None = None,
        now: datetime | None = None,
    ) -> Identity:
        """Return who signed the message, by a certificate that was valid at `now` (aware; defaults to the clock).

        A signature carries no time of its own. A caller who gives another `now` than the clock's relies on the time
        that the signer stated, and must say so to its users. Raises `CertificateError`, or `SignatureRefused` if the
        signature does not fit the bytes.
        """
        identity = self.identify(certificate_pem, role=role, now=now)
        key = cast("ec.EllipticCurvePublicKey", parse_certificate(certificate_pem).public_key())
        try:
            key.verify(signature, message, ec.ECDSA(hashes.SHA256()))
        except InvalidSignature:
            msg = f"the signature of {identity} does not fit the signed bytes; have it sent again, then ask that party"
            raise SignatureRefused(msg) from None
        return identity


class Credential:
    """A party's own certificate and private key."""

    def __init__(
        self, *, certificate_pem: bytes, key_pem: bytes, authority_pem: bytes, now: datetime | None = None
    ) -> None:
        """Check that the three belong together, at `now` (aware; defaults to the clock). Raises `CertificateError`."""
        self.certificate_pem = certificate_pem
        self.authority_pem = authority_pem
        self.key_pem = key_pem
        self.identity = Trust(authority_pem).identify(certificate_pem, now=now)
        if self._key.public_key() != parse_certificate(certificate_pem).public_key():
            msg = f"the private key does not belong to the certificate of {self.identity}; give the key of its request"
            raise CertificateError(msg)

    @classmethod
    def load(cls, certificate: Path, key: Path, authority: Path) -> Self:
        """Read three PEM files. Raises `CertificateError`, also if others may read or write the key file."""
        try:
            mode = key.stat().st_mode
            pems = [path.read_bytes() for path in (certificate, key, authority)]
        except OSError as error:
            msg = f"{Path(str(error.filename)).name} cannot be read ({error.strerror}); fix its path or its owner"
            raise CertificateError(msg) from None
        if mode & _OPEN_TO_OTHERS:
            msg = (
                f"others than its owner may read or write {key.name}; run chmod 600 on it, and enrol again if it leaked"
            )
            raise CertificateError(msg)
        return cls(certificate_pem=pems[0], key_pem=pems[1], authority_pem=pems[2])

    @cached_property
    def _key(self) -> ec.EllipticCurvePrivateKey:
        try:
            key = serialization.load_pem_private_key(self.key_pem, password=None)
        except (ValueError, TypeError):
            key = None
        if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
            msg = "the private key cannot be read as an ECDSA P-256 key; give the key that the enrolment made"
            raise CertificateError(msg)
        return key

    def sign(self, message: bytes) -> bytes:
        """Sign with ECDSA P-256 and SHA-256 (DER). The message must say what it is for (see `canonical`)."""
        return self._key.sign(message, ec.ECDSA(hashes.SHA256()))

    def derive(self, purpose: str) -> bytes:
        """Return 32 bytes for one purpose that only the holder of this private key knows (HKDF-SHA256, RFC 5869)."""
        secret = self._key.private_numbers().private_value.to_bytes(_SCALAR_BYTES, "big")
        return derive(secret, canonical("own secret", purpose))

    def __repr__(self) -> str:
        return f"Credential({self.identity})"


def _issued(certificate: x509.Certificate, root: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(root)
        key = certificate.public_key()
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False
    is_p256 = isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, ec.SECP256R1)
    return is_p256 and isinstance(certificate.signature_hash_algorithm, hashes.SHA256)


def _common_name(certificate: x509.Certificate) -> str:
    found = certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    return str(found[0].value) if found else "(without a name)"


def _check_time(certificate: x509.Certificate, now: datetime, what: str, mend: str) -> None:
    if now > certificate.not_valid_after_utc:
        msg = f"{what} expired on {certificate.not_valid_after_utc:%Y-%m-%d %H:%M} UTC; {mend}"
        raise CertificateError(msg)
    if now < certificate.not_valid_before_utc:
        begin = f"{certificate.not_valid_before_utc:%Y-%m-%d %H:%M} UTC"
        msg = f"{what} is not yet valid (from {begin}); correct this machine's clock or wait"
        raise CertificateError(msg)


def _check_usage(certificate: x509.Certificate, identity: Identity) -> None:
    constraints, usage = extension(certificate, x509.BasicConstraints), extension(certificate, x509.KeyUsage)
    extended = extension(certificate, x509.ExtendedKeyUsage)
    fits = (
        constraints is not None
        and not constraints.ca
        and usage is not None
        and usage.digital_signature
        and extended is not None
        and KEY_USES[identity.role] in extended
    )
    if not fits:
        msg = f"the key usages of the certificate are not those of {identity}; have its request signed again"
        raise CertificateError(msg)
