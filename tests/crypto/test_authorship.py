"""An author's signature: over digest and purpose, by an author alone."""

import json
import time
from datetime import UTC, datetime, timedelta

import pytest

from crypto.authorship import SignatureBeside, author_message, author_of, sign_study
from crypto.errors import CertificateError, SignatureRefused
from crypto.pki.certificates import Trust
from support.certificates import load, make_authority

DIGEST, PURPOSE = "0" * 64, "Say who falls."


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return make_authority(tmp_path_factory.mktemp("consortium"))


@pytest.fixture(scope="module")
def ann(authority):
    return load(authority.credential("author", "ann"))


@pytest.fixture(scope="module")
def trust(authority):
    return Trust(authority.pem)


def test_a_signature_is_of_one_study_with_one_purpose(trust, ann):
    signed = sign_study(ann, DIGEST, PURPOSE)
    assert author_of(trust, DIGEST, PURPOSE, signed) == ann.identity
    for digest, purpose in (("1" * 64, PURPOSE), (DIGEST, "Sell it."), (PURPOSE, DIGEST)):
        with pytest.raises(SignatureRefused):
            author_of(trust, digest, purpose, signed)


def test_text_around_a_certificate_that_no_file_could_hold_is_refused(trust, ann):
    signed = sign_study(ann, DIGEST, PURPOSE)
    wrapped = SignatureBeside("Grüße\n".encode() + signed.certificate, signed.signature)
    with pytest.raises(SignatureRefused, match="no ASCII"):
        author_of(trust, DIGEST, PURPOSE, wrapped)


@pytest.mark.parametrize("role", ["operator", "viewer", "approver", "silo", "coordinator"])
def test_nobody_but_an_author_signs_a_study(authority, trust, role):
    other = load(authority.credential(role, "other"))
    with pytest.raises(CertificateError, match="signs no study; an author does"):
        sign_study(other, DIGEST, PURPOSE)
    forged = SignatureBeside.made(other, author_message(DIGEST, PURPOSE))
    with pytest.raises(CertificateError):
        author_of(trust, DIGEST, PURPOSE, forged)


def test_a_stranger_and_an_old_certificate_do_not_count(authority, trust, ann, tmp_path):
    stranger = load(make_authority(tmp_path).credential("author", "ann"))
    home = authority.credential("author", "old", period=(timedelta(minutes=-1), timedelta(seconds=2)))
    old = load(home)
    signed = sign_study(old, DIGEST, PURPOSE)
    time.sleep(max(0.0, (old.ends - datetime.now(UTC)).total_seconds() + 0.1))
    for given in (sign_study(stranger, DIGEST, PURPOSE), signed):
        with pytest.raises(CertificateError):
            author_of(trust, DIGEST, PURPOSE, given)


def test_a_file_is_read_as_it_was_written(ann, tmp_path):
    signed, path = sign_study(ann, DIGEST, PURPOSE), tmp_path / "study.yaml.ann.sig"
    path.write_text(signed.text)
    assert SignatureBeside.read(path) == signed
    assert set(json.loads(signed.text)) == {"certificate", "signature"}


@pytest.mark.parametrize("text", ["", "{", "[]", "7", '{"certificate": "x"}', '{"certificate": 1, "signature": "00"}'])
def test_what_is_no_signature_is_named_by_its_file(tmp_path, text):
    path = tmp_path / "study.yaml.ann.sig"
    path.write_text(text)
    with pytest.raises(SignatureRefused, match=r"study\.yaml\.ann\.sig: cannot be read; sign again"):
        SignatureBeside.read(path)


def test_a_revoked_author_signs_nothing_that_counts(tmp_path):
    authority = make_authority(tmp_path)
    eve = load(authority.credential("author", "eve"))
    signed = sign_study(eve, DIGEST, PURPOSE)
    (tmp_path / "authority.pem").write_bytes(authority.pem)
    assert author_of(Trust.load(tmp_path / "authority.pem"), DIGEST, PURPOSE, signed) == eve.identity
    (tmp_path / "crls.pem").write_bytes(authority.revoke("fedward://author/eve", datetime.now(UTC)))
    with pytest.raises(CertificateError, match="revoked"):
        author_of(Trust.load(tmp_path / "authority.pem"), DIGEST, PURPOSE, signed)
