"""Which timestamps count: those of a key that a root itself certified for timestamps alone."""

import hashlib
from datetime import UTC, datetime, timedelta
from unittest.mock import MagicMock

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID
from rfc3161_client import VerificationError

from crypto.errors import CertificateError
from crypto.pki import timestamps
from crypto.pki.authority import building, root
from crypto.pki.authority.timestamping import TimestampingAuthority
from crypto.pki.certificates import Trust
from crypto.pki.chain import Bundle
from crypto.pki.reading import parse_certificate
from crypto.pki.revocation import RevocationLists
from crypto.pki.timestamps import query_for, require_timestamping, stamped
from support.online import Online, subject

WEEK = timedelta(days=7)
CONTENT = b"the head of a ledger"


@pytest.fixture(scope="module")
def online(tmp_path_factory):
    return Online(tmp_path_factory.mktemp("online"))


@pytest.fixture(scope="module")
def bundle(online):
    return Bundle.read(online.pem)


def today():
    """When it is asked: the root's certificate began minutes ago, and tests may have been collected before that."""
    return datetime.now(UTC).replace(microsecond=0)


def under(above, make=building.timestamping, **named):
    """A timestamping authority whose certificate `make` makes, signed by that certificate and key."""
    times = (today() - WEEK, today() + WEEK)
    key = ec.generate_private_key(ec.SECP256R1())
    pem = (
        make("Stamps", key.public_key(), times, above)
        if not named
        else make(named["of"], (), key.public_key(), times, above)
    )
    return TimestampingAuthority(parse_certificate(pem), key), pem


def reply(authority, now=None):
    return authority.answer(query_for(CONTENT), now=now or today())


def test_a_stamp_of_the_root_s_own_timestamping_key_counts_for_its_bytes_alone(online, bundle):
    authority, pem = under(root.load(online.root, None).above)
    made = reply(authority, now := today())
    assert stamped(made, CONTENT, bundle, None) == now
    with pytest.raises(CertificateError, match="not of these bytes, or was changed"):
        stamped(made, CONTENT + b".", bundle, None)
    with pytest.raises(CertificateError):
        Trust(online.pem).identify(pem)


def test_nobody_else_s_stamp_counts(online, bundle, tmp_path):
    root.init(tmp_path / "other", "Root of tests", 30)
    foreign, _ = under(root.load(tmp_path / "other", None).above)
    stolen, _ = under(online.stolen.above)
    party, _ = under(root.load(online.root, None).above, building.leaf, of=subject("silo", "north"))
    for authority, why in (
        (foreign, "no root of authority.pem certified the key"),
        (stolen, "no root of authority.pem certified the key"),
        (party, "certified for something else than timestamps alone"),
    ):
        with pytest.raises(CertificateError, match=why):
            stamped(reply(authority), CONTENT, bundle, None)


def with_rights(online, *, authority, uses):
    """A key that the root itself certified, with these rights."""
    (certificate, above), key = root.load(online.root, None).above, ec.generate_private_key(ec.SECP256R1())
    builder = x509.CertificateBuilder().subject_name(building.common_name("Stamps")).issuer_name(certificate.subject)
    builder = (
        builder.public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(today() - WEEK)
        .not_valid_after(today() + WEEK)
    )
    if authority is not None:
        builder = builder.add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
    if uses:
        builder = builder.add_extension(x509.ExtendedKeyUsage(uses), critical=True)
    return TimestampingAuthority(builder.sign(above, hashes.SHA256()), key)


def test_a_key_that_may_do_anything_else_stamps_nothing(online, bundle):
    stamps, clients = ExtendedKeyUsageOID.TIME_STAMPING, ExtendedKeyUsageOID.CLIENT_AUTH
    good = with_rights(online, authority=False, uses=[stamps])
    now = today()
    assert stamped(reply(good, now), CONTENT, bundle, None) == now
    for authority, uses in ((True, [stamps]), (None, [stamps]), (False, [stamps, clients]), (False, []), (True, [])):
        odd = with_rights(online, authority=authority, uses=uses)
        with pytest.raises(CertificateError, match="certified for something else than timestamps alone"):
            stamped(reply(odd), CONTENT, bundle, None)


def test_a_time_outside_the_certificate_counts_for_nothing(online, bundle):
    authority, _ = under(root.load(online.root, None).above)
    for at in (today() - timedelta(days=8), today() + timedelta(days=8)):
        with pytest.raises(CertificateError, match="a day on which its key was not certified"):
            stamped(reply(authority, at), CONTENT, bundle, None)


def test_a_revoked_key_loses_all_of_its_stamps(online, bundle):
    authority, pem = under(root.load(online.root, None).above)
    number = parse_certificate(pem).serial_number
    lists = RevocationLists.read(online.authority.lists_pem(), bundle)
    (key,) = [one.fingerprint for one in bundle.roots]
    newest = lists.of[key][-1]
    revoked = type(newest)(newest.number + 1, newest.since, newest.until, {number: today() + timedelta(days=1)})
    now = today()
    assert stamped(reply(authority, now), CONTENT, bundle, lists) == now
    with pytest.raises(CertificateError, match="so none of its stamps counts"):
        stamped(reply(authority), CONTENT, bundle, RevocationLists({**lists.of, key: (newest, revoked)}))


@pytest.mark.parametrize("place", [0, 40, 200, 400, -1])
def test_a_changed_stamp_is_refused_by_name(online, bundle, place):
    made = bytearray(reply(under(root.load(online.root, None).above)[0]))
    made[place] ^= 1
    with pytest.raises(CertificateError):
        stamped(bytes(made), CONTENT, bundle, None)


def test_what_is_no_stamp_is_refused_by_name(bundle):
    for content in (b"", b"junk", bytes(100)):
        with pytest.raises(CertificateError, match="this is no timestamp"):
            stamped(content, CONTENT, bundle, None)


@pytest.mark.parametrize("error", [ValueError, VerificationError])
def test_what_the_library_says_of_a_stamp_is_told_in_part(online, bundle, monkeypatch, error):
    builder = MagicMock()
    builder().add_root_certificate().tsa_certificate().build().verify.side_effect = error("x" * 300)
    monkeypatch.setattr(timestamps, "VerifierBuilder", builder)
    made = reply(under(root.load(online.root, None).above)[0])
    with pytest.raises(CertificateError, match=r"or was changed \(x{200}\); ask for it anew"):
        stamped(made, CONTENT, bundle, None)


def test_only_a_key_for_timestamps_is_taken_as_one(online, bundle):
    _, pem = under(root.load(online.root, None).above)
    assert require_timestamping(pem, bundle) == parse_certificate(pem)
    _, party = under(root.load(online.root, None).above, building.leaf, of=subject("silo", "north"))
    with pytest.raises(CertificateError, match="for something else than timestamps alone"):
        require_timestamping(party, bundle)


def test_a_query_has_a_nonce_and_asks_for_sha_256_of_the_content():
    query = query_for(CONTENT)
    assert hashlib.sha256(CONTENT).digest() in query
    assert query_for(CONTENT) != query
