"""`authority.pem`: the roots that a consortium trusts, and the issuing authorities under them.

Guarantees: a `Bundle` exists only if every certificate in it is a root (it signed itself) or an issuing certificate
that a root of the bundle signed and was allowed to sign (path length 1 or more). So a certificate that somebody adds to
the file gains no trust by lying there. During a change of root the bundle holds both roots. One issuing key may have
several certificates there, from both roots or because a root delegated to it anew. `issuer_of` finds who signed a
certificate, and says what is wrong if nobody of the bundle did. Times and revocation are judged by `certificates`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from cryptography import x509

from crypto.errors import CertificateError, UnknownAuthorityError
from crypto.pki.reading import common_name, extension, fingerprint_of, is_issued, parse_certificates, to_pem

_ASK = "give the authority.pem of your consortium"


@dataclass(frozen=True)
class Authority:
    """An authority of the bundle: a root, or an issuing authority with the root above it."""

    certificate: x509.Certificate
    above: Authority | None = None
    """The root that signed an issuing authority; None for a root."""

    @property
    def name(self) -> str:
        """The common name, for people."""
        return common_name(self.certificate.subject)

    @property
    def pem(self) -> bytes:
        """The certificate."""
        return to_pem(self.certificate)

    @property
    def ends(self) -> datetime:
        """When the certificate expires, UTC."""
        return self.certificate.not_valid_after_utc

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the certificate's DER form, lowercase hex."""
        return fingerprint_of(self.certificate)

    @property
    def root(self) -> Authority:
        """The root at the top of the chain."""
        return self.above or self

    @property
    def kind(self) -> str:
        """What messages call it."""
        return "the authority" if self.above is None else "the issuing authority"


@dataclass(frozen=True)
class Bundle:
    """The authorities of one `authority.pem`. At least one is a root."""

    roots: tuple[Authority, ...]
    issuing: tuple[Authority, ...]

    @classmethod
    def read(cls, pem: bytes) -> Bundle:
        """Read one or more roots and any issuing certificates, in any order, 64 KiB at most.

        Raises `CertificateError`, which names every certificate that does not belong there, and why.
        """
        certificates = list({fingerprint_of(one): one for one in parse_certificates(pem)}.values())
        roots = tuple(Authority(one) for one in certificates if is_issued(one, one) and _may_sign(one))
        if not roots:
            msg = f"the file is not an authority's certificate; {_ASK}"
            raise CertificateError(msg)
        issuing, faults = [], []
        for one in certificates:
            if any(root.certificate == one for root in roots):
                continue
            above = next((root for root in roots if is_issued(one, root.certificate)), None)
            fault = _fault(one, above)
            if fault is None:
                issuing.append(Authority(one, above))
            else:
                faults.append(f"the certificate {common_name(one.subject)!r} in the authority's file {fault}")
        if faults:
            raise CertificateError("; ".join(faults))
        return cls(roots, tuple(issuing))

    @property
    def all(self) -> tuple[Authority, ...]:
        """Roots, then issuing authorities."""
        return (*self.roots, *self.issuing)

    @property
    def pem(self) -> bytes:
        """All certificates, as `authority.pem` holds them."""
        return b"".join(one.pem for one in self.all)

    @property
    def roots_pem(self) -> bytes:
        """The roots alone. TLS trusts nothing else; it gets issuing certificates from whoever presents a leaf."""
        return b"".join(to_pem(root.certificate) for root in self.roots)

    def under(self, roots: Collection[str]) -> Bundle:
        """Return the roots of these fingerprints alone, with the issuing authorities under them."""
        kept = tuple(one for one in self.roots if one.fingerprint in roots)
        return Bundle(kept, tuple(one for one in self.issuing if one.above in kept))

    def root(self, fingerprint: str) -> Authority | None:
        """Return the root of this fingerprint, or None."""
        return next((root for root in self.roots if root.fingerprint == fingerprint), None)

    def issuer_of(self, certificate: x509.Certificate, admitted_by: str | None = None) -> Authority:
        """Return who of the bundle signed the certificate. Raises `UnknownAuthorityError` that says why nobody did.

        An authority whose time was prolonged, or to which two roots delegated, has several certificates for one key.
        Then the issuer is the one under the root that admitted the party (`admitted_by`, a fingerprint); of these the
        one within whose time the certificate lies, and of two such the one that lasts longer.
        """
        signers = [one for one in self.all if is_issued(certificate, one.certificate)]
        if signers:
            return max(
                signers,
                key=lambda one: (
                    one.root.fingerprint == admitted_by,
                    _spans(one.certificate, certificate),
                    one.ends,
                ),
            )
        issuer, known = common_name(certificate.issuer), " or ".join(repr(one.name) for one in self.all)
        msg = f"the certificate was not issued by the authority {known}"
        if any(one.certificate.subject == certificate.issuer for one in self.all):
            msg += (
                f", but by another key that calls itself {issuer!r}, or its own key is not ECDSA P-256; if the"
                " consortium changes its authority, take the authority.pem that holds the old one and the new one,"
                " and have the request signed again otherwise"
            )
        else:
            msg += (
                f", but by {issuer!r}; have its request signed by that authority, or give the authority.pem of the"
                " right consortium, which holds the root and the issuing authority"
            )
        raise UnknownAuthorityError(msg)


def _spans(authority: x509.Certificate, certificate: x509.Certificate) -> bool:
    """Say whether the whole time of the certificate lies within the authority's."""
    begins = authority.not_valid_before_utc <= certificate.not_valid_before_utc
    return begins and certificate.not_valid_after_utc <= authority.not_valid_after_utc


def _may_sign(certificate: x509.Certificate) -> bool:
    constraints, usage = extension(certificate, x509.BasicConstraints), extension(certificate, x509.KeyUsage)
    return constraints is not None and constraints.ca and usage is not None and usage.key_cert_sign


def _fault(certificate: x509.Certificate, above: Authority | None) -> str | None:
    """Say why this is no issuing certificate under that root; None if it is one."""
    constraints, usage = extension(certificate, x509.BasicConstraints), extension(certificate, x509.KeyUsage)
    if constraints is None or not constraints.ca:
        return "is not an authority's certificate; take it out"
    if above is None:
        return f"was signed by no root of the file; add its root, if your consortium trusts it, or {_ASK}"
    limit = extension(above.certificate, x509.BasicConstraints)
    if limit is None or limit.path_length == 0:
        return (
            f"cannot issue: its root {above.name!r} has path length 0 and so may have no issuing authority;"
            " have a root of `fedward-authority init` sign it"
        )
    if constraints.path_length != 0 or usage is None or not usage.key_cert_sign or not usage.crl_sign:
        return "is no issuing certificate; take the one that `fedward-authority delegate` wrote"
    return None
