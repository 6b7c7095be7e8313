"""What `authority.pem` may hold: roots, and whom they delegated to."""

from __future__ import annotations

from datetime import timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from crypto.errors import CertificateError
from crypto.pki.authority import building
from crypto.pki.chain import Bundle, _spans
from crypto.pki.identity import Identity, Role, Subject
from crypto.pki.reading import parse_certificate, to_pem
from tests.support.online import week


@pytest.fixture(scope="module")
def parts():
    keys = [ec.generate_private_key(ec.SECP256R1()) for _ in range(4)]
    one, two = (building.root(name, key, week()) for name, key in zip(("One", "Two"), keys, strict=False))
    above = (parse_certificate(one), keys[0])
    issuing = building.issuing("Online", keys[2].public_key(), ["hub"], week(), above)
    leaf = building.leaf(Subject(Identity(Role.OPERATOR, "ada")), (), keys[3].public_key(), week(), above)
    return {"one": one, "two": two, "issuing": issuing, "leaf": leaf, "keys": keys}


def old_root(key):
    """As version 0.5 made them: path length 0."""
    name = building.common_name("Old")
    begun = building._authority(name, name, key.public_key(), week(), path_length=0)
    return to_pem(begun.sign(key, hashes.SHA256()))


def test_roots_and_issuing_authorities_in_any_order_and_each_once(parts):
    found = Bundle.read(parts["issuing"] + parts["two"] + parts["one"] + parts["one"])
    assert [root.name for root in found.roots] == ["Two", "One"]
    assert [(one.name, one.above.name) for one in found.issuing] == [("Online", "One")]
    assert Bundle.read(found.pem) == found
    assert found.roots_pem == parts["two"] + parts["one"]
    assert found.issuer_of(parse_certificate(parts["leaf"])).name == "One"


def test_roots_are_kept_with_whom_they_delegated_to(parts):
    found = Bundle.read(parts["issuing"] + parts["two"] + parts["one"])
    two, one = found.roots
    assert found.under({one.fingerprint}) == Bundle((one,), found.issuing)
    assert found.under({two.fingerprint}) == Bundle((two,), ())
    assert found.under({one.fingerprint, two.fingerprint}) == found
    assert (found.root(two.fingerprint), found.root("none")) == (two, None)


@pytest.mark.parametrize(
    ("begins", "ends", "spans"),
    [(0, 0, True), (1, -1, True), (1, 0, True), (0, -1, True), (-1, 0, False), (0, 1, False), (-1, 1, False)],
)
def test_an_authority_spans_what_lies_within_its_time(parts, begins, ends, spans):
    key, hour = parts["keys"][0], timedelta(hours=1)
    first, last = week()
    times = (first + begins * hour, last + ends * hour)
    inner, outer = (parse_certificate(building.root("One", key, one)) for one in (times, (first, last)))
    assert _spans(outer, inner) is spans


def test_what_no_root_of_the_file_signed_is_named(parts):
    with pytest.raises(CertificateError, match="'Online' in the authority's file was signed by no root of the file"):
        Bundle.read(parts["two"] + parts["issuing"])
    with pytest.raises(CertificateError, match="'ada' in the authority's file is not an authority's certificate"):
        Bundle.read(parts["one"] + parts["leaf"])
    for nothing in (b"", parts["leaf"], b"x" * 70_000):
        with pytest.raises(CertificateError, match="not an authority's certificate"):
            Bundle.read(nothing)


def test_a_root_of_version_05_has_nobody_under_it(parts):
    key = parts["keys"][0]
    old = old_root(key)
    assert Bundle.read(old).roots[0].name == "Old"
    under = building.issuing("Online", parts["keys"][2].public_key(), [], week(), (parse_certificate(old), key))
    with pytest.raises(CertificateError, match="'Old' has path length 0 and so may have no issuing authority"):
        Bundle.read(old + under)


def test_an_issuing_authority_that_may_delegate_on_or_sign_no_lists_is_refused(parts):
    above = parse_certificate(parts["one"])
    usages = {
        True: building._key_usage(authority=True),
        False: _signing(certificates=True, lists=False),
        None: _signing(certificates=False, lists=True),
    }
    for path_length, signs_lists in ((1, True), (None, True), (0, False), (0, None)):
        builder = (
            building._builder(building.common_name("Bad"), above.subject, parts["keys"][2].public_key(), week())
            .add_extension(x509.BasicConstraints(ca=True, path_length=path_length), critical=True)
            .add_extension(usages[signs_lists], critical=True)
        )
        bad = to_pem(builder.sign(parts["keys"][0], hashes.SHA256()))
        with pytest.raises(CertificateError, match="'Bad' in the authority's file is no issuing certificate"):
            Bundle.read(parts["one"] + bad)


def _signing(*, certificates, lists):
    names = ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "encipher_only")
    flags = dict.fromkeys(names, False)
    return x509.KeyUsage(
        digital_signature=False, key_cert_sign=certificates, crl_sign=lists, decipher_only=False, **flags
    )
