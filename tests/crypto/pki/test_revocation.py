"""Revocation lists: whose they are, how long they are fresh, and what they take back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from crypto.errors import CertificateError, EnrolmentError
from crypto.pki.authority import building
from crypto.pki.authority.keeping import Keeper, make_list
from crypto.pki.chain import Bundle
from crypto.pki.reading import parse_certificate
from crypto.pki.revocation import RevocationLists
from tests.support.online import week

NOW = datetime.now(UTC).replace(microsecond=0)
DAY = timedelta(days=1)


@pytest.fixture(scope="module")
def keeper():
    key = ec.generate_private_key(ec.SECP256R1())
    return Keeper(parse_certificate(building.root("Root", key, week(30))), key)


@pytest.fixture(scope="module")
def bundle(keeper):
    return Bundle.read(keeper.certificate.public_bytes(serialization.Encoding.PEM))


def test_lists_are_numbered_archived_and_read_together(keeper, bundle, tmp_path):
    first = make_list(keeper, {5: NOW - DAY}, tmp_path, NOW + DAY, NOW)
    second = make_list(keeper, {5: NOW, 6: NOW}, tmp_path, NOW + 2 * DAY, NOW - DAY)
    lists = RevocationLists.read(second + first + first, bundle)
    (root,) = bundle.roots
    one, two = lists.of[root.fingerprint]
    assert two.number == one.number + 1
    assert lists.newest(root) == two
    assert lists.revoked(root, 5) == NOW - DAY, "the earliest date counts"
    assert (lists.revoked(root, 6), lists.revoked(root, 7)) == (NOW, None)
    assert sorted(path.read_bytes() for path in (tmp_path / "crls").iterdir()) == sorted([first, second])
    assert (tmp_path / "crl.pem").read_bytes() == second


def test_a_list_is_fresh_until_the_next_was_due(keeper, bundle, tmp_path):
    lists = RevocationLists.read(make_list(keeper, {}, tmp_path, NOW + DAY, NOW), bundle)
    (root,) = bundle.roots
    lists.require_fresh(root, NOW + DAY)
    with pytest.raises(
        CertificateError, match="the revocation list of the authority 'Root' is stale: the next one was"
    ):
        lists.require_fresh(root, NOW + 2 * DAY)
    with pytest.raises(CertificateError, match="there is no revocation list of the authority 'Root'"):
        RevocationLists({}).require_fresh(root, NOW)


def test_an_older_list_undoes_nothing(keeper, bundle, tmp_path):
    older = RevocationLists.read(make_list(keeper, {5: NOW}, tmp_path, NOW + DAY, NOW), bundle)
    newer = RevocationLists.read(make_list(keeper, {}, tmp_path, NOW + DAY, NOW), bundle)
    (root,) = bundle.roots
    for merged in (newer.merged(older), older.merged(newer)):
        assert merged.revoked(root, 5) == NOW
        assert merged.newest(root).number == newer.newest(root).number


def test_no_list_outlives_its_authority(keeper, tmp_path):
    pem = make_list(keeper, {}, tmp_path, NOW + 400 * DAY, NOW)
    assert x509.load_pem_x509_crl(pem).next_update_utc == keeper.certificate.not_valid_after_utc
    with pytest.raises(EnrolmentError, match="would be stale when it is made"):
        make_list(keeper, {}, tmp_path, NOW, NOW)


def signed(keeper, *, number=True, critical=None, key=None):
    builder = x509.CertificateRevocationListBuilder().issuer_name(keeper.certificate.subject).last_update(NOW)
    builder = builder.next_update(NOW + DAY)
    if number:
        builder = builder.add_extension(x509.CRLNumber(1), critical=False)
    if critical:
        builder = builder.add_extension(critical, critical=True)
    return builder.sign(key or keeper.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def test_every_list_that_does_not_count_is_named_with_its_reason(keeper, bundle):
    partial = x509.IssuingDistributionPoint(None, None, True, False, None, False, False)
    other = ec.generate_private_key(ec.SECP256R1())
    pems = [signed(keeper, number=False), signed(keeper, critical=partial), signed(keeper, key=other), signed(keeper)]
    with pytest.raises(CertificateError) as refused:
        RevocationLists.read(b"".join(pems), bundle)
    for reason in (
        "list 1 cannot be read, or has no number",
        "list 2 of 'Root' is not for all certificates",
        "list 3 of 'Root' was signed by no authority of authority.pem",
    ):
        assert reason in str(refused.value)
    assert "list 4" not in str(refused.value)


@pytest.mark.parametrize("content", [b"", b"nothing", b"-----BEGIN X509 CRL-----\n", b"x" * (1 << 24) + b"x"])
def test_what_holds_no_lists_is_refused(bundle, content):
    with pytest.raises(CertificateError, match="holds no revocation lists, is cut short or holds something else"):
        RevocationLists.read(content, bundle)
