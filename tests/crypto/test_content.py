from __future__ import annotations

import dataclasses
import hashlib

import pytest

from crypto.certificates import Trust
from crypto.content import UploadHeader, sha256, sign_header, verify_header
from crypto.errors import CertificateError, FrameError, SignatureRefused
from crypto.identity import Identity, Role

HEADER = UploadHeader("study", 1, 0, "heads", "north", "ring", 10, 40, hashlib.sha256(b"content").hexdigest())


@pytest.fixture
def trust(silos):
    return Trust(silos["north"].authority_pem)


def test_hashing_in_chunks_is_hashing_at_once():
    assert sha256([b"con", bytearray(b"te"), memoryview(b"nt")]) == sha256([b"content"]) == HEADER.content_sha256
    assert sha256([]) == hashlib.sha256().hexdigest()


def test_a_signed_header_verifies(trust, silos):
    signature = sign_header(silos["north"], HEADER)
    found = verify_header(trust, silos["north"].certificate_pem, HEADER, signature)
    assert found == Identity(Role.SILO, "north")


CHANGES = {
    "study": "other",
    "round": 2,
    "attempt": 1,
    "tensor": "encoder",
    "kind": "ckks",
    "values": 11,
    "size": 44,
    "content_sha256": "0" * 64,
}


@pytest.mark.parametrize("field", CHANGES)
def test_every_field_is_signed(trust, silos, field):
    signature = sign_header(silos["north"], HEADER)
    changed = dataclasses.replace(HEADER, **{field: CHANGES[field]})
    with pytest.raises(SignatureRefused):
        verify_header(trust, silos["north"].certificate_pem, changed, signature)


def test_a_silo_signs_only_for_itself(trust, silos, coordinator):
    with pytest.raises(SignatureRefused, match="fedward://silo/south signed an upload in the name of 'north'"):
        verify_header(trust, silos["south"].certificate_pem, HEADER, sign_header(silos["south"], HEADER))
    with pytest.raises(CertificateError, match="silo is needed"):
        verify_header(trust, coordinator.certificate_pem, HEADER, sign_header(coordinator, HEADER))


@pytest.mark.parametrize(
    "change",
    [{"round": -1}, {"attempt": -1}, {"values": -1}, {"size": 1 << 63}, {"kind": "clear"}]
    + [{"content_sha256": text} for text in ("", "0" * 63, "G" * 64, "0" * 64 + "\n")],
)
def test_an_impossible_header_does_not_exist(change):
    with pytest.raises(FrameError, match="malformed"):
        dataclasses.replace(HEADER, **change)
