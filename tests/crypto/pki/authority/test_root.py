from __future__ import annotations

import json
import re
from datetime import UTC

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from crypto.errors import CertificateError, EnrolmentError
from crypto.pki.authority import building, issuing
from crypto.pki.authority import root as authority
from crypto.pki.certificates import Trust
from crypto.pki.enrolment import create_request
from crypto.pki.identity import Identity, Role, Subject
from crypto.pki.reading import fingerprint, parse_certificate
from support.online import register_of

NORTH = Subject(Identity(Role.SILO, "north"), "north-ward")
HUB = Subject(Identity(Role.COORDINATOR, "hub"))


@pytest.fixture
def root(tmp_path):
    authority.init(tmp_path / "root", "Root", 100)
    return tmp_path / "root"


@pytest.fixture
def north(tmp_path):
    return create_request(tmp_path / "north", NORTH).read_bytes()


@pytest.fixture
def hub(tmp_path):
    return create_request(tmp_path / "hub", HUB, ("localhost",)).read_bytes()


def test_what_it_signs_is_trusted_and_registered(root, north, hub):
    pems = [
        authority.sign(root, north, subject=NORTH, days=9),
        authority.sign(root, hub, subject=HUB, days=9, hosts=["localhost", "::1"]),
    ]
    trust = Trust((root / "authority.pem").read_bytes())
    assert [trust.identify(pem) for pem in pems] == [NORTH.identity, HUB.identity]
    entries = [json.loads(line) for line in (root / "issued.jsonl").read_text().splitlines()]
    assert [entry["identity"] for entry in entries] == ["fedward://silo/north", "fedward://coordinator/hub"]
    assert [entry["data_set"] for entry in entries] == ["north-ward", None]
    assert [entry["sha256"] for entry in entries] == [fingerprint(pem) for pem in pems]
    assert entries[1]["hosts"] == ["localhost", "::1"]
    assert entries[0]["serial"] != entries[1]["serial"]


def test_its_key_is_private_and_nothing_is_overwritten(root):
    assert (root / "authority.key").stat().st_mode & 0o777 == 0o600
    with pytest.raises(EnrolmentError, match=r"authority\.key exists already"):
        authority.init(root, "Root", 100)


def test_it_certifies_only_what_was_asked_for(root, north):
    for wrong in (
        Subject(Identity(Role.SILO, "south"), "north-ward"),
        Subject(Identity(Role.SILO, "north"), "south-ward"),
        Subject(Identity(Role.OPERATOR, "north")),
    ):
        with pytest.raises(EnrolmentError, match=re.escape(f"the request is for {NORTH}, not for {wrong}")):
            authority.sign(root, north, subject=wrong, days=9)
    assert (root / "issued.jsonl").read_bytes() == b""


def test_hosts_fit_role_and_request(root, north, hub):
    with pytest.raises(EnrolmentError, match="only a coordinator is certified for hosts"):
        authority.sign(root, north, subject=NORTH, days=9, hosts=["localhost"])
    with pytest.raises(EnrolmentError, match="asks for the hosts localhost"):
        authority.sign(root, hub, subject=HUB, days=9)


def test_a_coordinator_needs_a_host(root, tmp_path):
    request = create_request(tmp_path / "bare", HUB).read_bytes()
    with pytest.raises(EnrolmentError, match="give --host"):
        authority.sign(root, request, subject=HUB, days=9)


def test_a_silo_may_not_ask_for_hosts(root, tmp_path):
    request = create_request(tmp_path / "odd", NORTH, ("localhost",)).read_bytes()
    with pytest.raises(EnrolmentError, match="without hosts"):
        authority.sign(root, request, subject=NORTH, days=9)


@pytest.mark.parametrize("change", [lambda pem: b"", lambda pem: pem[:100], lambda pem: b"-----BEGIN X-----\n"])
def test_what_is_no_request_is_refused(root, north, change):
    with pytest.raises(EnrolmentError, match="no signing request"):
        authority.sign(root, change(north), subject=NORTH, days=9)


def test_a_request_must_prove_its_key(root, north):
    signed = x509.load_pem_x509_csr(north).public_bytes(Encoding.DER)
    altered = x509.load_der_x509_csr(signed[:-1] + bytes([signed[-1] ^ 1])).public_bytes(Encoding.PEM)
    with pytest.raises(EnrolmentError, match="does not prove"):
        authority.sign(root, altered, subject=NORTH, days=9)


def test_extensions_are_critical_as_rfc_5280_demands(root, north):
    """RFC 5280, 4.2.1: basic constraints and key usage of an authority are critical, names of a leaf are not."""
    own = x509.load_pem_x509_certificate((root / "authority.pem").read_bytes())
    leaf = x509.load_pem_x509_certificate(authority.sign(root, north, subject=NORTH, days=9))
    kinds = (x509.BasicConstraints, x509.KeyUsage, x509.SubjectKeyIdentifier)
    assert [own.extensions.get_extension_for_class(kind).critical for kind in kinds] == [True, True, False]
    kinds = (x509.KeyUsage, x509.ExtendedKeyUsage, x509.SubjectAlternativeName)
    assert [leaf.extensions.get_extension_for_class(kind).critical for kind in kinds] == [True, False, False]


def test_an_admission_is_dated_in_whole_seconds(root):
    token = authority.admit(root, NORTH, days=9, redeem_days=2)
    assert (token.admission.made.microsecond, token.admission.made.tzinfo) == (0, UTC)


def test_times_are_bounded(root, north, tmp_path):
    for days in (0, -1, 40_000):
        with pytest.raises(EnrolmentError, match="fix --days"):
            authority.sign(root, north, subject=NORTH, days=days)
    with pytest.raises(EnrolmentError, match="outlive the authority"):
        authority.sign(root, north, subject=NORTH, days=200)
    with pytest.raises(EnrolmentError, match="1 to 64 characters"):
        authority.init(tmp_path / "other", "", 10)


def test_a_passphrase_is_needed_where_one_was_given(tmp_path, north):
    root = tmp_path / "safe"
    authority.init(root, "Safe", 100, passphrase=b"long and secret")
    for wrong, sentence in (
        (None, "has a passphrase; set it in FEDWARD_AUTHORITY_PASSPHRASE"),
        (b"guess", "cannot be opened"),
    ):
        with pytest.raises(EnrolmentError, match=sentence):
            authority.sign(root, north, subject=NORTH, days=9, passphrase=wrong)
    pem = authority.sign(root, north, subject=NORTH, days=9, passphrase=b"long and secret")
    assert Trust((root / "authority.pem").read_bytes()).identify(pem) == NORTH.identity


def test_a_key_that_only_looks_protected_is_not_opened(root, north):
    key = root / "authority.key"
    key.write_bytes(b"ENCRYPTED, it says\n" + key.read_bytes())
    with pytest.raises(EnrolmentError, match="the authority's key cannot be opened"):
        authority.sign(root, north, subject=NORTH, days=9, passphrase=b"long and secret")


def test_files_that_are_missing_or_mixed_up_are_named(root, north, tmp_path):
    with pytest.raises(EnrolmentError, match="run `fedward-authority init`"):
        authority.sign(tmp_path, north, subject=NORTH, days=9)
    authority.init(tmp_path / "other", "Other", 100)
    (root / "authority.key").write_bytes((tmp_path / "other" / "authority.key").read_bytes())
    with pytest.raises(EnrolmentError, match="same backup"):
        authority.sign(root, north, subject=NORTH, days=9)
    (root / "authority.pem").write_bytes(b"nothing")
    with pytest.raises(CertificateError, match="exactly one PEM"):
        authority.sign(root, north, subject=NORTH, days=9)


def test_without_its_register_nothing_is_certified(root, north):
    (root / "issued.jsonl").unlink()
    with pytest.raises(EnrolmentError, match="nothing is certified"):
        authority.sign(root, north, subject=NORTH, days=9)


def test_a_silo_keeps_its_data_set_and_a_data_set_its_silo(root, north, tmp_path):
    authority.sign(root, north, subject=NORTH, days=9)
    for name, data_set, why in (
        ("north", "clinic", "fedward://silo/north was certified for the data set north-ward"),
        ("new-north", "north-ward", "the data set north-ward was certified for fedward://silo/north"),
    ):
        other = Subject(Identity(Role.SILO, name), data_set)
        request = create_request(tmp_path / f"{name}-{data_set}", other).read_bytes()
        with pytest.raises(EnrolmentError, match=why):
            authority.sign(root, request, subject=other, days=9)
    assert len((root / "issued.jsonl").read_text().splitlines()) == 1
    renewed = create_request(tmp_path / "renewed", NORTH).read_bytes()
    assert (
        Trust((root / "authority.pem").read_bytes()).identify(authority.sign(root, renewed, subject=NORTH, days=9))
        == NORTH.identity
    )


def test_a_new_root_goes_on_with_the_register_so_that_no_data_set_gets_a_second_silo(root, north, tmp_path):
    authority.sign(root, north, subject=NORTH, days=9)
    authority.init(tmp_path / "new", "New", 100, predecessor=root)
    taken = Subject(Identity(Role.SILO, "second"), "north-ward")
    for refused in (
        lambda: authority.admit(tmp_path / "new", taken, days=9, redeem_days=1),
        lambda: authority.sign(
            tmp_path / "new", create_request(tmp_path / "second", taken).read_bytes(), subject=taken, days=9
        ),
    ):
        with pytest.raises(
            EnrolmentError, match="was certified for fedward://silo/north, whose ledger keeps its budget"
        ):
            refused()
    authority.admit(tmp_path / "new", NORTH, days=9, redeem_days=1)
    with register_of(tmp_path / "new") as register:
        assert [one["kind"] for one in register.entries()] == ["certificate", "succession", "admission"]
        assert [one["kind"] for one in register.own()] == ["admission"], "it revokes nothing that another root signed"


def test_who_is_admitted_is_admitted_for_what_the_person_typed(root):
    token = authority.admit(root, HUB, days=9, redeem_days=30, hosts=["hub.example", "a.example"])
    admission = token.admission
    assert (admission.subject, admission.hosts) == (HUB, ("a.example", "hub.example"))
    assert admission.redeem_until == admission.expires
    admission.verify(parse_certificate((root / "authority.pem").read_bytes()))
    with pytest.raises(EnrolmentError, match="outlive the authority"):
        authority.admit(root, HUB, days=101, redeem_days=1, hosts=["hub.example"])


def test_a_root_of_version_05_delegates_to_nobody(tmp_path, monkeypatch):
    monkeypatch.setattr(building, "_DELEGABLE", 0)
    authority.init(tmp_path / "old", "Old", 100)
    for refused in (
        lambda: authority.admit(tmp_path / "old", NORTH, days=9, redeem_days=1),
        lambda: authority.delegate(tmp_path / "old", issuing.prepare(tmp_path / "i", "Online"), days=9, hosts=["a"]),
    ):
        with pytest.raises(CertificateError, match=r"made by version 0\.5 and may have no issuing authority under it"):
            refused()
