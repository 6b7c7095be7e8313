"""Revocation lists (X.509 CRLs, RFC 5280): what each authority has taken back, and until when its word is fresh.

A party keeps the lists of all its authorities in one file, `crls.pem` beside `authority.pem`.

Guarantees: a list counts only if an authority of the bundle signed it, for all of its certificates, with a number and a
`nextUpdate`. Several lists of one authority are read together: what one of them revokes is revoked, from the earliest
date that one of them gives, so an older list never undoes a newer one, and archived lists tell what was revoked when.
A list from the future makes nothing fresh, and none does so for longer than `LONGEST` or `LONGEST_ONLINE`, whatever it
says: who has stolen a key must not be able to sign one list for a hundred years. `standing` reads the file anew as soon
as it changes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from crypto.errors import CertificateError
from crypto.pki.chain import Authority, Bundle
from crypto.pki.reading import common_name

_MAX_BYTES = 1 << 24
_PEM = re.compile(rb"-----BEGIN X509 CRL-----.*?-----END X509 CRL-----", re.DOTALL)
CLOCK_SKEW = timedelta(minutes=5)
"""How far the clocks of an authority and of a party may differ."""
LONGEST = timedelta(days=400)
"""How long a root's list is fresh at most. It is made by hand."""
LONGEST_ONLINE = timedelta(days=31)
"""The same of an issuing authority, which makes one every day."""


@dataclass(frozen=True)
class RevocationList:
    """One list of one authority."""

    number: int
    """Counts the authority's lists, from 1."""
    since: datetime
    """When it was made (`thisUpdate`)."""
    until: datetime
    """When the authority makes the next one at the latest (`nextUpdate`). From then on this one is stale."""
    revoked: Mapping[int, datetime] = field(repr=False)
    """Serial number to the date from which it counts for nothing. An admission has a serial number as well."""


@dataclass(frozen=True)
class RevocationLists:
    """The lists of some authorities."""

    of: Mapping[str, tuple[RevocationList, ...]]
    """By the authority's fingerprint, the newest list last."""

    @classmethod
    def read(cls, pem: bytes, bundle: Bundle) -> RevocationLists:
        """Read the PEM lists of a text of at most 16 MiB.

        Raises `CertificateError`, which names every list that does not count, and why.
        """
        blocks = _PEM.findall(pem) if len(pem) <= _MAX_BYTES else []
        if not blocks or len(blocks) != pem.count(b"-----BEGIN"):
            msg = (
                "the file holds no revocation lists, is cut short or holds something else; give the lists that"
                " `fedward-authority crl` wrote, one after the other"
            )
            raise CertificateError(msg)
        lists: dict[str, list[RevocationList]] = {}
        faults = []
        for position, one in enumerate(blocks, 1):
            try:
                signers, read = _read(one, bundle)
            except CertificateError as error:
                faults.append(f"list {position} {error}")
            else:
                for authority in signers:
                    lists.setdefault(authority.fingerprint, []).append(read)
        if faults:
            raise CertificateError("; ".join(faults))
        return cls({key: _in_order(some) for key, some in lists.items()})

    def merged(self, older: RevocationLists) -> RevocationLists:
        """Return these lists and the older ones together."""
        keys = {*self.of, *older.of}
        return RevocationLists({key: _in_order([*older.of.get(key, ()), *self.of.get(key, ())]) for key in keys})

    def lacks(self, authority: Authority, other: RevocationList) -> bool:
        """Say whether another list of the authority is newer than all of its lists here, or revokes more than they."""
        newest = self.newest(authority)
        if newest is None or other.number > newest.number:
            return True
        known = {serial: self.revoked(authority, serial) for serial in other.revoked}
        return any(date is None or other.revoked[serial] < date for serial, date in known.items())

    def newest(self, authority: Authority, at: datetime | None = None) -> RevocationList | None:
        """Return the authority's newest list, or None if it has none here.

        With `at`, lists that are from the future of that time are passed over.
        """
        lists = reversed(self.of.get(authority.fingerprint, ()))
        return next((one for one in lists if at is None or one.since <= at + CLOCK_SKEW), None)

    def revoked(self, authority: Authority, serial: int) -> datetime | None:
        """Return from when on a serial number of the authority counts for nothing; None if it was not revoked."""
        dates = [one.revoked[serial] for one in self.of.get(authority.fingerprint, ()) if serial in one.revoked]
        return min(dates, default=None)

    def require_fresh(self, authority: Authority, at: datetime, *, now: datetime | None = None) -> None:
        """Raise `CertificateError` unless the authority's newest list was not stale at that time.

        `now` (aware) defaults to the clock. A list from the future makes nothing fresh, though what it revokes counts.
        """
        clock = max(at, now or datetime.now(UTC))
        newest = self.newest(authority, clock) or self.newest(authority)
        mend = "; get the newest list of that authority (`fedward-authority crl`) and put it into crls.pem"
        if newest is None:
            msg = f"there is no revocation list of {authority.kind} {authority.name!r}{mend}"
            raise CertificateError(msg)
        if newest.since > clock + CLOCK_SKEW:
            msg = (
                f"the revocation list of {authority.kind} {authority.name!r} is from {newest.since:%Y-%m-%d %H:%M} UTC,"
                f" which is the future; correct this machine's clock, or, if it is right{mend.replace(';', ',')}"
            )
            raise CertificateError(msg)
        if at > newest.until:
            msg = (
                f"the revocation list of {authority.kind} {authority.name!r} is stale: the next one was due on"
                f" {newest.until:%Y-%m-%d %H:%M} UTC{mend}"
            )
            raise CertificateError(msg)


def of_these(offered: bytes, bundle: Bundle) -> bytes:
    """Return the lists (PEM) of a text that are of the bundle's authorities. Others are of roots that it lacks."""
    kept = []
    for pem in _PEM.findall(offered):
        try:
            _read(pem, bundle)
        except CertificateError:
            continue
        kept.append(pem)
    return b"\n".join(kept) + b"\n"


def joined(offered: bytes, held: bytes, bundle: Bundle) -> bytes:
    """Return the lists (PEM) that are offered, and those of `held` that are newer or revoke more than they.

    So whoever hands out older lists, or ones from which something was removed, undoes no revocation. What counts for
    nothing in `held` is left out. Raises `CertificateError` as `RevocationLists.read` does.
    """
    lists, kept = RevocationLists.read(offered, bundle), [offered.rstrip()]
    for pem in _PEM.findall(of_these(held, bundle)):
        authorities, one = _read(pem, bundle)
        if any(lists.lacks(authority, one) for authority in authorities):
            kept.append(pem)
            lists = lists.merged(RevocationLists({authority.fingerprint: (one,) for authority in authorities}))
    text = b"\n".join(kept) + b"\n"
    RevocationLists.read(text, bundle)
    return text


def _in_order(lists: Sequence[RevocationList]) -> tuple[RevocationList, ...]:
    """Sort by number; the same list read twice counts once. Two of one number that differ both count."""
    each = {(one.number, one.since, one.until, tuple(sorted(one.revoked.items()))): one for one in lists}
    return tuple(each[key] for key in sorted(each))


def _read(pem: bytes, bundle: Bundle) -> tuple[list[Authority], RevocationList]:
    """Return the list, and who signed it: several, if the bundle has several certificates of that key."""
    try:
        crl = x509.load_pem_x509_crl(pem)
        issuer, number = crl.issuer, crl.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number
        whole = not any(one.critical for one in crl.extensions)
        until, since = crl.next_update_utc, crl.last_update_utc
        revoked = dict(_entries(crl))
    except (ValueError, TypeError, UnsupportedAlgorithm, x509.ExtensionNotFound, x509.DuplicateExtension):
        msg = "cannot be read, or has no number; take it anew from the authority"
        raise CertificateError(msg) from None
    name = common_name(issuer)
    signers = [one for one in bundle.all if _signed(crl, one)]
    if not signers:
        msg = f"of {name!r} was signed by no authority of authority.pem; take it out, or take the right authority.pem"
        raise CertificateError(msg)
    if not whole or len(revoked) != len(crl):
        msg = (
            f"of {name!r} is not for all certificates of that authority; have `fedward-authority crl` make a whole one"
        )
        raise CertificateError(msg)
    if until is None:
        msg = f"of {name!r} does not say when the next one comes; have `fedward-authority crl` make one that does"
        raise CertificateError(msg)
    longest = LONGEST if all(one.above is None for one in signers) else LONGEST_ONLINE
    return signers, RevocationList(number, since, min(until, since + longest), revoked)


def _entries(crl: x509.CertificateRevocationList) -> Iterator[tuple[int, datetime]]:
    """Yield what the list revokes. An entry with a critical extension speaks of another authority's certificate."""
    for entry in crl:
        if not any(one.critical for one in entry.extensions):
            yield entry.serial_number, entry.revocation_date_utc


def _signed(crl: x509.CertificateRevocationList, authority: Authority) -> bool:
    key = authority.certificate.public_key()
    if crl.issuer != authority.certificate.subject or not isinstance(key, ec.EllipticCurvePublicKey):
        return False
    return isinstance(crl.signature_hash_algorithm, hashes.SHA256) and crl.is_signature_valid(key)
