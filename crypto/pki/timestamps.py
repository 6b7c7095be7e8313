"""Timestamps of the consortium's timestamping authority (RFC 3161), as whoever relies on them checks them.

Guarantees: `stamped` returns a time only if a key that a root of `authority.pem` itself certified for timestamps alone
signed it for this very digest, within that certificate's life, and the root has not revoked it. An issuing authority
cannot make such a key, so who steals the online issuing key stamps nothing. Whoever steals the timestamping key can
name any time; revoked once, none of its stamps counts any more.
"""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import Final

import rfc3161_client
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID
from rfc3161_client import TimestampRequestBuilder, VerificationError, VerifierBuilder

from crypto.errors import CertificateError, UnknownAuthorityError
from crypto.pki.chain import Authority, Bundle
from crypto.pki.reading import extension, is_issued, parse_certificate
from crypto.pki.revocation import RevocationLists

SUFFIX: Final = ".tsr"
"""Of the file beside a stamped one. `openssl ts -verify -data FILE -in FILE.tsr -CAfile root.pem` reads it too."""
_SAID: Final = 200


def query_for(content: bytes) -> bytes:
    """The query (DER) for a stamp of a content's SHA-256, with a nonce, asking for the signer's certificate."""
    request = TimestampRequestBuilder().data(content).hash_algorithm(rfc3161_client.HashAlgorithm.SHA256).build()
    return bytes(request.as_bytes())


def stamped(reply: bytes, content: bytes, bundle: Bundle, lists: RevocationLists | None) -> datetime:
    """Return when the content was stamped, by the reply (DER) of the timestamping authority.

    `lists` are the authorities' revocation lists, if the party has some. Raises `CertificateError`, and
    `UnknownAuthorityError` if no root of the bundle certified the key.
    """
    try:
        read = rfc3161_client.decode_timestamp_response(reply)
        signers = [x509.load_der_x509_certificate(der) for der in read.signed_data.certificates]
        time = read.tst_info.gen_time
    except (ValueError, TypeError) as error:
        msg = f"this is no timestamp, or a refusal ({str(error)[:_SAID]}); ask for it anew"
        raise CertificateError(msg) from None
    if len(signers) != 1:
        msg = "a timestamp carries exactly the timestamping authority's certificate; ask for it anew"
        raise CertificateError(msg)
    root = _root_of(signers[0], bundle)
    certificate = signers[0]
    if not certificate.not_valid_before_utc <= time <= certificate.not_valid_after_utc:
        msg = f"the timestamp names {time:%Y-%m-%d}, a day on which its key was not certified"
        raise CertificateError(msg)
    revoked = None if lists is None else lists.revoked(root, certificate.serial_number)
    if revoked is not None:
        msg = f"the timestamping key was revoked as of {revoked:%Y-%m-%d}, so none of its stamps counts"
        raise CertificateError(msg)
    verifier = VerifierBuilder().add_root_certificate(root.certificate).tsa_certificate(certificate).build()
    try:
        verifier.verify(read, hashlib.sha256(content).digest())
    except (VerificationError, ValueError) as error:
        msg = f"the timestamp is not of these bytes, or was changed ({str(error)[:_SAID]}); ask for it anew"
        raise CertificateError(msg) from None
    return time


def require_timestamping(pem: bytes, bundle: Bundle) -> x509.Certificate:
    """Return a timestamping authority's certificate. Raises `CertificateError` unless it is one under a root."""
    certificate = parse_certificate(pem)
    _root_of(certificate, bundle)
    return certificate


def _root_of(certificate: x509.Certificate, bundle: Bundle) -> Authority:
    root = next((one for one in bundle.roots if is_issued(certificate, one.certificate)), None)
    if root is None:
        msg = "no root of authority.pem certified the key that made the timestamp; only the root itself can"
        raise UnknownAuthorityError(msg)
    constraints, uses = extension(certificate, x509.BasicConstraints), extension(certificate, x509.ExtendedKeyUsage)
    only = uses is not None and list(uses) == [ExtendedKeyUsageOID.TIME_STAMPING]
    if constraints is None or constraints.ca or not only:
        msg = "the key that made the timestamp was certified for something else than timestamps alone"
        raise CertificateError(msg)
    return root
