"""A real authority in a folder and real credentials from it, made in this process by the code that people use."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest import mock

from crypto.pki.authority import root as authority
from crypto.pki.authority.issuing import take_back
from crypto.pki.authority.register import Register
from crypto.pki.certificates import Credential
from crypto.pki.enrolment import create_request
from crypto.pki.identity import Identity, Role, Subject

LOOPBACK = ("localhost", "127.0.0.1")


def data_set_of(silo: str) -> str:
    """The data set of a silo of the tests: not its name, so that nothing passes that takes one for the other."""
    return f"{silo}-ward"


class Authority:
    """A consortium's authority below `folder`; every party gets a folder of its own beside it."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._root = folder, folder / "authority"
        authority.init(self._root, "Consortium of tests", 365)
        self.pem = (self._root / "authority.pem").read_bytes()

    def credential(
        self,
        role: Role | str,
        name: str,
        hosts: Sequence[str] = (),
        *,
        period: tuple[timedelta, timedelta] | None = None,
    ) -> Path:
        """Enrol a party; returns its folder with certificate.pem, key.pem and authority.pem.

        `period` bounds the validity relative to now, where it is not to be the usual month: no command certifies for
        the past, so expired certificates exist only here. A coordinator without hosts is certified for the loopback.
        """
        identity = Identity(Role(role), name)
        if identity.role is Role.COORDINATOR and not hosts:
            hosts = LOOPBACK
        home = self._folder / f"{identity.role.value}-{name}"
        subject = Subject(identity, data_set_of(name) if identity.role is Role.SILO else None)
        request = create_request(home, subject, hosts).read_bytes()
        given = authority.period if period is None else _fixed(period)
        with mock.patch.object(authority, "period", given):
            pem = authority.sign(self._root, request, subject=subject, days=30, hosts=hosts)
        (home / "certificate.pem").write_bytes(pem)
        (home / "authority.pem").write_bytes(self.pem)
        return home

    def revoke(self, uri: str, since: datetime) -> bytes:
        """Take back all that a party holds now, as of a time; returns the new list."""
        with Register.open(self._root, authority.load(self._root, None).key) as register:
            take_back(register, uri, None, since, "stolen", datetime.now(UTC))
        return authority.publish(self._root)

    @contextmanager
    def revoked(self, uri: str, *homes: Path) -> Iterator[None]:
        """Take back all that a party holds and give the list to some parties, or else to all coordinators.

        Their files are taken away afterwards; who read them remembers what they said.
        """
        now = datetime.now(UTC)
        with Register.open(self._root, authority.load(self._root, None).key) as register:
            take_back(register, uri, None, now, "left", now)
        lists = authority.publish(self._root)
        paths = [home / "crls.pem" for home in homes or self._folder.glob("coordinator-*")]
        for path in paths:
            path.write_bytes(lists)
        yield
        for path in paths:
            path.unlink()


def make_authority(folder: Path) -> Authority:
    """An authority in a folder that may be new."""
    folder.mkdir(parents=True, exist_ok=True)
    return Authority(folder)


def load(folder: Path) -> Credential:
    """The credential in a party's folder."""
    return Credential.load(folder / "certificate.pem", folder / "key.pem", folder / "authority.pem")


def _fixed(period: tuple[timedelta, timedelta]) -> Callable[..., tuple[datetime, datetime]]:
    now = datetime.now(UTC).replace(microsecond=0)
    return lambda _days: (now + period[0], now + period[1])
