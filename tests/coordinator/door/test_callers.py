"""Callers are named by their certificate; whoever has no valid one has no name."""

from __future__ import annotations

import pytest

from coordinator.door.callers import UNKNOWN, certificate_of, label, label_of
from crypto.errors import CertificateError
from crypto.pki.certificates import Trust
from crypto.pki.identity import Identity, Role
from support.certificates import load, make_authority


class Context:
    def __init__(self, pem):
        self.pem = pem

    def auth_context(self):
        return {"x509_pem_cert": [self.pem]}


def test_labels_name_role_and_party(authority, tmp_path):
    pem = load(authority.credential("silo", "labelled")).certificate_pem
    assert label_of(Trust(authority.pem), Context(pem)) == "silo/labelled"
    assert label(Identity(Role.OPERATOR, "ops")) == "operator/ops"
    strange = load(make_authority(tmp_path / "other").credential("silo", "north")).certificate_pem
    assert label_of(Trust(authority.pem), Context(strange)) == UNKNOWN
    with pytest.raises(CertificateError, match="no client certificate was presented"):
        certificate_of(Context(b""))
