"""The root's word for a party: one spelling, one signature, a secret that nobody reads from it."""

from __future__ import annotations

import base64
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st

from crypto.errors import CertificateError, EnrolmentError
from crypto.pki.admission import SECRET_BYTES, Admission, Token, secret_digest
from crypto.pki.authority import building
from crypto.pki.identity import Identity, Role, Subject
from crypto.pki.reading import fingerprint_of, parse_certificate

NOW = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)
NORTH = Subject(Identity(Role.SILO, "north"), "north-ward")
SECRET = bytes(range(SECRET_BYTES))
KEY = ec.generate_private_key(ec.SECP256R1())
ROOT = parse_certificate(building.root("Root", KEY, building.period(10)))


def admission(**changes):
    said = {
        "root": fingerprint_of(ROOT),
        "serial": 7,
        "subject": NORTH,
        "hosts": (),
        "expires": NOW + timedelta(days=9),
        "redeem_until": NOW + timedelta(days=1),
        "secret_sha256": secret_digest(SECRET),
    }
    return Admission(**{**said, **changes}).signed(KEY)


def test_a_token_is_read_as_it_was_written():
    token = Token(admission(), SECRET, "https://authority.example:8443")
    assert Token.parse(f" {token.text()}\n") == token
    assert token.root_fingerprint == fingerprint_of(ROOT)
    token.admission.verify(ROOT)
    token.admission.require_secret(SECRET, NOW)
    assert SECRET.hex() not in repr(token)


@given(st.integers(0, 1_000), st.integers(0, 255))
def test_a_token_that_was_changed_anywhere_promises_nothing_else(place, character):
    text = Token(admission(), SECRET).text()
    changed = text[: place % len(text)] + chr(character) + text[place % len(text) + 1 :]
    try:
        token = Token.parse(changed)
        token.admission.verify(ROOT)
        token.admission.require_secret(token.secret, NOW)
    except (EnrolmentError, CertificateError):
        return
    assert (replace(token.admission, signature=b""), token.secret) == (replace(admission(), signature=b""), SECRET)


def test_a_token_in_other_characters_is_no_token():
    """Only one line stands for a token, so what was copied wrongly is noticed."""
    text = Token(admission(), SECRET).text().removeprefix("fedward1.")
    body = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    for spaced in (body.replace(b"{", b"{ ", 1), body + b" "):
        with pytest.raises(EnrolmentError, match="no whole token"):
            Token.parse("fedward1." + base64.urlsafe_b64encode(spaced).decode().rstrip("="))


@pytest.mark.parametrize("text", ["", "fedward1.", "fedward1.e30", "fedward2.e30", "fedward1." + "A" * 70_000])
def test_what_is_no_token_is_refused_without_showing_it(text):
    with pytest.raises(EnrolmentError, match=r"no whole token; it is one line that begins with fedward1\."):
        Token.parse(text)


def test_an_url_has_no_path():
    for url in ("http://a", "https://a/b", "https://A", "ftp://a"):
        with pytest.raises(EnrolmentError, match="https://host:port"):
            Token(admission(), SECRET, url)


@pytest.mark.parametrize(
    "change",
    [
        {"serial": 8},
        {"subject": Subject(Identity(Role.SILO, "north"), "clinic")},
        {"subject": Subject(Identity(Role.SILO, "south"), "north-ward")},
        {"hosts": ("a",)},
        {"expires": NOW + timedelta(days=99)},
        {"redeem_until": NOW + timedelta(days=99)},
        {"secret_sha256": secret_digest(b"")},
        {"signature": b""},
    ],
)
def test_nothing_of_it_can_be_changed(change):
    with pytest.raises(CertificateError, match="was not signed by the root that it names"):
        replace(admission(), **change).verify(ROOT)


def test_another_root_did_not_sign_it():
    other = ec.generate_private_key(ec.SECP256R1())
    with pytest.raises(CertificateError, match="was not signed by the root"):
        admission().verify(parse_certificate(building.root("Root", other, building.period(10))))


def test_the_extension_of_a_certificate_is_read_as_it_was_written():
    value = admission().to_extension().value
    read = Admission.from_extension(value)
    read.verify(ROOT)
    assert replace(read, signature=b"") == replace(admission(), signature=b"")
    for wrong in (b"", value[:-1], value + b" ", value.replace(b'"hosts"', b' "hosts"'), b"\x04\x02{}", b"x" * 9_000):
        with pytest.raises(CertificateError, match="cannot be read"):
            Admission.from_extension(wrong)


def test_a_certificate_must_be_what_was_admitted_in_everything():
    hub = admission(subject=Subject(Identity(Role.COORDINATOR, "hub")), hosts=("hub.example",))
    hub.require_covers(hub.subject, ["hub.example"], "ab" * 32, hub.expires)
    named = replace(hub, key="ab" * 32)
    named.require_covers(hub.subject, ["hub.example"], "ab" * 32, hub.expires)
    with pytest.raises(CertificateError) as refused:
        named.require_covers(NORTH, ["evil.example"], "cd" * 32, hub.expires + timedelta(seconds=1))
    for fault in (
        "it is for fedward://silo/north",
        "its hosts are evil.example",
        "it ends on 2026-05-13",
        "SHA-256 cd",
    ):
        assert fault in str(refused.value)


def test_admissions_of_version_0_6_are_read_as_they_were():
    old = admission()
    assert not {"key", "made", "number"} & old.to_json().keys()
    new = admission(key="ab" * 32, made=NOW, number=7)
    for one in (old, new):
        assert Admission.from_json(one.to_json()) == one
    assert len({one.digest for one in (old, new, admission(key="ab" * 32, made=NOW, number=8))}) == 3
    assert old.digest == admission().digest, "another signature of the same word"
    unsaid = "2026-05-04T03:02:01"
    for field, wrong in (("key", "AB" * 32), ("key", None), ("made", unsaid), ("number", 0), ("number", -1)):
        with pytest.raises(CertificateError, match="cannot be read"):
            Admission.from_json({**new.to_json(), field: wrong})


def test_a_secret_is_the_tokens_and_lasts_until_its_day():
    with pytest.raises(EnrolmentError, match="secret is not that of its admission"):
        admission().require_secret(bytes(SECRET_BYTES), NOW)
    with pytest.raises(EnrolmentError, match="could be redeemed until 2026-05-05"):
        admission().require_secret(SECRET, NOW + timedelta(days=2))
