"""Keeps a running program's certificate and revocation lists fresh, and warns while it cannot.

Guarantees: a certificate is renewed with the same key from a third of its life on, and the new file takes the place of
the old one whole; who holds a `Credential` uses it from then on. Lists and issuing authorities are fetched all the time
and taken only if they count under the roots that this party has: a new root never comes over the wire. Whatever
fails is told and tried again, and nothing that was there is lost.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Self

from crypto.errors import CertificateError, EnrolmentError
from crypto.pki.certificates import Credential
from crypto.pki.chain import Bundle
from crypto.pki.enrolment import request_of
from crypto.pki.joining.link import Link
from crypto.pki.key_files import read_passphrase, replace
from crypto.pki.reading import hosts_in, parse_certificate, subject_of
from crypto.pki.revocation import RevocationLists
from crypto.pki.standing import LISTS_FILE, Standing

RENEW_FROM = 1 / 3
"""Of a certificate's life."""
WARN_FROM = 2 / 3
AGAIN = timedelta(minutes=10)
"""Pause between two tries to renew, stretched by up to half at random so that silos do not come together."""


@dataclass(frozen=True)
class Files:
    """Where a party keeps what is renewed."""

    certificate: Path
    key: Path
    authority: Path
    lists: Path
    passphrase: Path | None = None
    """File with the key's passphrase; None if it has none."""

    @classmethod
    def of(
        cls, certificate: Path, key: Path, authority: Path, lists: Path | None, passphrase: Path | None = None
    ) -> Self:
        """The lists lie beside the authorities if nothing else is said."""
        return cls(certificate, key, authority, lists or authority.parent / LISTS_FILE, passphrase)


@dataclass(frozen=True)
class Times:
    """Until when what a party holds counts. Times are UTC; `lists` is None if it keeps none."""

    certificate: datetime
    lists: datetime | None


def link_for(credential: Credential, url: str | None, proxy: str | None = None) -> Callable[[], Link] | None:
    """Return the way to the issuing authority, under the roots that are trusted at the time; None without an URL."""
    if url is None:
        return None
    return lambda: Link(url, credential.trust.bundle.roots_pem, proxy)


def lists_until(credential: Credential) -> datetime | None:
    """When the first of the party's revocation lists is stale, UTC; None if it keeps none."""
    standing = credential.trust.source()
    if standing.lists is None:
        return None
    newest = [standing.lists.newest(one) for one in standing.bundle.all]
    return min((one.until for one in newest if one is not None), default=None)


def due(begins: datetime, ends: datetime, now: datetime, share: float = RENEW_FROM) -> bool:
    """Say whether that share of a certificate's life is over."""
    return now >= begins + (ends - begins) * share


def fetch(files: Files, link: Link, tag: str | None = None) -> str | None:
    """Fetch lists and issuing authorities, unless the lists are those of `tag`; return their tag.

    Nothing is written unless all of it counts under the roots that this party has. Raises `CertificateError`,
    `EnrolmentError`.
    """
    found, lists_pem = link.lists(tag)
    if lists_pem is None:
        return tag
    merged = _counting(files.authority, link, lists_pem).bundle
    if merged != _bundle(files.authority):
        replace(files.authority, merged.pem)
    replace(files.lists, lists_pem)
    return found


def look(authority: Path, url: str, proxy: str | None = None) -> Standing:
    """Return authorities and lists as the issuing authority hands them out now. Nothing is written.

    `authority` has this party's roots. Raises `CertificateError`, `EnrolmentError`.
    """
    link = Link(url, _bundle(authority).roots_pem, proxy)
    return _counting(authority, link, link.lists()[1] or b"")


def _counting(authority: Path, link: Link, lists_pem: bytes) -> Standing:
    """Return what counts under this party's roots. Raises `CertificateError` if any of it does not."""
    own, offered = _bundle(authority), Bundle.read(link.bundle())
    strangers = [root.name for root in offered.roots if own.root(root.fingerprint) is None]
    if strangers:
        msg = (
            f"{link.url} offers roots that this party does not have ({', '.join(strangers)}), and a root never comes"
            f" over the wire; ask the authority's keeper, then put it into {authority.name}"
        )
        raise CertificateError(msg)
    merged = Bundle.read(own.roots_pem + b"".join(one.pem for one in (*own.issuing, *offered.issuing)))
    return Standing(merged, RevocationLists.read(lists_pem, merged))


def load(files: Files, url: str | None, proxy: str | None = None) -> Credential:
    """Load a party's credential; if the lists are missing or stale, fetch them first, if there is an `url`.

    Raises `CertificateError`.
    """
    lists = files.lists if files.lists.exists() else None
    try:
        return _credential(files, lists)
    except CertificateError as first:
        if url is None:
            raise
        try:
            fetch(files, Link(url, _bundle(files.authority).roots_pem, proxy))
        except (EnrolmentError, CertificateError) as second:
            msg = f"{first}. No newer lists could be fetched: {second}"
            raise CertificateError(msg) from None
        return _credential(files, files.lists)


def _credential(files: Files, lists: Path | None) -> Credential:
    return Credential.load(files.certificate, files.key, files.authority, lists, passphrase=files.passphrase)


def _bundle(path: Path) -> Bundle:
    try:
        return Bundle.read(path.read_bytes())
    except OSError as error:
        msg = f"{path.name} cannot be read ({error.strerror}); fix its path or its owner"
        raise CertificateError(msg) from None


class Renewal:
    """Renews for one party. `look` does once what the thread does all the time."""

    def __init__(
        self,
        credential: Credential,
        files: Files,
        link: Callable[[], Link] | None,
        *,
        tell: Callable[[str, str], object],
        on_times: Callable[[Times], object],
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`link` gives the issuing authority under the roots of now. Without it nothing is fetched or renewed.

        `tell` gets "info" or "warning" and a sentence.
        """
        self._credential, self._files, self._link = credential, files, link
        self._tell, self._on_times, self._clock = tell, on_times, clock
        self._tag: str | None = None
        self._next_try: datetime | None = None
        self._next_warning: datetime | None = None
        self._said: dict[str, str] = {}

    def run(self, stop: threading.Event, pace: float) -> None:
        """Look at once and then every `pace` seconds, until told to stop."""
        while not stop.is_set():
            self.look()
            stop.wait(pace)

    def look(self) -> None:
        """Fetch lists and authorities, renew if it is time, tell the times, warn."""
        now = self._clock()
        self._attempt("lists", self._fetch)
        certificate = parse_certificate(self._credential.certificate_pem)
        begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
        if due(begins, ends, now) and (self._next_try is None or now >= self._next_try):
            self._next_try = now + AGAIN * (1 + random.random() / 2)  # noqa: S311  # no secret
            self._attempt("certificate", self._renew)
        ends = self._credential.ends
        self._on_times(Times(ends, lists_until(self._credential)))
        if due(begins, ends, now, WARN_FROM) and (self._next_warning is None or now >= self._next_warning):
            self._next_warning = now + timedelta(days=1)
            mend = (
                "have it signed again (`fedward-authority sign`)"
                if self._link is None
                else f"it is renewed as soon as {self._link().url} answers and agrees"
            )
            self._tell("warning", f"the certificate expires on {ends:%Y-%m-%d %H:%M} UTC; {mend}")

    def _attempt(self, what: str, work: Callable[[Link], None]) -> None:
        """Do it, and tell a failure once until it works again or fails in another way."""
        if self._link is None:
            return
        try:
            work(self._link())
        except (EnrolmentError, CertificateError) as error:
            if self._said.get(what) != str(error):
                self._said[what] = str(error)
                self._tell("warning", f"{what} not renewed: {error}")
        else:
            if self._said.pop(what, None) is not None:
                self._tell("info", f"{what} renewed again")

    def _fetch(self, link: Link) -> None:
        self._tag = fetch(self._files, link, self._tag)

    def _renew(self, link: Link) -> None:
        credential = self._credential
        held = parse_certificate(credential.certificate_pem)
        request_pem, _ = request_of(credential.key_pem, subject_of(held), hosts_in(held))
        secret = None if self._files.passphrase is None else read_passphrase(self._files.passphrase)
        renewed = link.reenroll(request_pem, self._chain(), self._files.key, secret)
        before = credential.certificate_pem
        replace(self._files.certificate, renewed)
        if credential.certificate_pem == before:
            replace(self._files.certificate, before)
            msg = "the authority's certificate cannot be used, so the one before it was put back; see the log"
            raise CertificateError(msg)
        self._next_try = self._next_warning = None
        self._tell("info", f"the certificate was renewed until {credential.ends:%Y-%m-%d %H:%M} UTC")

    def _chain(self) -> Path:
        """The certificate and its issuing authority's, in a file: ssl reads them from files alone."""
        path = self._files.certificate.with_name(".chain.pem")
        replace(path, self._credential.chain_pem)
        return path
