from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, ExtensionOID

from crypto.errors import CertificateError, SignatureRefused
from crypto.pki.authority import building
from crypto.pki.authority import root as authority
from crypto.pki.certificates import Credential, Trust, require_data_set
from crypto.pki.chain import Bundle
from crypto.pki.enrolment import create_request
from crypto.pki.identity import Identity, Role, Subject
from crypto.pki.reading import ends, fingerprint, key_fingerprint, parse_certificate
from crypto.pki.revocation import RevocationLists
from tests.support.online import Online, register_of

URIS = ("fedward://silo/a", "fedward://data-set/a")


@pytest.fixture(scope="module")
def trust(authority_folder):
    return Trust((authority_folder / "authority.pem").read_bytes())


def issue(authority_folder, extensions, *, key=None, days=1, algorithm=None):
    """Sign whatever is asked, as a careless or misused authority would."""
    root = parse_certificate((authority_folder / "authority.pem").read_bytes())
    root_key = serialization.load_pem_private_key((authority_folder / "authority.key").read_bytes(), None)
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([]))
        .issuer_name(root.subject)
        .public_key((key or ec.generate_private_key(ec.SECP256R1())).public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=days))
    )
    for extension in extensions:
        builder = builder.add_extension(extension, critical=False)
    certificate = builder.sign(root_key, algorithm or hashes.SHA256())
    return certificate.public_bytes(serialization.Encoding.PEM)


def leaf(*uris, ca=False, signs=True, use=ExtendedKeyUsageOID.CLIENT_AUTH):
    usage = dict.fromkeys(
        [
            "content_commitment",
            "key_encipherment",
            "data_encipherment",
            "key_agreement",
            "key_cert_sign",
            "crl_sign",
            "encipher_only",
            "decipher_only",
        ],
        False,
    )
    return [
        x509.BasicConstraints(ca=ca, path_length=None),
        x509.KeyUsage(digital_signature=signs, **usage),
        x509.ExtendedKeyUsage([use]),
        *([x509.SubjectAlternativeName([x509.UniformResourceIdentifier(uri) for uri in uris])] if uris else []),
    ]


def test_a_certified_silo_is_identified(trust, silos):
    pem = silos["north"].certificate_pem
    assert trust.identify(pem, role=Role.SILO) == trust.identify(pem) == Identity(Role.SILO, "north")


def test_a_silo_stands_for_the_data_set_of_its_certificate(silos, coordinator):
    require_data_set(silos["north"].certificate_pem, "north-ward")
    for pem, holder in (
        (silos["south"].certificate_pem, "fedward://silo/south with the data set south-ward"),
        (coordinator.certificate_pem, "fedward://coordinator/hub"),
    ):
        with pytest.raises(CertificateError, match=f"is for {holder}, not for the data set north-ward, and a new name"):
            require_data_set(pem, "north-ward")


def test_another_authority_is_named(trust, foreign):
    with pytest.raises(CertificateError, match="not issued by the authority 'Consortium of tests'"):
        trust.identify(foreign("north").certificate_pem)


def test_another_authority_of_the_same_name_is_no_better(tmp_path, trust):
    authority.init(tmp_path / "root", "Consortium of tests", 10)
    north = Subject(Identity(Role.SILO, "north"), "north-ward")
    request = create_request(tmp_path / "north", north)
    pem = authority.sign(tmp_path / "root", request.read_bytes(), subject=north, days=1)
    with pytest.raises(CertificateError, match="not issued by"):
        trust.identify(pem)


def test_another_role_is_named(trust, silos, coordinator):
    with pytest.raises(CertificateError, match=r"for fedward://silo/north, but a coordinator is needed"):
        trust.identify(silos["north"].certificate_pem, role=Role.COORDINATOR)
    with pytest.raises(CertificateError, match=r"for fedward://coordinator/hub, but a silo is needed"):
        trust.identify(coordinator.certificate_pem, role=Role.SILO)


def test_an_expired_certificate_is_named(trust, silos):
    with pytest.raises(CertificateError, match=r"fedward://silo/north expired on .*; make a new request"):
        trust.identify(silos["north"].certificate_pem, now=datetime.now(UTC) + timedelta(days=31))


def test_a_certificate_before_its_time_is_named(trust, silos):
    with pytest.raises(CertificateError, match=r"not yet valid .*clock"):
        trust.identify(silos["north"].certificate_pem, now=datetime.now(UTC) - timedelta(days=1))


def test_an_expired_authority_is_named(trust, authority_folder):
    pem = issue(authority_folder, leaf(*URIS), days=1000)
    gone = "the authority 'Consortium of tests' expired on .* UTC; the consortium needs a new authority"
    with pytest.raises(CertificateError, match=gone):
        trust.identify(pem, now=datetime.now(UTC) + timedelta(days=500))


@pytest.mark.parametrize(
    ("extensions", "sentence"),
    [
        (leaf(), "one FedWard identity"),
        (leaf("fedward://silo/a", "fedward://silo/b"), "one FedWard identity"),
        (leaf("https://silo/a"), "an identity is written"),
        (leaf("fedward://silo/a"), "names no data set; make a new request"),
        (leaf(*URIS, "fedward://data-set/b"), "one FedWard identity"),
        (leaf(URIS[1]), "one FedWard identity"),
        (leaf("fedward://silo/a", "fedward://data-set/A"), "a data set's id has"),
        (leaf("fedward://operator/a", "fedward://data-set/a"), "a silo needs one data set"),
        (leaf(*URIS, ca=True), "key usages"),
        (leaf(*URIS, signs=False), "key usages"),
        (leaf(*URIS, use=ExtendedKeyUsageOID.SERVER_AUTH), "key usages"),
        (leaf(*URIS)[3:], "key usages"),
    ],
)
def test_what_the_authority_should_not_have_signed_is_refused(trust, authority_folder, extensions, sentence):
    with pytest.raises(CertificateError, match=sentence):
        trust.identify(issue(authority_folder, extensions))


def test_extensions_that_cannot_be_read_are_refused(trust, authority_folder):
    garbage = x509.UnrecognizedExtension(ExtensionOID.SUBJECT_ALTERNATIVE_NAME, b"garbage")
    with pytest.raises(CertificateError, match="extensions cannot be read"):
        trust.identify(issue(authority_folder, [*leaf()[:3], garbage]))


def test_another_kind_of_key_or_hash_is_refused(trust, authority_folder):
    for pem in (
        issue(authority_folder, leaf(*URIS), key=ec.generate_private_key(ec.SECP384R1())),
        issue(authority_folder, leaf(*URIS), algorithm=hashes.SHA384()),
    ):
        with pytest.raises(CertificateError, match="not issued by"):
            trust.identify(pem)


def test_only_one_certificate_is_read(trust, silos):
    pem = silos["north"].certificate_pem
    for wrong in (b"", b"hello", pem + pem, pem[:-60], b"\n" * (1 << 17) + pem):
        with pytest.raises(CertificateError, match="exactly one PEM certificate"):
            trust.identify(wrong)


def test_a_leaf_is_no_authority(silos):
    with pytest.raises(CertificateError, match="not an authority"):
        Trust(silos["north"].certificate_pem)


def test_a_fingerprint_is_the_hash_of_the_der(silos):
    pem = silos["north"].certificate_pem
    der = parse_certificate(pem).public_bytes(serialization.Encoding.DER)
    assert fingerprint(pem) == hashlib.sha256(der).hexdigest()


def test_signatures_bind_message_and_signer(trust, silos):
    signature = silos["north"].sign(b"message")
    pem = silos["north"].certificate_pem
    assert trust.verify(pem, b"message", signature, role=Role.SILO).name == "north"
    for attempt in (
        (pem, b"massage", signature),
        (pem, b"message", signature[:-1]),
        (pem, b"message", b""),
        (silos["south"].certificate_pem, b"message", signature),
    ):
        with pytest.raises(SignatureRefused, match="does not fit"):
            trust.verify(*attempt, role=Role.SILO)
    with pytest.raises(CertificateError, match="operator is needed"):
        trust.verify(pem, b"message", signature, role=Role.OPERATOR)


def test_a_signature_is_checked_at_a_time_that_is_given(trust, silos):
    pem, signature = silos["north"].certificate_pem, silos["north"].sign(b"message")
    now = datetime.now(UTC)
    for days in (0, 29):
        at = now + timedelta(days=days)
        assert trust.verify(pem, b"message", signature, now=at).name == "north"
        assert trust.ran_out(pem, now=at) is None
    later = now + timedelta(days=31)
    with pytest.raises(CertificateError, match="expired on"):
        trust.verify(pem, b"message", signature, now=later)
    with pytest.raises(CertificateError, match="not yet valid"):
        trust.verify(pem, b"message", signature, now=now - timedelta(days=2))
    assert trust.ran_out(pem, now=later) == parse_certificate(pem).not_valid_after_utc
    assert trust.ran_out(pem) is None
    with pytest.raises(SignatureRefused):
        trust.verify(pem, b"massage", signature, now=now + timedelta(days=29))


def test_a_certificate_ends_with_its_authority(trust, authority_folder):
    pem = issue(authority_folder, leaf(*URIS), days=1000)
    root = parse_certificate((authority_folder / "authority.pem").read_bytes())
    assert trust.ran_out(pem, now=datetime.now(UTC) + timedelta(days=500)) == root.not_valid_after_utc


def test_a_key_of_somebody_else_is_refused(silos, authority_folder):
    with pytest.raises(CertificateError, match="does not belong to the certificate of fedward://silo/north"):
        Credential(
            certificate_pem=silos["north"].certificate_pem,
            key_pem=silos["south"].key_pem,
            authority_pem=silos["north"].authority_pem,
        )


def test_a_credential_must_be_within_its_time(silos):
    own = silos["north"]
    with pytest.raises(CertificateError, match="expired"):
        Credential(
            certificate_pem=own.certificate_pem,
            key_pem=own.key_pem,
            authority_pem=own.authority_pem,
            now=datetime.now(UTC) + timedelta(days=400),
        )


def test_an_unreadable_key_is_named(silos):
    other = ec.generate_private_key(ec.SECP384R1()).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    for key in (b"", other):
        with pytest.raises(CertificateError, match="cannot be read as an ECDSA P-256 key"):
            Credential(
                certificate_pem=silos["north"].certificate_pem,
                key_pem=key,
                authority_pem=silos["north"].authority_pem,
            )


@pytest.mark.parametrize("mode", [0o604, 0o602, 0o640, 0o620])
def test_files_that_are_missing_or_open_to_others_are_refused(tmp_path, silos, mode):
    own = silos["north"]
    paths = [tmp_path / name for name in ("certificate.pem", "key.pem", "authority.pem")]
    for path, pem in zip(paths, (own.certificate_pem, own.key_pem, own.authority_pem), strict=True):
        path.write_bytes(pem)
    paths[1].chmod(mode)
    with pytest.raises(CertificateError, match="chmod 600"):
        Credential.load(*paths)
    paths[1].chmod(0o600)
    assert Credential.load(*paths).identity == own.identity
    paths[2].unlink()
    with pytest.raises(CertificateError, match=r"authority\.pem cannot be read") as refused:
        Credential.load(*paths)
    assert str(tmp_path) not in str(refused.value)


def test_a_credential_prints_only_whose_it_is(silos):
    assert repr(silos["north"]) == "Credential(fedward://silo/north)"


def test_a_certificate_says_when_it_ends(authority_folder):
    root = (authority_folder / "authority.pem").read_bytes()
    assert ends(root) == parse_certificate(root).not_valid_after_utc
    with pytest.raises(CertificateError, match="exactly one PEM certificate"):
        ends(b"nothing")


def test_a_certificate_is_followed_as_its_file_changes_and_only_for_the_same_party_and_key(tmp_path):
    online, told = Online(tmp_path), []
    home = online.enrol("silo", "north")
    credential = Credential.load(*(home / name for name in ("certificate.pem", "key.pem", "authority.pem")))
    credential.tell_faults(told.append)
    first = credential.certificate_pem
    online.renew(home)
    second = credential.certificate_pem
    assert second == (home / "certificate.pem").read_bytes() != first
    other = online.enrol("silo", "south")
    for wrong in ((other / "certificate.pem").read_bytes(), first[:200], b""):
        (home / "certificate.pem").write_bytes(wrong)
        assert credential.certificate_pem == second
    assert credential.chain_pem.startswith(second)
    assert [fault.partition(":")[0] for fault in told] == ["certificate.pem"] * 3
    (home / "certificate.pem").write_bytes(first)
    assert credential.certificate_pem == first, "an older one of the same party and key still counts"


def test_fresh_lists_are_required_of_every_authority_in_the_chain(tmp_path):
    online = Online(tmp_path)
    home = online.enrol("silo", "north")
    pem, own = (home / "certificate.pem").read_bytes(), RevocationLists.read
    with pytest.raises(CertificateError, match=r"revocation lists are required, and there are none; .* into crls\.pem"):
        Trust(online.pem).identify(pem)
    online.authority.lists_pem()
    for missing, path in (("authority", online.issuing / "crl.pem"), ("issuing", online.issuing / "root.crl.pem")):
        lists = own(path.read_bytes(), Bundle.read(online.pem))
        with pytest.raises(CertificateError, match=f"there is no revocation list of the {missing}"):
            Trust(online.pem, lambda lists=lists: lists).identify(pem)
    whole = own(online.authority.lists_pem(), Bundle.read(online.pem))
    trust, now = Trust(online.pem, lambda: whole), datetime.now(UTC)
    assert trust.identify(pem).name == "north"
    with pytest.raises(CertificateError, match="'Issuing of tests' is stale: the next one was due on"):
        trust.identify(pem, now=now + timedelta(days=3))


def test_what_began_while_a_certificate_was_valid_goes_on_unless_it_is_revoked(tmp_path):
    online, now = Online(tmp_path), datetime.now(UTC)
    key = ec.generate_private_key(ec.SECP256R1())
    admission = online.admit("silo", "north", key=key_fingerprint(key.public_key())).admission
    times = (now - timedelta(minutes=4), now - timedelta(minutes=1))
    pem = building.leaf(admission.subject, (), key.public_key(), times, online.stolen.above, admission=admission)
    bundle = Bundle.read(online.pem)
    trust = Trust(online.pem, lambda: RevocationLists.read(online.authority.lists_pem(), bundle))
    with pytest.raises(CertificateError, match="expired on"):
        trust.identify(pem)
    begun = trust.begun(now - timedelta(minutes=2))
    assert begun.identify(pem).name == "north"
    with register_of(online.issuing) as register:
        register.revoke(parse_certificate(pem).serial_number, now, "north", "lost")
    with pytest.raises(CertificateError, match="was revoked as of"):
        begun.identify(pem)


def test_of_the_past_it_counts_what_had_been_revoked_by_then(tmp_path):
    online, now = Online(tmp_path), datetime.now(UTC).replace(microsecond=0)
    home = online.enrol("silo", "north")
    pem, minute = (home / "certificate.pem").read_bytes(), timedelta(minutes=1)
    online.authority.revoke("fedward://silo/north", None, now - minute, "left")
    bundle = Bundle.read(online.pem)
    lists = RevocationLists.read(online.authority.lists_pem(), bundle)
    trust = Trust(online.pem, lambda: lists)
    assert trust.identify(pem, as_of=now - minute - timedelta(seconds=1)).name == "north"
    for asked in ({"as_of": now - minute}, {"as_of": now}, {"now": now - 2 * minute}, {}):
        with pytest.raises(CertificateError, match="was revoked as of"):
            trust.identify(pem, **asked)


def test_a_program_adds_to_the_memory_of_keys_only_if_it_keeps_it(tmp_path):
    home = Online(tmp_path / "online").enrol("silo", "north")
    files, memory = [home / f"{name}.pem" for name in ("certificate", "key", "authority")], tmp_path / "known.jsonl"
    own = Credential.load(*files, memory=memory)
    assert not memory.exists()
    assert own.chain_pem.startswith(own.certificate_pem)
    assert (own.ends, own.named) == (ends(own.certificate_pem), True)
    assert timedelta(days=299) < own.admitted_until - datetime.now(UTC) < timedelta(days=800)
    Credential.load(*files, memory=memory, keeps=True)
    assert memory.exists()


def test_during_a_change_of_root_both_are_trusted(tmp_path, silos):
    online = Online(tmp_path)
    home = online.enrol("silo", "new")
    old = silos["north"]
    (home / "authority.pem").write_bytes(old.authority_pem + online.pem)
    trust = Trust.load(home / "authority.pem")
    assert trust.identify((home / "certificate.pem").read_bytes()).name == "new"
    with pytest.raises(CertificateError, match="there is no revocation list of the authority 'Consortium of tests'"):
        trust.identify(old.certificate_pem)


@pytest.fixture
def looked_up(monkeypatch):
    """The certificates whose issuer was looked for."""
    seen, real = [], Bundle.issuer_of

    def issuer_of(self, certificate, *rest):
        seen.append(certificate.serial_number)
        return real(self, certificate, *rest)

    monkeypatch.setattr(Bundle, "issuer_of", issuer_of)
    return seen


def test_the_signatures_of_a_certificate_are_checked_once(authority_folder, silos, looked_up):
    trust, pem = Trust((authority_folder / "authority.pem").read_bytes()), silos["north"].certificate_pem
    for _ in range(3):
        assert trust.identify(pem) == trust.identify(pem, role=Role.SILO) == Identity(Role.SILO, "north")
        signature = silos["north"].sign(b"message")
        assert trust.verify(pem, b"message", signature) == trust.begun(datetime.now(UTC)).identify(pem)
    assert len(looked_up) == 1
    with pytest.raises(CertificateError, match="but an operator is needed"):
        trust.identify(pem, role=Role.OPERATOR)
    with pytest.raises(CertificateError, match="expired"):
        trust.identify(pem, now=ends(pem) + timedelta(seconds=1))
    assert len(looked_up) == 1


def test_no_refusal_is_remembered_and_nothing_of_other_authorities(tmp_path, authority_folder, silos, looked_up):
    online = Online(tmp_path)
    stranger = (online.enrol("silo", "new") / "certificate.pem").read_bytes()
    path = tmp_path / "authority.pem"
    path.write_bytes((authority_folder / "authority.pem").read_bytes())
    trust, pem = Trust.load(path), silos["north"].certificate_pem
    looked_up.clear()
    for _ in range(2):
        assert trust.identify(pem).name == "north"
        with pytest.raises(CertificateError, match="authority"):
            trust.identify(stranger)
    assert len(looked_up) == 3
    path.write_bytes(online.pem)
    with pytest.raises(CertificateError, match="authority"):
        trust.identify(pem)


def test_few_certificates_are_remembered(authority_folder, silos, looked_up, monkeypatch):
    monkeypatch.setattr("crypto.pki.certificates._MOST_REMEMBERED", 2)
    trust = Trust((authority_folder / "authority.pem").read_bytes())
    for _ in range(2):
        for credential in silos.values():
            trust.identify(credential.certificate_pem)
            assert len(trust._remembered[1]) <= 2
    assert len(looked_up) > len(silos)
