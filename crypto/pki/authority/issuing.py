"""The issuing authority: online, under the offline root, never on the coordinator's machine.

Guarantees: it certifies only whom the root admitted, for what the root admitted, and puts the admission into the
certificate, without which nobody accepts it. A token is redeemed by one key, durably, before a certificate leaves. A
certificate is renewed only for the key and the subject that it has, while it is valid and neither it nor its admission
was revoked. Every certificate is in the register before it is handed out. With a register that was put back from an
older copy, nobody is certified (`putback`).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from crypto.errors import CertificateError, EnrolmentError
from crypto.pki.admission import Admission, Token
from crypto.pki.authority import building, readmission
from crypto.pki.authority.building import Request, read_request
from crypto.pki.authority.entries import AUTHORITY, CERTIFICATE, REDEMPTION, REGISTER_FILE, Entry
from crypto.pki.authority.folder import NEWEST_LIST, Keeper, load_key, make_list
from crypto.pki.authority.putback import Mark, note_shown, require_newest
from crypto.pki.authority.readmission import READMISSIONS_FILE
from crypto.pki.authority.register import Register, RegisterMemory
from crypto.pki.certificates import Holder, Trust
from crypto.pki.chain import Authority, Bundle
from crypto.pki.identity import PEOPLE, Subject
from crypto.pki.key_files import make_folder, new_key, write_new
from crypto.pki.revocation import RevocationList, RevocationLists
from crypto.pki.standing import Stamp, stamp

KEY_FILE = "issuing.key"
REQUEST_FILE = "issuing.csr"
BUNDLE_FILE = "authority.pem"
ROOT_LISTS_FILE = "root.crl.pem"
"""The roots' newest lists, one after the other, brought here by hand."""
LIFE = timedelta(days=7)
"""How long a certificate lasts: short, so that a lost one is soon worth nothing."""
PERSON_LIFE = timedelta(days=30)
"""The same for people, whose certificates are renewed only when they use them."""
DAILY = 24
"""Most certificates of one admission in 24 hours. A program renews every other day; this bounds what one that is faulty
or hostile writes into the register."""
LIST_LIFE = timedelta(days=2)
"""How long a list is fresh. It is made anew after half of this: so long the parties can do without this authority."""
_LIST_SOON = timedelta(days=14)
_END_SOON = timedelta(days=60)


def prepare(folder: Path, name: str, *, passphrase: bytes | None = None) -> bytes:
    """Make `issuing.key` (mode 0600), an empty register and `issuing.csr`, and return the request for the root.

    Raises `EnrolmentError`, also if any of the files exists.
    """
    subject = building.common_name(name)
    make_folder(folder)
    key, pem = new_key(passphrase)
    write_new(folder / KEY_FILE, pem, secret=True)
    write_new(folder / REGISTER_FILE, b"", secret=False)
    request = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    request_pem = request.public_bytes(serialization.Encoding.PEM)
    write_new(folder / REQUEST_FILE, request_pem, secret=False)
    return request_pem


@dataclass(frozen=True)
class _Made:
    """The newest list, for as long as nothing else is revoked."""

    seen: Stamp
    revocations: int
    until: datetime
    pem: bytes


class IssuingAuthority:
    """An issuing authority in its folder. Its methods may be called by many threads."""

    def __init__(self, folder: Path, keeper: Keeper, bundle_pem: bytes, me: Authority) -> None:
        self._folder, self._keeper, self._me = folder, keeper, me
        self.authority_pem = bundle_pem
        """What every party trusts: the roots, and the issuing authorities under them."""
        self._bundle = Bundle.read(bundle_pem)
        key = me.certificate.public_key()
        self._mine = [one for one in self._bundle.issuing if one.certificate.public_key() == key]
        self._guard = threading.Lock()
        self._made: _Made | None = None
        self._known = RegisterMemory()

    @classmethod
    def load(cls, folder: Path, *, passphrase: bytes | None = None) -> Self:
        """Read key, `authority.pem`, the roots' lists and admissions. Raises `EnrolmentError`, `CertificateError`."""
        key = load_key(folder / KEY_FILE, passphrase, "fedward-authority issuing")
        bundle_pem = _bytes(folder / BUNDLE_FILE, "put there what `fedward-authority delegate` wrote")
        mine = [one for one in Bundle.read(bundle_pem).issuing if one.certificate.public_key() == key.public_key()]
        if mine:  # several, if its time was prolonged, or while a root is changed: then the old root still counts here
            me = max(mine, key=lambda one: (one.root == mine[0].root, one.ends))
            authority = cls(folder, Keeper(me.certificate, key), bundle_pem, me)
            authority._root_lists()
            readmission.read(folder / READMISSIONS_FILE)
            return authority
        msg = (
            f"{BUNDLE_FILE} holds no certificate for {KEY_FILE}; have the root delegate to {REQUEST_FILE}"
            " (`fedward-authority delegate`), and put there what it wrote"
        )
        raise EnrolmentError(msg)

    def _register(self) -> AbstractContextManager[Register]:
        return Register.open(self._folder, self._keeper.key, self._known)

    def keys(self) -> dict[str, str]:
        """The parties' URIs with the SHA-256 of the key that redeemed their newest token. Raises `EnrolmentError`."""
        with self._guard, self._register() as register:
            return dict(register.index.keys)

    @property
    def certificate(self) -> x509.Certificate:
        """The authority's own certificate."""
        return self._keeper.certificate

    @property
    def name(self) -> str:
        """The authority's name, for people."""
        return self._me.name

    def lists_pem(self, now: datetime | None = None) -> bytes:
        """Return the lists of this authority and of the roots, as parties keep them in `crls.pem`.

        A list that is half over is made anew before. Raises `EnrolmentError`, `CertificateError`.
        """
        now = now or datetime.now(UTC)
        own = self._own_list(now)
        return own.rstrip() + b"\n" + _bytes(self._folder / ROOT_LISTS_FILE, "bring the roots' lists")

    def concerns(self, now: datetime | None = None) -> list[str]:
        """Return what the authority's keeper must do soon, so that nothing ends: a sentence for each."""
        now, lists = now or datetime.now(UTC), self._root_lists()
        told = []
        for root in self._bundle.roots:
            newest = lists.newest(root)
            if root.ends > now and (newest is None or newest.until - now < _LIST_SOON):
                until = "is missing" if newest is None else f"is fresh until {newest.until:%Y-%m-%d %H:%M} UTC"
                told.append(
                    f"the revocation list of {root.kind} {root.name!r} {until}, and without a fresh one nobody is"
                    f" accepted: make the next one there (`fedward-authority crl`) and bring it as {ROOT_LISTS_FILE}"
                )
        with self._guard, self._register() as register:
            try:
                self._require_newest(register)
            except EnrolmentError as fault:
                told.append(str(fault))
        for one in (self._me, *self._bundle.roots):
            if now < one.ends < now + _END_SOON:
                mend = "make a new root" if one.above is None else f"have the root delegate to {REQUEST_FILE} again"
                told.append(f"{one.kind} {one.name!r} ends on {one.ends:%Y-%m-%d}: {mend} (docs/handbook/authority.md)")
        return told

    def redeem(self, request: bytes, token: Token, *, now: datetime | None = None) -> bytes:
        """Certify a party for the first time; return the certificate (PEM).

        Raises `EnrolmentError` or `CertificateError` if the root did not admit the party, the request differs from the
        admission, or the token is over, revoked, or was redeemed by another key.
        """
        now, asked, admission = now or datetime.now(UTC), read_request(request), token.admission
        self._require_admitted(admission, now)
        admission.require_secret(token.secret, now)
        self._require_same(asked, admission)
        with self._guard, self._register() as register:
            self._require_newest(register)
            self._require_unrevoked(register, admission)
            since = register.index.taken_back.get(admission.subject.identity.uri)
            if since is not None and (admission.made is None or admission.made <= since):
                raise EnrolmentError(_taken_back(admission, since))
            register.require_free(admission.subject)
            register.redeem(admission, asked.fingerprint)
            return self._issue(register, asked, admission, now)

    def renew(self, request: bytes, certificate_pem: bytes, *, now: datetime | None = None) -> bytes:
        """Certify a party again, which showed `certificate_pem` over TLS; return the certificate (PEM).

        The key stays the same: a party's key also opens what it sealed at rest. If a root has admitted the party anew
        (`readmission`), the certificate carries that admission. Raises `EnrolmentError` or `CertificateError`.
        """
        now, asked = now or datetime.now(UTC), read_request(request)
        trust = Trust(self.authority_pem, lambda: self._all_lists(self.lists_pem(now)))
        holder = trust.vouched(certificate_pem)  # whose key it is, the register says
        trust.judge(holder, now=now)
        if holder.admission is None:
            msg = (
                f"the certificate of {holder.identity} is the root's own and was not admitted to online renewal; ask"
                " the authority for a token (`fedward-authority admit`)"
            )
            raise EnrolmentError(msg)
        held = holder.admission[0]
        if asked.public_key != holder.certificate.public_key():
            msg = (
                f"the request has another key than the certificate of {holder.identity}; renew with the same key, or"
                " ask the authority for a token"
            )
            raise EnrolmentError(msg)
        with self._guard, self._register() as register:
            if holder.issuer in self._mine:
                note_shown(self._folder, register.index, holder.certificate.serial_number)
            _require_recorded(register, holder, held, asked.fingerprint)
            self._require_newest(register)
            self._require_unrevoked(register, held)  # whatever a root has admitted since, and did not know of this
            admission = self._readmitted(held, asked.fingerprint, register.index.revoked)
            self._require_admitted(admission, now)
            self._require_same(asked, admission)
            return self._issue(register, asked, admission, now)

    def server_credential(self, hosts: Sequence[str], *, now: datetime | None = None) -> tuple[bytes, bytes]:
        """Make key and certificate for this authority's own HTTPS; return the chain and the key (PEM).

        They last as long as the authority itself. Nobody accepts them for a host that the root did not allow.
        """
        key, key_pem = new_key()
        begin, _ = building.period(1, now)
        times = (begin, self._keeper.certificate.not_valid_after_utc)
        leaf = building.server(hosts, key.public_key(), times, self._keeper.above)
        return leaf + self._keeper.certificate.public_bytes(serialization.Encoding.PEM), key_pem

    def revoke(self, identity: str | None, serial: int | None, since: datetime, reason: str) -> list[str]:
        """Revoke what this authority certified, by the party's URI or by one serial number; make a new list.

        By the party, all its certificates that have not expired are revoked, its admissions count no more here, and no
        token that was made until now is redeemed. Return a sentence for each. Raises `EnrolmentError` if there is
        nothing to revoke.
        """
        now = datetime.now(UTC)
        with self._guard, self._register() as register:
            told = []
            if identity is not None and identity not in register.index.taken_back:
                told = [f"no token that was made for {identity} until now is redeemed here"]
            told += take_back(register, identity, serial, since, reason, now, required=not told)
            if identity is not None:
                register.take_back(identity, reason)
            self._make_list(register, self._published(self._list_pem()), now)
        return told

    def _issue(self, register: Register, asked: Request, admission: Admission, now: datetime) -> bytes:
        begin, _ = building.period(1, now)
        if register.index.count_certificates(f"{admission.serial:x}", begin - timedelta(days=1)) >= DAILY:
            msg = (
                f"{admission.subject.identity} had {DAILY} certificates within a day and gets no more until the first"
                " of them is a day old; find out which program asks so often"
            )
            raise EnrolmentError(msg)
        under = [one for one in self._mine if one.root.fingerprint == admission.root] or self._mine
        me = max(under, key=lambda one: one.ends)
        life = PERSON_LIFE if admission.subject.identity.role in PEOPLE else LIFE
        ends = [now.replace(microsecond=0) + life, admission.expires]
        ends += [me.ends, me.root.ends]
        pem = building.leaf(
            admission.subject,
            admission.hosts,
            asked.public_key,
            (begin, min(ends)),
            self._keeper.above,
            admission=admission,
        )
        register.record(pem, admission.subject, admission.hosts, admission=admission)
        return pem

    def _readmitted(self, admission: Admission, key: str, gone: Mapping[int, datetime]) -> Admission:
        """The party's newest admission for its key: the one that it has, or one that a root has made since.

        Left out is what was taken back here (`gone`) or by the root of the party's own admission: a token that came
        after it counts, also if it ends sooner. What another root took back stays in, and the party gets nothing then.
        """
        root, lists = self._bundle.root(admission.root), self._root_lists()
        again = [
            one
            for one in self._readmissions(stamp(self._folder / READMISSIONS_FILE)).get(
                (admission.subject, admission.hosts), ()
            )
            if one.key in (None, key)
            and self._bundle.root(one.root)
            and one.serial not in gone
            and not (root and one.root == admission.root and lists.revoked(root, one.serial))
        ]
        return max([admission, *again], key=lambda one: (one.number, one.expires))

    def _require_admitted(self, admission: Admission, now: datetime) -> None:
        root = self._bundle.root(admission.root)
        if root is None:
            msg = (
                f"the admission of {admission.subject} is by a root that this authority does not know; ask your own"
                " consortium's authority"
            )
            raise CertificateError(msg)
        admission.verify(root.certificate)
        if now >= admission.expires:
            msg = (
                f"the admission of {admission.subject} ended on {admission.expires:%Y-%m-%d}; ask the authority for a"
                " new token (`fedward-authority admit`)"
            )
            raise EnrolmentError(msg)
        lists = self._root_lists()
        lists.require_fresh(root, now)
        since = lists.revoked(root, admission.serial)
        if since is not None:
            raise EnrolmentError(_taken_back(admission, since))

    def _require_unrevoked(self, register: Register, admission: Admission) -> None:
        since = register.index.revoked.get(admission.serial)
        if since is not None:
            raise EnrolmentError(_taken_back(admission, since))

    @staticmethod
    def _require_same(asked: Request, admission: Admission) -> None:
        faults = []
        if asked.subject != admission.subject:
            faults.append(f"it is for {asked.subject}, and admitted is {admission.subject}")
        if tuple(sorted(asked.hosts)) != admission.hosts:
            wanted, given = (", ".join(sorted(some)) or "none" for some in (asked.hosts, admission.hosts))
            faults.append(f"its hosts are {wanted}, and admitted are {given}")
        if admission.key not in (None, asked.fingerprint):
            faults.append(f"its key has SHA-256 {asked.fingerprint}, and admitted is the key with {admission.key}")
        if faults:
            msg = f"the request is not what was admitted: {'; '.join(faults)}; make it as admitted, or ask for a token"
            raise EnrolmentError(msg)

    def _own_list(self, now: datetime) -> bytes:
        """Return the newest list, and make a new one if that is half over, or leaves out what was revoked since."""
        path = self._folder / NEWEST_LIST
        with self._guard, self._register() as register:
            made, revoked, revocations = self._made, register.index.revoked, register.index.revocations
            same = made is not None and (made.seen, made.revocations) == (stamp(path), revocations)
            if made is not None and same and made.until - now > LIST_LIFE / 2:
                return made.pem
            pem = self._list_pem()
            newest = self._published(pem)
            if newest is None or newest.until - now <= LIST_LIFE / 2 or not newest.revoked.keys() >= revoked.keys():
                pem = self._make_list(register, newest, now)
                newest = self._published(pem)
            if newest is not None:
                self._made = _Made(stamp(path), revocations, newest.until, pem)
            return pem

    def _list_pem(self) -> bytes:
        """The newest list that this authority has made; empty before the first."""
        path = self._folder / NEWEST_LIST
        return path.read_bytes() if path.exists() else b""

    def _published(self, pem: bytes) -> RevocationList | None:
        return RevocationLists.read(pem, self._bundle).newest(self._me) if pem else None

    def _make_list(self, register: Register, before: RevocationList | None, now: datetime) -> bytes:
        """Make the next list. What the one `before` revokes stays revoked, also if the register was put back."""
        mark, revoked = Mark.of(register.index), {**(before.revoked if before else {}), **register.index.revoked}
        published = Mark.read(self._list_pem())
        if published is not None and not published.is_in(register.index):
            mark = published
        return make_list(self._keeper, revoked, self._folder, now + LIST_LIFE, now, mark=mark)

    def _require_newest(self, register: Register) -> None:
        """Raise `EnrolmentError` if the register was put back from an older copy (`putback`)."""
        require_newest(self._folder, register.index, self._list_pem())

    def _root_lists(self) -> RevocationLists:
        return self._read(_bytes(self._folder / ROOT_LISTS_FILE, "bring the roots' lists"))

    @lru_cache(maxsize=2)  # noqa: B019  # there is one authority in a program
    def _read(self, pem: bytes) -> RevocationLists:
        """Read the roots' lists, which are long after years, once."""
        try:
            return RevocationLists.read(pem, self._bundle)
        except CertificateError as error:
            msg = f"{ROOT_LISTS_FILE}: {error}"
            raise CertificateError(msg) from None

    @lru_cache(maxsize=2)  # noqa: B019  # as above
    def _all_lists(self, pem: bytes) -> RevocationLists:
        return RevocationLists.read(pem, self._bundle)

    @lru_cache(maxsize=1)  # noqa: B019  # as above
    def _readmissions(self, seen: Stamp) -> Mapping[tuple[Subject, tuple[str, ...]], Sequence[Admission]]:
        """The roots' readmissions by party and hosts. `seen` changes with the file."""
        by_subject: dict[tuple[Subject, tuple[str, ...]], list[Admission]] = {}
        for one in [] if seen is None else readmission.read(self._folder / READMISSIONS_FILE):
            by_subject.setdefault((one.subject, one.hosts), []).append(one)
        return by_subject


def _require_recorded(register: Register, holder: Holder, held: Admission, key: str) -> None:
    """Raise `EnrolmentError` unless this register knows the certificate or its key.

    Otherwise the issuing key was stolen, or this register was put back and has lost what it certified since.
    """
    serial = f"{holder.certificate.serial_number:x}"
    if (
        key not in (held.key, register.index.redeemed.get(f"{held.serial:x}"))
        and serial not in register.index.certified
    ):
        msg = (
            f"the certificate of {holder.identity} with the serial number {serial} is not in this authority's register:"
            " either the register was put back from an older backup, or the issuing key was stolen. Tell the"
            " authority's keeper; if it is the former, ask for a new token (`fedward-authority admit --key`)"
        )
        raise EnrolmentError(msg)


def take_back(  # noqa: PLR0917  # a revocation has so many parts
    register: Register,
    identity: str | None,
    serial: int | None,
    since: datetime,
    reason: str,
    now: datetime,
    *,
    required: bool = True,
) -> list[str]:
    """Write revocations into a register: all that a party holds and that has not expired, or one serial number.

    The serial number of an authority revokes every certificate of its key: the key was stolen, and its time may have
    been prolonged. Returns a sentence for each. If something is `required`, raises `EnrolmentError` if there is
    nothing to revoke.
    """
    done, told = dict(register.index.revoked), []
    authorities = [entry for entry in register.own() if entry["kind"] == AUTHORITY]
    keys = {entry.get("key") for entry in authorities if int(entry["serial"], 16) == serial} - {None}
    for entry in register.own():
        number = int(entry.get("serial", "0"), 16)
        same_key = entry["kind"] == AUTHORITY and entry.get("key") in keys
        fits = number == serial or same_key if serial is not None else entry.get("identity") == identity
        lasts = "not_after" in entry and datetime.fromisoformat(entry["not_after"]) > now
        for one, what in _marks(entry) if fits and (lasts or entry["kind"] == REDEMPTION) else ():
            if one not in done:
                register.revoke(one, since, what, reason)
                done[one] = since
                told.append(f"revoked {what}, serial number {one:x}, as of {since:%Y-%m-%d %H:%M} UTC")
    if not told and required:
        name = identity if serial is None else f"the serial number {serial:x}"
        msg = f"there is nothing of {name} in this register that has not expired or been revoked; see `register`"
        raise EnrolmentError(msg)
    return told


def _marks(entry: Entry) -> list[tuple[int, str]]:
    """What to revoke for an entry: its own number, and the admission behind a certificate."""
    what = entry.get("identity") or f"the issuing authority {entry.get('name')!r}"
    if entry["kind"] == REDEMPTION:  # who redeemed a token could redeem it again, long after the certificate has ended
        return [(int(entry["serial"], 16), f"the admission of {what}, here")]
    marks = [(int(entry["serial"], 16), f"the {entry['kind']} of {what}" if "identity" in entry else str(what))]
    if entry["kind"] == CERTIFICATE and "admission" in entry:
        marks.append((int(entry["admission"], 16), f"the admission of {what}, here"))
    return marks


def _taken_back(admission: Admission, since: datetime) -> str:
    return (
        f"the admission of {admission.subject} was revoked as of {since:%Y-%m-%d %H:%M} UTC; ask the authority why, and"
        " for a new token"
    )


def _bytes(path: Path, mend: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        msg = f"{path.name} cannot be read ({error.strerror}); {mend}"
        raise EnrolmentError(msg) from None
