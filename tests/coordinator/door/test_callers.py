"""The signatures of a certificate are checked once; time, role and revocation in every call, and no refusal is kept."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from coordinator.door import callers
from coordinator.door.callers import UNKNOWN, RememberingTrust, certificate_of, label
from crypto.errors import CertificateError
from crypto.pki import certificates
from crypto.pki.identity import Identity, Role
from support.certificates import load, make_authority


class Context:
    def __init__(self, pem):
        self.pem = pem

    def auth_context(self):
        return {"x509_pem_cert": [self.pem]}


@pytest.fixture
def examined(monkeypatch):
    """The certificates that were examined in full."""
    seen, real = [], certificates.Trust.vouched

    def examine(self, pem):
        seen.append(pem)
        return real(self, pem)

    monkeypatch.setattr(certificates.Trust, "vouched", examine)
    return seen


def test_it_is_examined_once(authority, examined):
    pem = load(authority.credential("silo", "often")).certificate_pem
    trust = RememberingTrust(authority.pem)
    examined.clear()
    for _ in range(5):
        assert trust.identify(pem) == trust.identify(pem, role=Role.SILO) == Identity(Role.SILO, "often")
    assert len(examined) == 1


def test_role_and_time_are_judged_in_every_call(authority, examined):
    pem = load(authority.credential("silo", "asked")).certificate_pem
    trust = RememberingTrust(authority.pem)
    trust.identify(pem)
    examined.clear()
    with pytest.raises(CertificateError, match="but an operator is needed"):
        trust.identify(pem, role=Role.OPERATOR)
    with pytest.raises(CertificateError, match="expired"):
        trust.identify(pem, now=datetime.now(UTC) + timedelta(days=365))
    assert not examined


def test_no_refusal_is_remembered(authority, examined, tmp_path):
    pem = load(make_authority(tmp_path / "other").credential("silo", "north")).certificate_pem
    trust = RememberingTrust(authority.pem)
    examined.clear()
    for _ in range(3):
        assert trust.label(Context(pem)) == UNKNOWN
    assert len(examined) == 3


def test_few_certificates_are_remembered(authority, monkeypatch):
    monkeypatch.setattr(callers, "_MOST", 2)
    trust = RememberingTrust(authority.pem)
    for name in ("one", "two", "three"):
        trust.identify(load(authority.credential("silo", f"few-{name}")).certificate_pem)
        assert len(trust._known) <= 2


def test_labels_name_role_and_party(authority):
    pem = load(authority.credential("silo", "labelled")).certificate_pem
    assert RememberingTrust(authority.pem).label(Context(pem)) == "silo/labelled"
    assert label(Identity(Role.OPERATOR, "ops")) == "operator/ops"
    with pytest.raises(CertificateError, match="no client certificate was presented"):
        certificate_of(Context(b""))
