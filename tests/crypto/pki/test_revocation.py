"""Revocation lists: whose they are, how long they are fresh, and what they take back."""

from __future__ import annotations

import itertools
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from crypto.errors import CertificateError, EnrolmentError
from crypto.pki.authority import building, root
from crypto.pki.authority.folder import Keeper, make_list
from crypto.pki.chain import Bundle
from crypto.pki.reading import parse_certificate
from crypto.pki.revocation import CLOCK_SKEW, LONGEST, LONGEST_ONLINE, RevocationLists, joined
from tests.support.online import Online, week

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
    (top,) = bundle.roots
    one, two = lists.of[top.fingerprint]
    assert two.number == one.number + 1
    assert lists.newest(top) == two
    assert lists.revoked(top, 5) == NOW - DAY, "the earliest date counts"
    assert (lists.revoked(top, 6), lists.revoked(top, 7)) == (NOW, None)
    assert sorted(path.read_bytes() for path in (tmp_path / "crls").iterdir()) == sorted([first, second])
    assert (tmp_path / "crl.pem").read_bytes() == second


def test_a_list_is_fresh_until_the_next_was_due(keeper, bundle, tmp_path):
    lists = RevocationLists.read(make_list(keeper, {}, tmp_path, NOW + DAY, NOW), bundle)
    (top,) = bundle.roots
    lists.require_fresh(top, NOW + DAY)
    with pytest.raises(
        CertificateError, match="the revocation list of the authority 'Root' is stale: the next one was"
    ):
        lists.require_fresh(top, NOW + 2 * DAY)
    with pytest.raises(CertificateError, match="there is no revocation list of the authority 'Root'"):
        RevocationLists({}).require_fresh(top, NOW)


def test_two_lists_of_one_number_count_both_and_the_earliest_date_is_kept(keeper, bundle, tmp_path):
    (top,) = bundle.roots
    pems = [
        make_list(keeper, revoked, tmp_path / name, NOW + DAY, NOW)
        for name, revoked in (("a", {5: NOW, 6: NOW}), ("b", {5: NOW - DAY}), ("c", {7: NOW - 2 * DAY}))
    ]
    for some in itertools.permutations(pems):
        lists = RevocationLists.read(b"".join(some), bundle)
        assert len({one.number for one in lists.of[top.fingerprint]}) == 1
        assert [lists.revoked(top, serial) for serial in (5, 6, 7)] == [NOW - DAY, NOW, NOW - 2 * DAY]
        assert RevocationLists.read(joined(some[0], b"".join(some[1:]), bundle), bundle).revoked(top, 7)
    one, two, _ = (RevocationLists.read(pem, bundle) for pem in pems)
    assert two.merged(one).revoked(top, 5) == one.merged(two).revoked(top, 5) == NOW - DAY


def test_a_newer_list_may_give_an_earlier_date(keeper, bundle, tmp_path):
    (top,) = bundle.roots
    older = make_list(keeper, {5: NOW}, tmp_path, NOW + DAY, NOW)
    newer = make_list(keeper, {5: NOW - DAY}, tmp_path, NOW + DAY, NOW)
    lists = RevocationLists.read(older + newer, bundle)
    assert lists.revoked(top, 5) == NOW - DAY
    assert RevocationLists.read(older, bundle).lacks(top, lists.newest(top))


def test_a_list_from_the_future_makes_nothing_fresh_and_revokes_all_the_same(keeper, bundle, tmp_path):
    (top,) = bundle.roots
    stale = make_list(keeper, {}, tmp_path, NOW - DAY / 4, NOW - 2 * DAY)
    future = make_list(keeper, {5: NOW}, tmp_path, NOW + 9 * DAY, NOW + DAY)
    with pytest.raises(CertificateError, match=r"is from .* which is the future; correct this machine's clock, or"):
        RevocationLists.read(future, bundle).require_fresh(top, NOW)
    lists = RevocationLists.read(stale + future, bundle)
    for at in (NOW, NOW - DAY / 2):
        with pytest.raises(CertificateError, match="is stale") if at == NOW else nullcontext():
            lists.require_fresh(top, at)
    assert lists.revoked(top, 5) == NOW
    lists.require_fresh(top, NOW + 2 * DAY)
    lists.require_fresh(top, NOW, now=NOW + DAY)


def test_no_list_is_fresh_for_long_whatever_it_says(tmp_path):
    online = Online(tmp_path, days=900)
    bundle = Bundle.read(online.pem)
    above = Keeper(parse_certificate((online.root / "authority.pem").read_bytes()), root_key(online))
    for keeper, authority, longest in (
        (online.stolen, bundle.issuing[0], LONGEST_ONLINE),
        (above, bundle.roots[0], LONGEST),
    ):
        lists = RevocationLists.read(make_list(keeper, {}, tmp_path, NOW + 890 * DAY, NOW), bundle)
        until = NOW - CLOCK_SKEW + longest
        lists.require_fresh(authority, until)
        with pytest.raises(CertificateError, match=f"the next one was due on {until:%Y-%m-%d}"):
            lists.require_fresh(authority, until + timedelta(seconds=1))


def root_key(online):
    return root.load(online.root, None).key


def test_an_older_list_undoes_nothing(keeper, bundle, tmp_path):
    older = RevocationLists.read(make_list(keeper, {5: NOW}, tmp_path, NOW + DAY, NOW), bundle)
    newer = RevocationLists.read(make_list(keeper, {}, tmp_path, NOW + DAY, NOW), bundle)
    (top,) = bundle.roots
    for merged in (newer.merged(older), older.merged(newer)):
        assert merged.revoked(top, 5) == NOW
        assert merged.newest(top).number == newer.newest(top).number


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
        "; list 3 of 'Root' was signed by no authority of authority.pem",
    ):
        assert reason in str(refused.value)
    assert str(refused.value).startswith("list 1 cannot be read")
    assert "list 4" not in str(refused.value)


@pytest.mark.parametrize("inside", ["AAAA", "nothing of this kind", ""])
def test_what_is_no_list_inside_is_refused_by_its_place(keeper, bundle, inside):
    junk = f"-----BEGIN X509 CRL-----\n{inside}\n-----END X509 CRL-----\n".encode()
    with pytest.raises(CertificateError, match=r"^list 2 cannot be read, or has no number; take it anew"):
        RevocationLists.read(signed(keeper) + junk, bundle)


@pytest.mark.parametrize("content", [b"", b"nothing", b"-----BEGIN X509 CRL-----\n", b"x" * (1 << 24) + b"x"])
def test_what_holds_no_lists_is_refused(bundle, content):
    with pytest.raises(CertificateError, match="holds no revocation lists, is cut short or holds something else"):
        RevocationLists.read(content, bundle)
