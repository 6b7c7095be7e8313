from __future__ import annotations

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from crypto.errors import EnrolmentError
from crypto.pki.authority.root import read_request
from crypto.pki.enrolment import create_request, request_of
from crypto.pki.identity import Identity, Role, Subject

HUB = Subject(Identity(Role.COORDINATOR, "hub"))
NORTH = Subject(Identity(Role.SILO, "north"), "north-ward")


def test_a_request_carries_its_subject_and_hosts_and_no_key(tmp_path):
    path = create_request(tmp_path / "hub", HUB, ("localhost", "10.0.0.1"))
    request = read_request(path.read_bytes())
    assert request.subject == HUB
    assert request.hosts == ("localhost", "10.0.0.1")
    assert path.name == "request.csr"
    assert b"PRIVATE" not in path.read_bytes()
    assert (tmp_path / "hub" / "key.pem").stat().st_mode & 0o777 == 0o600


def test_a_silos_request_names_its_data_set(tmp_path):
    request = read_request(create_request(tmp_path, NORTH).read_bytes())
    assert (request.subject, request.hosts) == (NORTH, ())


def test_a_key_is_never_overwritten(tmp_path):
    create_request(tmp_path, HUB)
    before = (tmp_path / "key.pem").read_bytes()
    with pytest.raises(EnrolmentError, match=r"key\.pem exists already"):
        create_request(tmp_path, HUB)
    (tmp_path / "key.pem").rename(tmp_path / "old.pem")
    with pytest.raises(EnrolmentError, match=r"request\.csr exists already"):
        create_request(tmp_path, HUB)
    assert (tmp_path / "old.pem").read_bytes() == before


@pytest.mark.parametrize("kind", ["nothing", "protected", "of another curve", "certificate"])
def test_what_is_no_plain_key_of_a_curve_asks_for_nothing(kind):
    key = ec.generate_private_key(ec.SECP256R1())
    protection = serialization.BestAvailableEncryption(b"secret")
    if kind == "of another curve":
        key, protection = rsa.generate_private_key(65537, 2048), serialization.NoEncryption()
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, protection)
    if kind in ("nothing", "certificate"):
        pem = b"" if kind == "nothing" else pem.replace(b"PRIVATE KEY", b"CERTIFICATE")
    with pytest.raises(EnrolmentError, match=r"key\.pem cannot be read as a private key"):
        request_of(pem, NORTH)


def test_impossible_hosts_leave_no_key_behind(tmp_path):
    with pytest.raises(EnrolmentError, match="DNS name"):
        create_request(tmp_path / "hub", HUB, ("not a host",))
    assert not (tmp_path / "hub").exists()
