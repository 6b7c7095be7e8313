"""The consortium's offline root: it certifies parties, admits them to the issuing authority, and takes back its word.

Guarantees: the root certifies exactly the subject and hosts that the person typed, and only if the request asks for
them and proves its key. Every certificate, admission, delegation and revocation is in the register, durably, before it
is handed out, and contradicts no earlier entry (register.py). Nothing is overwritten but the newest revocation list,
which is archived. The person must know whom the request came from, and must keep this folder offline.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509

from crypto.errors import CertificateError, EnrolmentError
from crypto.pki.admission import SECRET_BYTES, Admission, Token, secret_digest
from crypto.pki.authority import building
from crypto.pki.authority.building import Request, period, read_request, require_hosts
from crypto.pki.authority.entries import REGISTER_FILE, Admitted
from crypto.pki.authority.folder import Keeper, load_key, make_list
from crypto.pki.authority.register import Register
from crypto.pki.chain import Bundle
from crypto.pki.identity import Role, Subject
from crypto.pki.key_files import make_folder, new_key, write_new
from crypto.pki.reading import extension, fingerprint_of, parse_certificate, to_pem

CERTIFICATE_FILE = "authority.pem"
KEY_FILE = "authority.key"
LIST_DAYS = 90
"""The offline root is fetched from its safe that often, unless something is revoked."""


def init(
    folder: Path, name: str, days: int, *, passphrase: bytes | None = None, predecessor: Path | None = None
) -> bytes:
    """Make an authority: `authority.pem`, `authority.key` (mode 0600) and a register. Return the certificate.

    The key is encrypted if a passphrase is given. `predecessor` is the folder of the root that this one succeeds: the
    register goes on from that root's, so that no data set gets a second silo. Raises `EnrolmentError`, also if any of
    the files exists.
    """
    building.common_name(name)
    times = period(days)
    before = b"" if predecessor is None else _register_of(predecessor)
    make_folder(folder)
    key, pem = new_key(passphrase)
    certificate_pem = building.root(name, key, times)
    write_new(folder / KEY_FILE, pem, secret=True)
    write_new(folder / REGISTER_FILE, before, secret=False)
    if predecessor is not None:
        Register.adopt(folder, key)
        with Register.open(folder, key) as register:
            register.succeed(fingerprint_of(parse_certificate(certificate_pem)))
    write_new(folder / CERTIFICATE_FILE, certificate_pem, secret=False)
    return certificate_pem


def sign(
    folder: Path,
    request_pem: bytes,
    *,
    subject: Subject,
    days: int,
    hosts: Sequence[str] = (),
    passphrase: bytes | None = None,
) -> bytes:
    """Certify a request and return the certificate (PEM), valid for `days`.

    Raises `EnrolmentError` if the request asks for another subject or for hosts that are not given, if the hosts do not
    fit the role, or if the register has another data set for the silo or another silo for the data set. Raises
    `CertificateError` if the authority's files cannot be used.
    """
    request = read_request(request_pem)
    _check_asked(request, subject, hosts)
    keeper, times = load(folder, passphrase), period(days)
    keeper.end_before(times[1])
    with Register.open(folder, keeper.key) as register:
        register.require_free(subject)
        certificate_pem = building.leaf(subject, hosts, request.public_key, times, keeper.above)
        register.record(certificate_pem, subject, hosts)
    return certificate_pem


def delegate(
    folder: Path,
    request_pem: bytes,
    *,
    days: int,
    hosts: Sequence[str],
    passphrase: bytes | None = None,
) -> bytes:
    """Certify an issuing authority; return `authority.pem` of the consortium: the root and then the new certificate.

    The issuing authority may certify servers for `hosts` alone: its own, and those of the coordinators. Raises
    `EnrolmentError`, also if this root was made by version 0.5, whose roots may have nobody under them.
    """
    building.require_names(hosts)
    name, key = building.read_authority_request(request_pem)
    keeper, times = load(folder, passphrase), period(days)
    _require_delegable(keeper)
    keeper.end_before(times[1])
    with Register.open(folder, keeper.key) as register:
        pem = building.issuing(name, key, hosts, times, keeper.above)
        register.delegate(pem, name, hosts)
    bundle = to_pem(keeper.certificate) + pem
    Bundle.read(bundle)
    return bundle


def certify_timestamps(folder: Path, request_pem: bytes, *, passphrase: bytes | None = None) -> bytes:
    """Certify a timestamping authority for as long as this root lasts; return its certificate (PEM).

    Raises `EnrolmentError`, `CertificateError`.
    """
    name, key = building.read_authority_request(request_pem)
    keeper = load(folder, passphrase)
    begins = datetime.now(UTC).replace(microsecond=0) - building.CLOCK_SKEW
    with Register.open(folder, keeper.key) as register:
        pem = building.timestamping(name, key, (begins, keeper.certificate.not_valid_after_utc), keeper.above)
        register.delegate(pem, name, ())
    return pem


def admit(  # what the root promises has so many parts
    folder: Path,
    subject: Subject,
    *,
    days: int,
    redeem_days: int,
    hosts: Sequence[str] = (),
    key: str | None = None,
    url: str | None = None,
    passphrase: bytes | None = None,
    now: datetime | None = None,
) -> Token:
    """Admit a party: it may be certified by an issuing authority for `days`, first by this token. Return the token.

    The token gets its first certificate within `redeem_days`, and for the `key` with this SHA-256 alone if it is given:
    a party that others have met changes its key by no other admission. Raises `EnrolmentError` as `sign`.
    """
    require_hosts(subject, hosts)
    building.require_names(hosts)
    keeper = load(folder, passphrase)
    _require_delegable(keeper)
    (_, expires), (_, redeem_until) = period(days, now), period(redeem_days, now)
    keeper.end_before(expires)
    secret = secrets.token_bytes(SECRET_BYTES)
    with Register.open(folder, keeper.key) as register:
        register.require_free(subject)
        times = expires, redeem_until
        admission = _admission(keeper, register, (subject, hosts, key), times, secret, now)
        token = Token(admission, secret, url)
        register.admit(admission)
    return token


def readmit(
    folder: Path,
    *,
    days: int,
    keys: Mapping[str, str] | None = None,
    passphrase: bytes | None = None,
    now: datetime | None = None,
) -> list[Admission]:
    """Admit everybody again, for `days`, whom this root or one before it has admitted and nobody took back.

    Each admission names the party's key: the one that the party's newest admission names or else, of `keys`, the one
    by its URI, which somebody has compared with the party. Who has neither has redeemed no token yet and is left out.
    An issuing authority puts these admissions into the certificates that it renews (`readmission`). Nobody can redeem
    one as a token. Raises `EnrolmentError`, also if nobody is admitted whose key is known, if somebody is admitted for
    longer already, or if `keys` has another key than the root itself has named.
    """
    keeper, now = load(folder, passphrase), now or datetime.now(UTC)
    _require_delegable(keeper)
    (begins, expires) = period(days, now)
    keeper.end_before(expires)
    with Register.open(folder, keeper.key) as register:
        parties = _with_keys(register.index.standing(now), keys or {})
        last = max(one.until for one, _ in parties)
        if last >= expires:
            msg = f"somebody is admitted until {last:%Y-%m-%d} already; give --days {(last - now).days + 2} or more"
            raise EnrolmentError(msg)
        made = []
        for one, key in parties:
            secret = secrets.token_bytes(SECRET_BYTES)  # forgotten at once
            who = one.subject, one.hosts, key
            made.append(_admission(keeper, register, who, (expires, begins), secret, now))
            register.admit(made[-1])
    return made


def _with_keys(admitted: Sequence[Admitted], keys: Mapping[str, str]) -> list[tuple[Admitted, str]]:
    """Return who is admitted with a key. Raises `EnrolmentError`."""
    keyed = []
    for one in admitted:
        uri = one.subject.identity.uri
        given, named = keys.get(uri), one.key
        if given is not None and named is not None and given != named:
            msg = (
                f"the root has named the key {named} of {uri}, and the file of keys has {given}; a party changes its"
                " key only by `fedward-authority admit --key`, so find out whose that key is, and take its line out"
            )
            raise EnrolmentError(msg)
        key = named or given
        if key is not None:
            keyed.append((one, key))
    if not keyed:
        msg = (
            "nobody is admitted now whose key is known, so there is nobody to admit again; make tokens with"
            " `fedward-authority admit`, or bring the keys that redeemed them (`fedward-authority keys`) with --keys"
        )
        raise EnrolmentError(msg)
    return keyed


def _admission(  # noqa: PLR0917  # what the root promises has so many parts
    keeper: Keeper,
    register: Register,
    who: tuple[Subject, Sequence[str], str | None],
    times: tuple[datetime, datetime],
    secret: bytes,
    now: datetime | None,
) -> Admission:
    """`who` is the party with hosts and key, `times` are the last of the admission and of its token."""
    (subject, hosts, key), (expires, redeem_until) = who, times
    return Admission(
        root=fingerprint_of(keeper.certificate),
        serial=x509.random_serial_number(),
        subject=subject,
        hosts=tuple(sorted(set(hosts))),
        expires=expires,
        redeem_until=min(redeem_until, expires),
        secret_sha256=secret_digest(secret),
        key=key,
        made=(now or datetime.now(UTC)).astimezone(UTC).replace(microsecond=0),
        number=register.next_number(),
    ).signed(keeper.key)


def publish(
    folder: Path, days: int = LIST_DAYS, *, passphrase: bytes | None = None, now: datetime | None = None
) -> bytes:
    """Make the root's next revocation list, which is fresh for `days`. Raises `EnrolmentError`."""
    keeper, at = load(folder, passphrase), now or datetime.now(UTC)
    with Register.open(folder, keeper.key) as register:
        return make_list(keeper, register.index.revoked, folder, at + timedelta(days=days), at)


def load(folder: Path, passphrase: bytes | None) -> Keeper:
    """Read the root's certificate and key. Raises `EnrolmentError`, `CertificateError`."""
    try:
        certificate = parse_certificate((folder / CERTIFICATE_FILE).read_bytes())
    except OSError as error:
        msg = (
            f"the authority's files cannot be read ({error.strerror}); run `fedward-authority init` in the folder first"
        )
        raise EnrolmentError(msg) from None
    key = load_key(folder / KEY_FILE, passphrase, "fedward-authority init")
    if key.public_key() != certificate.public_key():
        msg = f"{KEY_FILE} does not belong to {CERTIFICATE_FILE}; restore both from the same backup"
        raise EnrolmentError(msg)
    return Keeper(certificate, key)


def _register_of(predecessor: Path) -> bytes:
    """Return the register of a root, checked. Raises `EnrolmentError`."""
    with Register.open(predecessor):
        return (predecessor / REGISTER_FILE).read_bytes()


def _require_delegable(keeper: Keeper) -> None:
    constraints = extension(keeper.certificate, x509.BasicConstraints)
    if constraints is None or constraints.path_length == 0:
        msg = (
            "this root was made by version 0.5 and may have no issuing authority under it (path length 0); make a new"
            " root in another folder with `fedward-authority init`, and have both trusted (docs/design/enrolment.md)"
        )
        raise CertificateError(msg)


def _check_asked(request: Request, subject: Subject, hosts: Sequence[str]) -> None:
    identity = subject.identity
    if request.subject != subject:
        msg = (
            f"the request is for {request.subject}, not for {subject}; fix --role, --name or --data-set, or refuse"
            " the request"
        )
        raise EnrolmentError(msg)
    if identity.role is not Role.COORDINATOR and (hosts or request.hosts):
        msg = f"only a coordinator is certified for hosts, not {identity}; make the request without hosts"
        raise EnrolmentError(msg)
    missing = sorted(set(request.hosts) - set(hosts))
    if missing:
        msg = f"the request asks for the hosts {', '.join(missing)}; give --host for each, or refuse the request"
        raise EnrolmentError(msg)
    require_hosts(subject, hosts)
