"""A consortium with an issuing authority: a root, an online authority under it, and parties that redeemed tokens."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from crypto.pki.admission import Token
from crypto.pki.authority import issuing, root, timestamping
from crypto.pki.authority.building import read_request
from crypto.pki.authority.folder import Keeper, load_key
from crypto.pki.authority.issuing import BUNDLE_FILE, ROOT_LISTS_FILE, IssuingAuthority
from crypto.pki.authority.register import Register
from crypto.pki.authority.service.server import Service
from crypto.pki.authority.timestamping import TimestampingAuthority
from crypto.pki.certificates import Credential
from crypto.pki.enrolment import create_request
from crypto.pki.identity import Identity, Role, Subject
from tests.support.certificates import data_set_of

LOOPBACK = ("localhost",)


def subject(role: Role | str, name: str) -> Subject:
    """A party of the tests."""
    identity = Identity(Role(role), name)
    return Subject(identity, data_set_of(name) if identity.role is Role.SILO else None)


class Online:
    """Root and issuing authority below `folder`; every party gets a folder of its own beside them."""

    def __init__(self, folder: Path, hosts: Sequence[str] = LOOPBACK, *, days: int = 365) -> None:
        self.folder, self.root, self.issuing = folder, folder / "root", folder / "issuing"
        root.init(self.root, "Root of tests", days)
        request = issuing.prepare(self.issuing, "Issuing of tests")
        bundle = root.delegate(self.root, request, days=days - 1, hosts=hosts)
        (self.issuing / BUNDLE_FILE).write_bytes(bundle)
        self.publish()
        self.authority = IssuingAuthority.load(self.issuing)

    def publish(self, days: int = 90) -> None:
        """Bring the root's newest list to the issuing authority."""
        (self.issuing / ROOT_LISTS_FILE).write_bytes(root.publish(self.root, days))

    @property
    def pem(self) -> bytes:
        """What every party trusts."""
        return self.authority.authority_pem

    def admit(self, role: Role | str, name: str, *, data_set: str | None = None, **said: object) -> Token:
        """The token of a party."""
        party = subject(role, name) if data_set is None else Subject(Identity(Role(role), name), data_set)
        given = {"days": 300, "redeem_days": 14, "hosts": LOOPBACK if Role(role) is Role.COORDINATOR else (), **said}
        return root.admit(self.root, party, **given)  # type: ignore[arg-type]

    def enrol(
        self,
        role: Role | str,
        name: str,
        *,
        home: Path | None = None,
        data_set: str | None = None,
        now: datetime | None = None,
        named: bool = True,
    ) -> Path:
        """A party's folder, with key, certificate, authorities and lists. Its admission names its key, if `named`."""
        home = home or self.folder / f"{Role(role).value}-{name}"
        party = subject(role, name) if data_set is None else Subject(Identity(Role(role), name), data_set)
        hosts = LOOPBACK if party.identity.role is Role.COORDINATOR else ()
        request = create_request(home, party, hosts).read_bytes()
        key = read_request(request).fingerprint
        token = self.admit(role, name, data_set=data_set, key=key if named else None)
        (home / "certificate.pem").write_bytes(self.authority.redeem(request, token, now=now))
        (home / "authority.pem").write_bytes(self.pem)
        self.bring_lists(home)
        return home

    def bring_lists(self, home: Path, *, now: datetime | None = None) -> None:
        """Put the newest lists into a party's folder."""
        (home / "crls.pem").write_bytes(self.authority.lists_pem(now))

    def renew(self, home: Path, *, now: datetime | None = None) -> None:
        """Put a renewed certificate into a party's folder."""
        request = (home / "request.csr").read_bytes()
        renewed = self.authority.renew(request, (home / "certificate.pem").read_bytes(), now=now)
        (home / "certificate.pem").write_bytes(renewed)

    @property
    def stolen(self) -> Keeper:
        """The issuing authority's certificate and key, as a thief has them."""
        key = serialization.load_pem_private_key((self.issuing / issuing.KEY_FILE).read_bytes(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        return Keeper(self.authority.certificate, key)


@contextmanager
def register_of(folder: Path) -> Iterator[Register]:
    """The open register of an authority, as its keeper has it."""
    name = issuing.KEY_FILE if (folder / issuing.KEY_FILE).exists() else root.KEY_FILE
    with Register.open(folder, load_key(folder / name, None, "")) as register:
        yield register


def week(days: float = 7) -> tuple[datetime, datetime]:
    """A certificate's usual times."""
    now = datetime.now(UTC).replace(microsecond=0)
    return now - timedelta(minutes=5), now + timedelta(days=days)


def load(home: Path) -> Credential:
    """The credential in a party's folder."""
    return Credential.load(home / "certificate.pem", home / "key.pem", home / "authority.pem")


def stamping(online: Online) -> TimestampingAuthority:
    """A timestamping authority beside the issuing one."""
    if not (online.issuing / timestamping.CERTIFICATE_FILE).exists():
        request = timestamping.prepare(online.issuing, "Stamps of tests")
        (online.issuing / timestamping.CERTIFICATE_FILE).write_bytes(root.certify_timestamps(online.root, request))
    found = TimestampingAuthority.load(online.issuing)
    assert found is not None
    return found


@contextmanager
def serving(online: Online, stamps: TimestampingAuthority | None = None) -> Iterator[str]:
    """Serve the issuing authority over HTTPS; gives its URL."""
    service = Service(online.authority, "127.0.0.1", 0, LOOPBACK, stamps)
    thread = threading.Thread(target=service.serve, daemon=True)
    thread.start()
    try:
        yield f"https://localhost:{service.port}"
    finally:
        service.close()
        thread.join()
