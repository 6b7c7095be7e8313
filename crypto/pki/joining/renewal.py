"""Keeps a running program's certificate and revocation lists fresh, and warns while it cannot.

Guarantees: a certificate is renewed with the same key from a third of its life on, or sooner until the root has
named its key, and the new file takes the place of
the old one whole; who holds a `Credential` uses it from then on. Lists and issuing authorities are fetched all the time
and taken only if they count under the roots that this party has: a new root never comes over the wire, and an older
list takes nothing back that a newer one revoked, also after a restart. Whatever fails is told and tried again, and
nothing that was there is lost.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Self

from crypto.errors import CertificateError, EnrolmentError
from crypto.pki.certificates import Credential
from crypto.pki.chain import Authority, Bundle
from crypto.pki.enrolment import request_of
from crypto.pki.joining.link import Link
from crypto.pki.key_files import read_passphrase, replace
from crypto.pki.reading import hosts_in, parse_certificate, subject_of, valid
from crypto.pki.revocation import RevocationList, RevocationLists, joined, of_these
from crypto.pki.standing import LISTS_FILE, CertificateStanding

RENEW_FROM = 1 / 3
"""Of a certificate's life."""
WARN_FROM = 2 / 3
"""Of a certificate's or a list's time. Of a list of months the last two weeks are enough."""
_LAST = timedelta(days=14)
Listed = tuple[Authority, RevocationList]
"""An authority and a list of it."""
ADMISSION_NOTICE = timedelta(days=30)
UNNAMED_AGAIN = timedelta(hours=2)
"""Pause between two renewals of a certificate whose admission does not name its key: when the root has named it, others
who have not met this party accept it."""
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
    memory: Path | None = None
    """The memory of other parties' keys (`known_keys`); None if this party keeps none."""

    @classmethod
    def of(  # noqa: PLR0917  # the files of a configuration, in its order
        cls,
        certificate: Path,
        key: Path,
        authority: Path,
        lists: Path | None,
        passphrase: Path | None = None,
        memory: Path | None = None,
    ) -> Self:
        """The lists lie beside the authorities if nothing else is said."""
        return cls(certificate, key, authority, lists or authority.parent / LISTS_FILE, passphrase, memory)


@dataclass(frozen=True)
class Times:
    """Until when what a party holds counts. Times are UTC; `lists` is None if it keeps none."""

    certificate: datetime
    lists: datetime | None

    def __str__(self) -> str:
        lists = "" if self.lists is None else f", revocation lists until {self.lists:%Y-%m-%d %H:%M} UTC"
        return f"certificate until {self.certificate:%Y-%m-%d %H:%M} UTC{lists}"


def link_for(credential: Credential, url: str | None, proxy: str | None = None) -> Callable[[], Link] | None:
    """Return the way to the issuing authority, under the authorities that are trusted then; None without an URL."""
    if url is None:
        return None
    return lambda: Link(url, credential.trust.bundle.pem, proxy)


def live_lists(credential: Credential, now: datetime) -> list[Listed]:
    """Return the newest revocation list of each authority, the first to be stale first; none if the party keeps none.

    An authority that has ended, or that its root revoked, makes no lists any more.
    """
    standing = credential.trust.source()
    bundle, lists = standing.bundle, standing.lists
    if lists is None:
        return []
    gone = {
        one.fingerprint
        for one in bundle.all
        if one.ends < now or (one.above and lists.revoked(one.above, one.certificate.serial_number))
    }
    pairs = [(one, lists.newest(one)) for one in bundle.all if one.fingerprint not in gone]
    return sorted(((one, newest) for one, newest in pairs if newest is not None), key=lambda pair: pair[1].until)


def fades(one: RevocationList, now: datetime) -> bool:
    """Say whether a list should have been made anew by now."""
    return due(one.since, one.until, now, WARN_FROM) and one.until - now < _LAST


def due(begins: datetime, ends: datetime, now: datetime, share: float = RENEW_FROM) -> bool:
    """Say whether that share of a certificate's life is over."""
    return now >= begins + (ends - begins) * share


def fetch(files: Files, link: Link, tag: str | None = None) -> str | None:
    """Fetch lists and issuing authorities, unless the lists are those of `tag`; return their tag.

    Nothing is written but what counts under the roots that this party has. Lists that this party has and that say more
    than those that are offered stay. Raises `CertificateError`, also if the authority has a root more than this party:
    what the others vouch for was taken then; `EnrolmentError`.
    """
    tag_now, lists_pem = link.lists(tag if files.lists.exists() else None)
    if lists_pem is None:
        return tag
    kept = files.lists.read_bytes() if files.lists.exists() else b""
    merged, lists_pem, fault = _counting(files.authority, link, lists_pem, kept)
    if merged != _bundle(files.authority):
        replace(files.authority, merged.pem)
    replace(files.lists, lists_pem)
    if fault is not None:
        raise CertificateError(fault)
    return tag_now


def look(authority: Path, url: str, proxy: str | None = None) -> CertificateStanding:
    """Return authorities and lists as the issuing authority hands them out now. Nothing is written.

    `authority` has this party's roots. Raises `CertificateError` as `fetch`, `EnrolmentError`.
    """
    link = Link(url, _bundle(authority).pem, proxy)
    merged, lists_pem, fault = _counting(authority, link, link.lists()[1] or b"", b"")
    if fault is not None:
        raise CertificateError(fault)
    return CertificateStanding(merged, RevocationLists.read(lists_pem, merged))


def _counting(authority: Path, link: Link, lists_pem: bytes, kept: bytes) -> tuple[Bundle, bytes, str | None]:
    """Return the authorities and lists that count under this party's roots, and a fault if there are roots more."""
    own, offered = _bundle(authority), Bundle.read(link.bundle())
    strangers = [root.name for root in offered.roots if own.root(root.fingerprint) is None]
    known = offered.under([root.fingerprint for root in own.roots])
    merged = Bundle.read(own.roots_pem + b"".join(one.pem for one in (*own.issuing, *known.issuing)))
    if strangers:
        lists_pem = of_these(lists_pem, merged)
    lists_pem = joined(lists_pem, kept, merged)
    fault = (
        f"{link.url} offers roots that this party does not have ({', '.join(strangers)}), and a root never comes over"
        f" the wire; ask the authority's keeper, then put it into {authority.name}"
    )
    return merged, lists_pem, fault if strangers else None


def load(files: Files, url: str | None, proxy: str | None = None, *, keeps: bool = False) -> Credential:
    """Load a party's credential; if the lists are missing or stale, fetch them first, if there is an `url`.

    With `keeps` this program keeps the memory of keys: whoever runs for long, and not a command beside it. Raises
    `CertificateError`.
    """
    lists = files.lists if files.lists.exists() else None
    try:
        return _credential(files, lists, keeps=keeps)
    except CertificateError as first:
        if url is None:
            raise
        why = ""
        try:
            fetch(files, Link(url, _bundle(files.authority).pem, proxy))
        except (EnrolmentError, CertificateError) as second:
            why = f". No newer lists could be fetched: {second}"
        try:
            return _credential(files, files.lists if files.lists.exists() else None, keeps=keeps)
        except CertificateError as last:
            raise CertificateError(f"{first}{why}" if why else str(last)) from None


def _credential(files: Files, lists: Path | None, *, keeps: bool) -> Credential:
    return Credential.load(
        files.certificate,
        files.key,
        files.authority,
        lists,
        passphrase=files.passphrase,
        memory=files.memory,
        keeps=keeps,
    )


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
        self._next_warning: dict[str, datetime] = {}
        self._said: dict[str, str] = {}

    def run(self, stop: threading.Event, pace: float) -> None:
        """Look at once and then every `pace` seconds, until told to stop."""
        while not stop.is_set():
            try:
                self.look()
            except Exception as fault:  # noqa: BLE001  # a fault of one look must not end the certificate silently
                self._tell_once("renewal", f"renewal failed: {type(fault).__name__}: {fault}")
            stop.wait(pace)

    def look(self) -> None:
        """Fetch lists and authorities, renew if it is time, tell the times, warn of what ends soon."""
        now = self._clock()
        began = self._credential.trust.keys.just_begun()
        if began is not None:
            self._tell("info", began)
        self._attempt("lists", self._fetch)
        wanted = due(*valid(self._credential.certificate_pem), now) or not self._credential.named
        if wanted and (self._next_try is None or now >= self._next_try):
            self._next_try = now + AGAIN * (1 + random.random() / 2)  # noqa: S311  # no secret
            self._attempt("certificate", self._renew)
        lists = live_lists(self._credential, now)
        self._on_times(Times(self._credential.ends, lists[0][1].until if lists else None))
        for what, warning in self._warnings(lists, now):
            if now >= self._next_warning.get(what, now):
                self._next_warning[what] = now + timedelta(days=1)
                self._tell("warning", warning)

    def _warnings(self, lists: list[Listed], now: datetime) -> Iterator[tuple[str, str]]:
        """Yield what ends soon, and a sentence about it."""
        begins, ends = valid(self._credential.certificate_pem)
        if due(begins, ends, now, WARN_FROM):
            mend = (
                "have it signed again (`fedward-authority sign`)"
                if self._link is None
                else f"it is renewed as soon as {self._link().url} answers and agrees"
            )
            yield "certificate", f"the certificate expires on {ends:%Y-%m-%d %H:%M} UTC; {mend}"
        admitted = self._credential.admitted_until
        if admitted is not None and admitted - now < ADMISSION_NOTICE:
            text = (
                f"the authority has admitted this party until {admitted:%Y-%m-%d %H:%M} UTC, and renews nothing after"
                " that; ask its keeper to admit everybody again (`fedward-authority readmit`)"
            )
            yield "admission", text
        for authority, one in lists:
            if fades(one, now):
                text = (
                    f"the revocation list of {authority.kind} {authority.name!r} is fresh until"
                    f" {one.until:%Y-%m-%d %H:%M} UTC, and nobody under that authority is accepted from then on; tell"
                    " its keeper, who makes the next one (`fedward-authority crl`)"
                )
                yield authority.fingerprint, text

    def _attempt(self, what: str, work: Callable[[Link], None]) -> None:
        """Do it, and tell a failure once until it works again or fails in another way."""
        if self._link is None:
            return
        try:
            work(self._link())
        except (EnrolmentError, CertificateError) as error:
            self._tell_once(what, f"{what} not renewed: {error}")
        else:
            if self._said.pop(what, None) is not None:
                self._tell("info", f"{what} renewed again")

    def _tell_once(self, what: str, warning: str) -> None:
        if self._said.get(what) != warning:
            self._said[what] = warning
            self._tell("warning", warning)

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
        self._next_try = None if credential.named else self._clock() + UNNAMED_AGAIN
        self._next_warning.pop("certificate", None)
        self._tell("info", f"the certificate was renewed until {credential.ends:%Y-%m-%d %H:%M} UTC")

    def _chain(self) -> Path:
        """The certificate and its issuing authority's, in a file: ssl reads them from files alone."""
        path = self._files.certificate.with_name(".chain.pem")
        replace(path, self._credential.chain_pem)
        return path
