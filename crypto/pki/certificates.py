"""Certificates: whom the consortium's authorities vouch for, and signatures by those parties.

Guarantees: `Trust` returns an `Identity` only for an ECDSA P-256 certificate that a root of `authority.pem` issued, or
that an issuing authority under such a root issued with the root's own admission of this very party (`admission`). It is
valid at the time asked for, has the URIs of one `Subject` and the key usages of its role, and nobody in its chain was
revoked. Its key is the one that the admission names, or that this party knows to be the holder's (`known_keys`). If the
bundle holds an issuing authority, fresh revocation lists of every authority in the chain are required. Each way of
failing has its own message. A `Credential` exists only if its certificate, key and authorities belong together. Host
names are left to TLS.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Self, cast

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, ObjectIdentifier

from crypto.errors import CertificateError, SignatureRefused, UnknownAuthorityError
from crypto.pki import admission as admissions
from crypto.pki.admission import Admission
from crypto.pki.chain import Authority, Bundle
from crypto.pki.hosts import hosts_of
from crypto.pki.identity import Identity, Role, Subject
from crypto.pki.key_files import OPEN_TO_OTHERS, open_key, own_secret, read_key, read_passphrase
from crypto.pki.known_keys import PEERS_FILE, KnownKeys, Shown
from crypto.pki.reading import (
    extension,
    key_fingerprint,
    parse_certificate,
    parse_certificates,
    private_extension,
    subject_of,
    to_pem,
)
from crypto.pki.revocation import RevocationLists
from crypto.pki.standing import LISTS_FILE, CertificateStanding, Stamp, StandingFiles, stamp

Lists = Callable[[], RevocationLists]
"""Gives the revocation lists that are in force when it is called."""
Source = Callable[[], CertificateStanding]
"""Gives authorities and lists as they stand when it is called."""
_MOST_REMEMBERED = 1024
"""Certificates: four for each of 256 silos."""


KEY_USES: dict[Role, ObjectIdentifier] = {
    role: ExtendedKeyUsageOID.SERVER_AUTH if role is Role.COORDINATOR else ExtendedKeyUsageOID.CLIENT_AUTH
    for role in Role
}
"""The extended key usage that a certificate of each role carries: silos and people call, coordinators answer."""
Roles = Role | frozenset[Role]
"""One role, or several of which a certificate must have one."""


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


@dataclass(frozen=True)
class Holder:
    """What a certificate says, as far as no time changes it. Its signatures and its admission were checked."""

    certificate: x509.Certificate
    subject: Subject
    issuer: Authority
    admission: tuple[Admission, Authority] | None
    """The word for a certificate of an issuing authority, and the root that gave it; None if a root issued it."""

    @property
    def identity(self) -> Identity:
        """Role and name."""
        return self.subject.identity

    @cached_property
    def shown(self) -> Shown | None:
        """The key with what the admission says about it; None if a root issued the certificate, for this key."""
        if self.admission is None:
            return None
        admission, key = self.admission[0], _key_of(self.certificate)
        return Shown(
            self.identity.uri, admission.digest, admission.number, key, admission.key is not None, admission.made
        )

    @property
    def ends(self) -> datetime:
        """When the first of the certificate and the authorities above it expires."""
        return min(one.not_valid_after_utc for one in (self.certificate, *(a.certificate for a in self._authorities())))

    def _authorities(self) -> Iterator[Authority]:
        yield self.issuer
        if self.issuer.above is not None:
            yield self.issuer.above
        if self.admission is not None and self.admission[1] is not self.issuer.above:
            yield self.admission[1]

    def require_time(self, at: datetime) -> None:
        """Raise `CertificateError` unless the certificate and all authorities above it are valid at that time."""
        mend = "make a new request and have it signed"
        if self.admission is not None:
            mend = "if this machine's clock is right, ask the authority for a new token and enrol again"
        _check_time(self.certificate, at, f"the certificate of {self.identity}", mend)
        for one in self._authorities():
            mend = "the consortium needs a new authority" if one.above is None else "the root must delegate anew"
            _check_time(one.certificate, at, f"{one.kind} {one.name!r}", mend)

    def links(self) -> Iterator[tuple[Authority, int, str]]:
        """Yield each authority with the serial number of what it vouched for, and what messages call that."""
        yield self.issuer, self.certificate.serial_number, f"the certificate of {self.identity}"
        if self.issuer.above is not None:
            name = f"{self.issuer.kind} {self.issuer.name!r}"
            yield self.issuer.above, self.issuer.certificate.serial_number, name
        if self.admission is not None:
            admission, root = self.admission
            yield root, admission.serial, f"the admission of {self.identity}"


class Trust:
    """What the consortium's authorities vouch for."""

    def __init__(
        self,
        authorities: bytes | Source,
        lists: Lists | None = None,
        *,
        began: datetime | None = None,
        keys: KnownKeys | None = None,
    ) -> None:
        """Take the authorities' own certificates (PEM) and the revocation lists if there are any, or a source of both.

        `keys` is whose keys this party knows: without it, it knows nobody's. `began` is for `begun`. Raises
        `CertificateError` if a certificate is not an authority's, as `Bundle.read` does.
        """
        if isinstance(authorities, bytes):
            bundle = Bundle.read(authorities)
            self._source: Source = lambda: CertificateStanding(bundle, None if lists is None else lists())
        else:
            self._source = authorities
        self._began = began
        self.keys = keys or KnownKeys()
        """Whose keys this party knows, for another trust of the same party."""
        self._remembered: tuple[Bundle | None, dict[bytes, Holder]] = None, {}

    @classmethod
    def load(cls, authority: Path, lists: Path | None = None, *, memory: Path | None = None) -> Self:
        """Follow `authority.pem`, and `lists`, or else `crls.pem` beside it. Raises `CertificateError`.

        Whose keys are known stands in `peers.txt` beside `authority.pem`, and in the `memory` of this party, which is
        only read.
        """
        return cls(StandingFiles(authority, lists), keys=KnownKeys(memory, authority.parent / PEERS_FILE))

    @property
    def source(self) -> Source:
        """Whence this trust has its authorities, for another one."""
        return self._source

    @property
    def bundle(self) -> Bundle:
        """The authorities, as they stand now."""
        return self._source().bundle

    def begun(self, at: datetime) -> Trust:
        """Return this trust for work that began at that time (aware).

        What was valid then is valid until the work is over, so that a certificate which expires on the way disturbs
        nothing. What was revoked counts for nothing at once.
        """
        trust = Trust(self._source, began=at, keys=self.keys)
        trust._remembered = self._remembered
        return trust

    def tell_faults(self, tell: Callable[[str], object]) -> None:
        """Have `tell` called with a sentence if `authority.pem` or the lists change and cannot be read."""
        if isinstance(self._source, StandingFiles):
            self._source.on_fault = tell

    def examine(self, certificate_pem: bytes) -> Holder:
        """Return what the certificate says, checked but for time, role and revocation. Raises `CertificateError`."""
        holder = self.vouched(certificate_pem)
        if holder.shown is not None:
            self.keys.require(holder.shown)
        return holder

    def vouched(self, certificate_pem: bytes) -> Holder:
        """Return what the certificate says, if the authorities vouch for it, with whatever key the admission allows.

        For who has another way to know the key; everybody else asks `examine`. Raises `CertificateError`.

        What follows from the certificate and the authorities alone is computed once for both: a round asks for the same
        certificates thousands of times. No refusal is remembered, and nothing if the authorities change.
        """
        bundle = self.bundle
        by, holders = self._remembered
        if by is not bundle or len(holders) >= _MOST_REMEMBERED:
            holders = {}
            self._remembered = bundle, holders
        holder = holders.get(certificate_pem)
        if holder is None:
            holder = holders[certificate_pem] = self._vouched(bundle, certificate_pem)
        return holder

    def _vouched(self, bundle: Bundle, certificate_pem: bytes) -> Holder:
        certificate = parse_certificate(certificate_pem)
        issuer = bundle.issuer_of(certificate, _admitted_by(certificate))
        subject = subject_of(certificate)
        _check_usage(certificate, subject.identity)
        admission = None if issuer.above is None else _admission(bundle, certificate, subject, issuer.above)
        return Holder(certificate, subject, issuer, admission)

    def identify(
        self,
        certificate_pem: bytes,
        *,
        role: Roles | None = None,
        now: datetime | None = None,
        as_of: datetime | None = None,
    ) -> Identity:
        """Return whom the authorities certified.

        `now` (aware) defaults to the clock. `as_of` (aware) asks about the past: whether the certificate was valid then
        and had not been revoked by then. It needs lists that were not stale then, archived ones included. Raises
        `CertificateError` with a message of its own for each fault: another authority, no admission, expired, not yet
        valid, no identity, another role, a key or key usage that does not fit, revoked, no fresh revocation list.
        """
        return self.judge(self.examine(certificate_pem), role=role, now=now, as_of=as_of)

    def judge(
        self, holder: Holder, *, role: Roles | None = None, now: datetime | None = None, as_of: datetime | None = None
    ) -> Identity:
        """Return whose certificate it is, unless time, role or revocation forbid it. As `identify`."""
        at, identity = as_of or now or datetime.now(UTC), holder.identity
        holder.require_time(as_of or now or self._began or at)
        if role is not None:
            _require_role(identity, role)
        self._require_unrevoked(holder, at, now or datetime.now(UTC), past=as_of is not None)
        if as_of is None and holder.shown is not None:
            self.keys.require_newest(holder.shown)
        return identity

    def recognise(self, certificate_pem: bytes, role: Role) -> Identity:
        """Return whose certificate it is, and remember its key. Neither time nor revocation is judged.

        For what TLS has shown. Raises `CertificateError` as `examine` does, and for another role or a former key.
        """
        holder = self.examine(certificate_pem)
        _require_role(holder.identity, role)
        if holder.shown is not None:
            self.keys.require_newest(holder.shown)
        return holder.identity

    def ran_out(self, certificate_pem: bytes, *, now: datetime | None = None) -> datetime | None:
        """Return when the certificate, or an authority above it, expired; None if none has expired at `now`.

        Raises `CertificateError` as `examine` does.
        """
        ends = self.examine(certificate_pem).ends
        return ends if ends < (now or datetime.now(UTC)) else None

    def revoked(self, certificate_pem: bytes) -> datetime | None:
        """Return from when on the certificate counts for nothing, or None if neither it nor its chain was revoked.

        The lists need not be fresh. Raises `CertificateError` as `examine` does.
        """
        lists = self._source().lists
        if lists is None:
            return None
        links = self.examine(certificate_pem).links()
        dates = [lists.revoked(authority, serial) for authority, serial, _ in links]
        return min((date for date in dates if date is not None), default=None)

    def stolen(self, certificate_pem: bytes) -> datetime | None:
        """Return from when on a root says that the certificate counts for nothing; None if no root does.

        The dates of issuing authorities do not count: who has stolen one of their keys must not forgive. Raises
        `CertificateError` as `examine` does.
        """
        lists = self._source().lists
        if lists is None:
            return None
        links = self.examine(certificate_pem).links()
        dates = [lists.revoked(authority, serial) for authority, serial, _ in links if authority.above is None]
        return min((date for date in dates if date is not None), default=None)

    def verify(
        self,
        certificate_pem: bytes,
        message: bytes,
        signature: bytes,
        *,
        role: Roles | None = None,
        now: datetime | None = None,
        as_of: datetime | None = None,
    ) -> Identity:
        """Return who signed the message, by a certificate that `identify` accepts at `now`, or `as_of` a past time.

        A signature carries no time of its own. A caller who gives `as_of` relies on the time that the signer stated,
        and must say so to its users. Raises `CertificateError`, or `SignatureRefused` if the
        signature does not fit the bytes.
        """
        holder = self.examine(certificate_pem)
        identity = self.judge(holder, role=role, now=now, as_of=as_of)
        _require_fits(holder.certificate, identity, message, signature)
        return identity

    def verify_ever(self, certificate_pem: bytes, message: bytes, signature: bytes) -> Identity:
        """Return whose key signed the message, whether or not its certificate still counts, or counted then.

        For what a party checked when it kept it, and what can only bind that party more: with whatever key. Raises
        `CertificateError` as `examine` does, `SignatureRefused`.
        """
        holder = self.vouched(certificate_pem)
        _require_fits(holder.certificate, holder.identity, message, signature)
        return holder.identity

    def _require_unrevoked(self, holder: Holder, at: datetime, now: datetime, *, past: bool) -> None:
        standing = self._source()
        lists = standing.lists
        if lists is None:
            if standing.bundle.issuing:
                msg = (
                    "authority.pem holds an issuing authority, so revocation lists are required, and there are none;"
                    f" put the lists of every authority into {LISTS_FILE} beside it (`fedward-authority crl`)"
                )
                raise CertificateError(msg)
            return
        for authority, serial, what in holder.links():
            date = lists.revoked(authority, serial)
            if date is not None and (not past or date <= at):
                msg = f"{what} was revoked as of {date:%Y-%m-%d %H:%M} UTC; ask the authority why, and enrol again"
                raise CertificateError(msg)
            lists.require_fresh(authority, at, now=now)


@dataclass(frozen=True)
class _Own:
    """A party's own certificate, alone and with that of the issuing authority."""

    certificate_pem: bytes
    chain_pem: bytes
    ends: datetime
    admission: Admission | None


class Credential:
    """A party's own certificate and private key.

    One that was loaded from files follows them: a renewed certificate counts as soon as it lies there, if it is for the
    same party and the same key. Otherwise the certificate before it stays, and `tell_faults` is told.
    """

    def __init__(  # files, and what tests give in their place
        self,
        *,
        certificate_pem: bytes,
        key_pem: bytes,
        authority_pem: bytes | Source,
        lists: Lists | None = None,
        now: datetime | None = None,
        follows: Path | None = None,
        keys: KnownKeys | None = None,
    ) -> None:
        """Check that they belong together, at `now` (aware; defaults to the clock). Raises `CertificateError`.

        After the party's own certificate, `certificate_pem` may hold the issuing authority's, as TLS sends them.
        `follows` is the certificate's file, read anew as it changes. `keys` is whose keys the party knows.
        """
        self.key_pem, self.trust = key_pem, Trust(authority_pem, lists, keys=keys)
        self._file = follows
        self._stamp: Stamp = None
        self._told: Callable[[str], object] | None = None
        self._guard = threading.Lock()
        self.identity, self._own = self._check(certificate_pem, now)

    def _check(self, certificate_pem: bytes, now: datetime | None) -> tuple[Identity, _Own]:
        alone = _own_certificate(certificate_pem, self.trust.bundle)
        self._remember(alone)
        holder = self.trust.examine(alone)
        identity = self.trust.judge(holder, now=now)
        chain = alone
        if holder.issuer.above is not None:
            chain = alone.rstrip() + b"\n" + to_pem(holder.issuer.certificate)
        if self._key.public_key() != holder.certificate.public_key():
            msg = f"the private key does not belong to the certificate of {identity}; give the key of its request"
            raise CertificateError(msg)
        admission = None if holder.admission is None else holder.admission[0]
        return identity, _Own(alone, chain, holder.certificate.not_valid_after_utc, admission)

    def _remember(self, certificate_pem: bytes) -> None:
        """Tell the memory whose it is. Whether the certificate is good, `Trust` says next.

        Without an issuing authority nobody else's key can be put in a party's place, and there is nothing to remember.
        """
        if not self.trust.bundle.issuing:
            return
        certificate = parse_certificate(certificate_pem)
        value = private_extension(certificate, admissions.OID)
        made = None if value is None else Admission.from_extension(value).made
        key = key_fingerprint(self._key.public_key())
        self.trust.keys.begin(subject_of(certificate).identity, key, enrolled_before=made is None)

    @classmethod
    def load(
        cls,
        certificate: Path,
        key: Path,
        authority: Path,
        lists: Path | None = None,
        *,
        passphrase: Path | None = None,
        memory: Path | None = None,
        keeps: bool = False,
    ) -> Self:
        """Read three PEM files, and `lists`, or else `crls.pem` beside the authority's file if it exists.

        `passphrase` is a file that holds the key's, if it has one. `memory` is the party's memory of keys
        (`known_keys`), which is begun and added to if this program `keeps` it.

        Raises `CertificateError`, also if others may read or write the key file.
        """
        try:
            mode = key.stat().st_mode
            pems = [path.read_bytes() for path in (certificate, key)]
        except OSError as error:
            msg = f"{Path(str(error.filename)).name} cannot be read ({error.strerror}); fix its path or its owner"
            raise CertificateError(msg) from None
        if mode & OPEN_TO_OTHERS:
            msg = (
                f"others than its owner may read or write {key.name}; run chmod 600 on it, and enrol again if it leaked"
            )
            raise CertificateError(msg)
        files = StandingFiles(authority, lists)
        key_pem = open_key(pems[1], None if passphrase is None else read_passphrase(passphrase))
        keys = KnownKeys(memory, authority.parent / PEERS_FILE, keeps=keeps)
        return cls(certificate_pem=pems[0], key_pem=key_pem, authority_pem=files, follows=certificate, keys=keys)

    @property
    def authority_pem(self) -> bytes:
        """The authorities as they are now: roots, then issuing authorities."""
        return self.trust.bundle.pem

    @property
    def certificate_pem(self) -> bytes:
        """The certificate as it is now. Messages, rosters and ledgers carry it."""
        return self._present().certificate_pem

    @property
    def chain_pem(self) -> bytes:
        """The certificate and, if an issuing authority signed it, that authority's: what TLS shows."""
        return self._present().chain_pem

    @property
    def ends(self) -> datetime:
        """When the certificate expires, UTC."""
        return self._present().ends

    @property
    def admitted_until(self) -> datetime | None:
        """When the root's admission of the party ends, UTC; None if the root itself certified the party."""
        admission = self._present().admission
        return None if admission is None else admission.expires

    @property
    def named(self) -> bool:
        """Whether the root has named this party's key, by certifying it or in its admission."""
        admission = self._present().admission
        return admission is None or admission.key is not None

    def tell_faults(self, tell: Callable[[str], object]) -> None:
        """Have `tell` called with a sentence if a file changes and what it says now cannot be taken."""
        self._told = tell
        self.trust.tell_faults(tell)

    def _present(self) -> _Own:
        """Return the certificate, read anew if the file changed."""
        if self._file is None:
            return self._own
        with self._guard:
            seen = stamp(self._file)
            if seen != self._stamp:
                self._stamp = seen
                try:
                    self._own = self._renewed(self._file)
                except (OSError, CertificateError) as error:
                    if self._told is not None:
                        self._told(f"{self._file.name}: {error}. The certificate before this change stays in use")
            return self._own

    def _renewed(self, path: Path) -> _Own:
        identity, own = self._check(path.read_bytes(), None)
        if identity != self.identity:
            msg = f"the certificate is now for {identity}; start the program anew for another party"
            raise CertificateError(msg)
        return own

    @cached_property
    def _key(self) -> ec.EllipticCurvePrivateKey:
        return read_key(self.key_pem)

    def sign(self, message: bytes) -> bytes:
        """Sign with ECDSA P-256 and SHA-256 (DER). The message must say what it is for (see `canonical`)."""
        return self._key.sign(message, ec.ECDSA(hashes.SHA256()))

    def derive(self, purpose: str) -> bytes:
        """Return 32 bytes for one purpose that only the holder of this private key knows (HKDF-SHA256, RFC 5869)."""
        return own_secret(self.key_pem, purpose)

    def __repr__(self) -> str:
        return f"Credential({self.identity})"


def _own_certificate(pem: bytes, bundle: Bundle) -> bytes:
    """Return the first certificate of a chain alone. Raises `CertificateError` if the others are no authorities."""
    first, *others = parse_certificates(pem) or [parse_certificate(pem)]
    if any(all(other != one.certificate for one in bundle.all) for other in others):
        msg = (
            "the certificate's file must hold exactly one PEM certificate, or the party's own and then that of the"
            " issuing authority, which must stand in authority.pem as well; give the file that the enrolment wrote"
        )
        raise CertificateError(msg)
    return to_pem(first) if others else pem


def _admitted_by(certificate: x509.Certificate) -> str | None:
    """The root that the certificate's admission names; None without a readable one, which `Trust` refuses by name."""
    try:
        value = private_extension(certificate, admissions.OID)
        return None if value is None else Admission.from_extension(value).root
    except CertificateError:
        return None


def _require_role(identity: Identity, role: Roles) -> None:
    wanted = [one for one in Role if one is role or (isinstance(role, frozenset) and one in role)]
    if identity.role not in wanted:
        *others, last = (f"{'an' if one.value[0] in 'ao' else 'a'} {one.value}" for one in wanted)
        needed = f"{', '.join(others)} or {last}" if others else last
        msg = f"the certificate is for {identity}, but {needed} is needed; give the right party's certificate"
        raise CertificateError(msg)


def _admission(
    bundle: Bundle, certificate: x509.Certificate, subject: Subject, root: Authority
) -> tuple[Admission, Authority]:
    """Return the admission of a certificate of an issuing authority, with the root that signed it.

    Raises `CertificateError`.
    """
    value = private_extension(certificate, admissions.OID)
    if value is None:
        msg = (
            f"an issuing authority signed the certificate of {subject} without an admission by the root, so it"
            " counts for nothing; ask the keeper of the root at once whether the online key was stolen"
        )
        raise CertificateError(msg)
    admission = Admission.from_extension(value)
    signer = bundle.root(admission.root)
    if signer is None:
        msg = (
            f"the admission of {subject} is by a root that authority.pem does not hold; have {root.name!r} admit"
            " the party, or take the authority.pem of the right consortium"
        )
        raise UnknownAuthorityError(msg)
    admission.verify(signer.certificate)
    hosts = hosts_of(extension(certificate, x509.SubjectAlternativeName))
    admission.require_covers(subject, hosts, _key_of(certificate), certificate.not_valid_after_utc)
    return admission, signer


def _key_of(certificate: x509.Certificate) -> str:
    """SHA-256 of a certificate's key, which `is_issued` found to be of ECDSA P-256."""
    return key_fingerprint(cast("ec.EllipticCurvePublicKey", certificate.public_key()))


def _require_fits(certificate: x509.Certificate, identity: Identity, message: bytes, signature: bytes) -> None:
    key = cast("ec.EllipticCurvePublicKey", certificate.public_key())
    try:
        key.verify(signature, message, ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        msg = f"the signature of {identity} does not fit the signed bytes; have it sent again, then ask that party"
        raise SignatureRefused(msg) from None


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
