"""A small consortium: an authority, some silos, a coordinator, and what they agree on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from crypto.pki.authority import root as authority
from crypto.pki.certificates import Credential
from crypto.pki.enrolment import create_request
from crypto.pki.identity import Identity, Role, Subject
from crypto.secagg.agreement import EphemeralKey, PairSecrets, Roster, RosterEntry

STUDY = "5" * 64
Enrol = Callable[..., Credential]
Gather = Callable[..., tuple[dict[str, EphemeralKey], Roster]]
Introduce = Callable[[dict[str, EphemeralKey], Roster], dict[str, PairSecrets]]


def enrol_in(authority_folder: Path, folder: Path) -> Enrol:
    def enrol(name: str, role: Role = Role.SILO, hosts: Sequence[str] = (), days: int = 30) -> Credential:
        subject = Subject(Identity(role, name), f"{name}-ward" if role is Role.SILO else None)
        home = folder / f"{len(list(folder.iterdir()))}-{name}"
        request = create_request(home, subject, hosts)
        pem = authority.sign(authority_folder, request.read_bytes(), subject=subject, days=days, hosts=hosts)
        (home / "certificate.pem").write_bytes(pem)
        return Credential.load(home / "certificate.pem", home / "key.pem", authority_folder / "authority.pem")

    return enrol


@pytest.fixture(scope="session")
def authority_folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("authority") / "root"
    authority.init(folder, "Consortium of tests", 365)
    return folder


@pytest.fixture(scope="session")
def enrol(authority_folder, tmp_path_factory) -> Enrol:
    return enrol_in(authority_folder, tmp_path_factory.mktemp("parties"))


@pytest.fixture(scope="session")
def silos(enrol) -> dict[str, Credential]:
    return {name: enrol(name) for name in ("north", "south", "west")}


@pytest.fixture(scope="session")
def coordinator(enrol) -> Credential:
    return enrol("hub", Role.COORDINATOR, hosts=("localhost", "127.0.0.1"))


@pytest.fixture(scope="session")
def foreign(tmp_path_factory) -> Enrol:
    folder = tmp_path_factory.mktemp("foreign")
    authority.init(folder / "root", "Somebody else", 365)
    return enrol_in(folder / "root", folder)


@pytest.fixture(scope="session")
def gather() -> Gather:
    def gather(credentials: dict[str, Credential], study: str = STUDY) -> tuple[dict[str, EphemeralKey], Roster]:
        keys = {name: EphemeralKey.create(credential, study) for name, credential in credentials.items()}
        entries = tuple(
            RosterEntry(name, credentials[name].certificate_pem, offer.public, offer.kem, offer.signature)
            for name, offer in sorted(((name, key.offer) for name, key in keys.items()), key=lambda pair: pair[0])
        )
        return keys, Roster(study, entries)

    return gather


@pytest.fixture(scope="session")
def introduce() -> Introduce:
    """Everybody greets, then everybody meets."""

    def introduce(keys: dict[str, EphemeralKey], roster: Roster) -> dict[str, PairSecrets]:
        said = {name: key.greet(roster, name) for name, key in keys.items()}
        notes = {name: greeting.note for name, greeting in said.items()}
        return {name: key.meet(roster, name, said[name].secrets, notes) for name, key in keys.items()}

    return introduce


@pytest.fixture(scope="session")
def meeting(silos, gather, introduce) -> tuple[Roster, dict[str, PairSecrets]]:
    keys, roster = gather(silos)
    return roster, introduce(keys, roster)
