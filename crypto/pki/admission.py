"""Admissions: the offline root's own signature over who may be certified online, and the one-time token with it.

An issuing authority is online, so its key can be stolen. It may therefore certify only whom the root admitted: every
certificate that it signs carries the admission, and `certificates.Trust` compares the two. So a stolen online key
invents no silo, and no second silo for a data set. An admission stands for one key: it names the key, or, if a token
with it was redeemed by a key that the root did not know, every party remembers which one (`known_keys`).

Guarantees: an admission has one spelling, so what was signed is what is read. The token's secret proves that its
bearer got it from the authority; certificates carry only its SHA-256, from which 32 random bytes cannot be found.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Self, cast

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from common.digests import is_sha256
from crypto.canonical import canonical
from crypto.errors import CertificateError, EnrolmentError
from crypto.pki.hosts import general_names
from crypto.pki.identity import Identity, Role, Subject
from crypto.pki.reading import fingerprint_of

OID = x509.ObjectIdentifier("2.25.246713895126304790521863350713284019623")
"""The extension of a certificate that holds its admission (an arc of UUIDs, ITU-T X.667, which nobody assigns)."""

SECRET_BYTES = 32
_MAX_BYTES = 1 << 13
_PURPOSE = "fedward admission"
_PREFIX = "fedward1."
_URL = re.compile(r"https://[a-z0-9.:\[\]-]{1,300}")
_OCTET_STRING = 0x04
_LONG_FORM = 0x80


@dataclass(frozen=True)
class Admission:
    """The root's word that a party may be certified online."""

    root: str
    """SHA-256 of the root's certificate (DER), lowercase hex."""
    serial: int
    """Number of the admission, drawn like a certificate's. The root's revocation lists revoke it by this number."""
    subject: Subject
    hosts: tuple[str, ...]
    """DNS names and IP addresses of a coordinator, sorted; empty for all other roles."""
    expires: datetime
    """No certificate under this admission lasts longer. UTC, whole seconds."""
    redeem_until: datetime
    """The token gets its first certificate until then. UTC, whole seconds."""
    secret_sha256: str
    key: str | None = None
    """SHA-256 of the public key (DER, SubjectPublicKeyInfo) for which alone the party may be certified, lowercase hex.
    None if the root did not know it: the token's first bearer chose it."""
    made: datetime | None = None
    """When the root made it. UTC, whole seconds. None if version 0.6 made it."""
    number: int = 0
    """The number of its entry in the root's register, from 1: of two admissions of a party the higher counts. 0 if
    version 0.6 made it."""
    signature: bytes = b""
    """The root's ECDSA P-256 signature with SHA-256 (DER) over `to_sign`."""

    def to_sign(self) -> bytes:
        """Return the bytes that the root signs. No certificate and no revocation list begins like them."""
        return canonical(_PURPOSE, _text(self._terms()))

    def _terms(self) -> dict[str, Any]:
        more = {
            "institution": self.subject.institution,
            "key": self.key,
            "made": None if self.made is None else self.made.isoformat(),
            "number": self.number or None,
        }
        return {name: value for name, value in more.items() if value is not None} | {
            "purpose": _PURPOSE,
            "root": self.root,
            "serial": f"{self.serial:x}",
            "role": self.subject.identity.role.value,
            "name": self.subject.identity.name,
            "data_set": self.subject.data_set,
            "hosts": list(self.hosts),
            "expires": self.expires.isoformat(),
            "redeem_until": self.redeem_until.isoformat(),
            "secret_sha256": self.secret_sha256,
        }

    @cached_property
    def digest(self) -> str:
        """SHA-256 of what the root signed, lowercase hex: the admission's name in the memory of parties."""
        return hashlib.sha256(self.to_sign()).hexdigest()

    def to_json(self) -> dict[str, Any]:
        """Return the terms with the signature, for `from_json`."""
        return {**self._terms(), "signature": self.signature.hex()}

    @classmethod
    def from_json(cls, fields: object) -> Self:
        """The inverse of `to_json`; accepts no other spelling. Raises `CertificateError`."""
        try:
            admission = cls._from_fields(fields)
            same = admission.to_json() == fields
        except (KeyError, TypeError, ValueError, AttributeError, CertificateError, EnrolmentError):
            same = False
        if not same:
            msg = "the admission cannot be read; ask the authority for a new token (`fedward-authority admit`)"
            raise CertificateError(msg)
        return admission

    @classmethod
    def _from_fields(cls, fields: Any) -> Self:
        subject = Subject(Identity(Role(fields["role"]), fields["name"]), fields["data_set"], fields.get("institution"))
        stated = [fields["expires"], fields["redeem_until"], *([fields["made"]] if "made" in fields else [])]
        times = [datetime.fromisoformat(one) for one in stated]
        if any(one.tzinfo is None or one.astimezone(UTC).isoformat() != one.isoformat() for one in times):
            raise ValueError
        digests = [fields["root"], fields["secret_sha256"], *([fields["key"]] if "key" in fields else [])]
        if not all(map(is_sha256, digests)) or fields.get("number", 1) < 1:
            raise ValueError
        general_names(fields["hosts"])
        if fields["hosts"] != sorted(set(fields["hosts"])):
            raise ValueError
        return cls(
            root=fields["root"],
            serial=int(fields["serial"], 16),
            subject=subject,
            hosts=tuple(fields["hosts"]),
            expires=times[0],
            redeem_until=times[1],
            secret_sha256=fields["secret_sha256"],
            key=fields.get("key"),
            made=times[2] if "made" in fields else None,
            number=fields.get("number", 0),
            signature=bytes.fromhex(fields["signature"]),
        )

    def signed(self, key: ec.EllipticCurvePrivateKey) -> Self:
        """Return the admission with the signature of the root's key."""
        return replace(self, signature=key.sign(self.to_sign(), ec.ECDSA(hashes.SHA256())))

    def verify(self, root: x509.Certificate) -> None:
        """Check that this root signed the admission. Raises `CertificateError`."""
        if self.root != fingerprint_of(root) or not self._signed_by(root.public_key()):
            msg = (
                f"the admission of {self.subject} was not signed by the root that it names; have the authority admit"
                " the party again"
            )
            raise CertificateError(msg)

    def _signed_by(self, key: object) -> bool:
        try:
            cast("ec.EllipticCurvePublicKey", key).verify(self.signature, self.to_sign(), ec.ECDSA(hashes.SHA256()))
        except InvalidSignature:
            return False
        return True

    def require_covers(self, subject: Subject, hosts: Sequence[str], key: str, ends: datetime) -> None:
        """Check that a certificate for these hosts and this key (a fingerprint), until `ends`, is what was admitted.

        Raises `CertificateError` with all that differs.
        """
        faults = []
        if subject != self.subject:
            faults.append(f"it is for {subject}, and admitted is {self.subject}")
        if tuple(sorted(hosts)) != self.hosts:
            named, admitted = (", ".join(sorted(some)) or "none" for some in (hosts, self.hosts))
            faults.append(f"its hosts are {named}, and admitted are {admitted}")
        if self.key not in (None, key):
            faults.append(f"its key has SHA-256 {key}, and admitted is the key with {self.key}")
        if ends > self.expires:
            faults.append(f"it ends on {ends:%Y-%m-%d %H:%M} UTC, after its admission ({self.expires:%Y-%m-%d %H:%M})")
        if faults:
            msg = f"the certificate is not what the root admitted: {'; '.join(faults)}; have the authority admit it"
            raise CertificateError(msg)

    def require_secret(self, secret: bytes, now: datetime) -> None:
        """Check that the secret is the token's, and that the token may still be redeemed. Raises `EnrolmentError`."""
        if not hmac.compare_digest(hashlib.sha256(secret).hexdigest(), self.secret_sha256):
            msg = "the token's secret is not that of its admission; ask the authority for a new token"
            raise EnrolmentError(msg)
        if now > self.redeem_until:
            msg = (
                f"the token could be redeemed until {self.redeem_until:%Y-%m-%d %H:%M} UTC; ask the authority for a new"
                " one (`fedward-authority admit`)"
            )
            raise EnrolmentError(msg)

    def to_extension(self) -> x509.UnrecognizedExtension:
        """Return the extension of a certificate (`OID`): canonical JSON in a DER octet string."""
        return x509.UnrecognizedExtension(OID, _octets(_text(self.to_json()).encode()))

    @classmethod
    def from_extension(cls, value: bytes) -> Self:
        """The inverse of `to_extension`, from the extension's bytes. Raises `CertificateError`."""
        begin = value.find(b"{")
        content = value[begin:] if begin > 0 and len(value) <= _MAX_BYTES else b""
        fields = _parse(content)
        if value != _octets(content) or content != _text(fields).encode():
            fields = None
        return cls.from_json(fields)


@dataclass(frozen=True)
class Token:
    """What the authority gives to a party, once, over a channel that both trust. `repr` does not show the secret."""

    admission: Admission
    secret: bytes
    url: str | None = None
    """Where the issuing authority answers, as `https://host:port`; None if the party is told otherwise."""

    def __post_init__(self) -> None:
        if self.url is not None and not _URL.fullmatch(self.url):
            msg = "an issuing authority's URL is written https://host:port, without a path; fix --url"
            raise EnrolmentError(msg)

    @property
    def root_fingerprint(self) -> str:
        """SHA-256 of the root's certificate: whatever chain the party is shown must end there."""
        return self.admission.root

    def text(self) -> str:
        """Return one line of text. Secret."""
        body = {"admission": self.admission.to_json(), "secret": self.secret.hex(), "url": self.url}
        return _PREFIX + base64.urlsafe_b64encode(_text(body).encode()).decode().rstrip("=")

    @classmethod
    def parse(cls, text: str) -> Self:
        """The inverse of `text`, with white space around it. Raises `EnrolmentError`, which shows nothing of it.

        Whether the root signed the admission shows once the root is known: `Admission.verify`.
        """
        line = text.strip()
        fields: Any = None
        if line.startswith(_PREFIX) and len(line) <= 2 * _MAX_BYTES:
            body = line.removeprefix(_PREFIX)
            try:
                fields = _parse(base64.b64decode(body + "=" * (-len(body) % 4), altchars=b"-_", validate=True))
            except (binascii.Error, ValueError):
                fields = None
        try:
            token = cls(Admission.from_json(fields["admission"]), bytes.fromhex(fields["secret"]), fields["url"])
            whole = token.text() == line and len(token.secret) == SECRET_BYTES
        except (CertificateError, EnrolmentError, KeyError, TypeError, ValueError):
            whole = False
        if not whole:
            msg = (
                f"this is no whole token; it is one line that begins with {_PREFIX}: copy all of it from what"
                " `fedward-authority admit` printed"
            )
            raise EnrolmentError(msg)
        return token

    def __repr__(self) -> str:
        return f"Token({self.admission.subject})"


def secret_digest(secret: bytes) -> str:
    """SHA-256 of a token's secret, lowercase hex, as the admission carries it."""
    return hashlib.sha256(secret).hexdigest()


def _text(content: object) -> str:
    return json.dumps(content, sort_keys=True, separators=(",", ":"))


def _parse(content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None


def _octets(content: bytes) -> bytes:
    """DER octet string (X.690, 8.7)."""
    length = len(content)
    if length < _LONG_FORM:
        return bytes([_OCTET_STRING, length]) + content
    size = (length.bit_length() + 7) // 8
    return bytes([_OCTET_STRING, _LONG_FORM | size]) + length.to_bytes(size, "big") + content
