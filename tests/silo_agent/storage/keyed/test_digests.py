"""Digests that nobody can compare who lacks the key."""

from __future__ import annotations

import hashlib
import hmac

import pytest

from silo_agent.storage.keyed.digests import NEVER, Digests

PLAIN = hashlib.sha256(b"content").hexdigest()
SECRET = bytes(range(32))


def part(content):
    """One part of a canonical form, written out here a second time."""
    return b"s" + len(content).to_bytes(8, "little") + content


def hkdf(secret, info):
    """RFC 5869 with an empty salt, for 32 bytes."""
    key = hmac.digest(bytes(32), secret, "sha256")
    return hmac.digest(key, info + b"\x01", "sha256")


def test_a_digest_is_the_hmac_of_kind_and_content_under_a_key_of_the_secret():
    key = hkdf(SECRET, b"fedward/1" + part(b"state digests"))
    content = b"fedward/1" + part(b"digest") + part(b"release") + part(PLAIN.encode())
    assert Digests.of(SECRET).keyed("release", PLAIN) == hmac.new(key, content, "sha256").hexdigest()


def test_a_folder_is_named_by_its_key_and_no_digest_is_its_name():
    digests = Digests(SECRET)
    assert digests.folder == hmac.new(SECRET, b"fedward/1" + part(b"folder"), "sha256").hexdigest()
    assert Digests(bytes(32)).folder != digests.folder


def test_only_kind_content_and_key_together_fit():
    digests = Digests.of(SECRET)
    stored = digests.keyed("release", PLAIN)
    assert digests.fits(stored, "release", PLAIN)
    assert not digests.fits(stored, "sealed", PLAIN)
    assert not digests.fits(stored, "release", hashlib.sha256(b"other").hexdigest())
    assert not Digests.of(bytes(32)).fits(stored, "release", PLAIN)


@pytest.mark.parametrize("stored", [NEVER, PLAIN])
def test_neither_a_blank_nor_a_plain_digest_fits_anything(stored):
    assert not Digests.of(SECRET).fits(stored, "release", PLAIN)


def test_its_repr_shows_no_key():
    assert repr(Digests(SECRET)) == "Digests()"
