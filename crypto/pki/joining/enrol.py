"""A party redeems its token: key on site, request, certificate, authorities and lists.

Guarantees: nothing secret is sent before the service has shown a certificate under the very root whose fingerprint the
token carries, and no other root is taken from it: whoever has stolen its key could send one of their own. The key never
leaves the folder, and a second try goes on with the key of the first. Files appear only after all of them were checked
together, so a folder has a certificate that counts or none.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from crypto.errors import CertificateError, EnrolmentError
from crypto.pki.admission import Token
from crypto.pki.certificates import Credential
from crypto.pki.chain import Bundle
from crypto.pki.enrolment import KEY_FILE, REQUEST_FILE, create_request, request_of
from crypto.pki.identity import Subject
from crypto.pki.joining.link import Link, unverified
from crypto.pki.key_files import open_key, replace
from crypto.pki.revocation import RevocationLists, of_these
from crypto.pki.standing import LISTS_FILE

CERTIFICATE_FILE = "certificate.pem"
AUTHORITY_FILE = "authority.pem"


@dataclass(frozen=True)
class Enrolled:
    """What became of a token."""

    subject: Subject
    hosts: tuple[str, ...]
    key: str
    """SHA-256 of the public key (DER), lowercase hex."""
    ends: datetime
    url: str


def enrol(
    folder: Path, token: Token, *, url: str | None = None, proxy: str | None = None, passphrase: bytes | None = None
) -> Enrolled:
    """Redeem a token into a folder. `url` goes before the token's own. `passphrase` protects the key, if given.

    Raises `EnrolmentError` and `CertificateError`: no URL, not reachable, another root, refused, files that are there.
    """
    at = url or token.url
    if at is None:
        msg = "the token names no issuing authority; give its URL with --authority https://host:port"
        raise EnrolmentError(msg)
    if (folder / CERTIFICATE_FILE).exists():
        msg = f"{CERTIFICATE_FILE} exists already; a running program renews it, and a new party needs a new folder"
        raise EnrolmentError(msg)
    shown = Bundle.read(unverified(at, proxy)).under([token.root_fingerprint])
    root = shown.root(token.root_fingerprint)
    if root is None:
        msg = (
            f"the service at {at} does not know the root that made the token (SHA-256 {token.root_fingerprint}), so"
            " nothing was sent; check the URL, and that the token is of this consortium"
        )
        raise EnrolmentError(msg)
    token.admission.verify(root.certificate)
    link = Link(at, shown.pem, proxy)
    asked = token.admission
    if not (folder / KEY_FILE).exists():
        create_request(folder, asked.subject, asked.hosts, passphrase=passphrase)
    key_pem = open_key((folder / KEY_FILE).read_bytes(), passphrase)
    request_pem, key = request_of(key_pem, asked.subject, asked.hosts)
    if asked.key not in (None, key):
        msg = (
            f"the token is for the key with SHA-256 {asked.key}, and {KEY_FILE} has {key}; enrol in the folder whose"
            " key you told the authority, or ask it for another token"
        )
        raise EnrolmentError(msg)
    replace(folder / REQUEST_FILE, request_pem)
    certificate_pem = link.enroll(request_pem, token.text())
    bundle_pem = link.bundle()
    _, lists_pem = link.lists()
    if lists_pem is None:
        msg = f"the service at {at} hands out no revocation lists"
        raise EnrolmentError(msg)
    bundle = Bundle.read(bundle_pem).under([token.root_fingerprint])
    if not bundle.roots:
        msg = f"the service at {at} changed its root while it answered; try again"
        raise EnrolmentError(msg)
    lists_pem = of_these(lists_pem, bundle)
    lists = RevocationLists.read(lists_pem, bundle)
    credential = Credential(
        certificate_pem=certificate_pem, key_pem=key_pem, authority_pem=bundle.pem, lists=lambda: lists
    )
    if credential.trust.examine(certificate_pem).subject != asked.subject:
        msg = f"the service at {at} certified another party than {asked.subject}; tell the authority"
        raise CertificateError(msg)
    replace(folder / AUTHORITY_FILE, bundle.pem)
    replace(folder / LISTS_FILE, lists_pem)
    replace(folder / CERTIFICATE_FILE, certificate_pem)
    return Enrolled(asked.subject, asked.hosts, key, credential.ends, at)
