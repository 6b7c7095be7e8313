"""A certificate is examined once in a while; one that is refused, or expires, is never remembered."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from coordinator.door import callers
from coordinator.door.callers import REMEMBERED_SECONDS, UNKNOWN, RememberingTrust, certificate_of, label
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
    seen, examine = [], certificates.Trust.identify

    def identify(self, pem, **given):
        seen.append(pem)
        return examine(self, pem, **given)

    monkeypatch.setattr(certificates.Trust, "identify", identify)
    return seen


def test_it_is_examined_once_until_the_time_is_over(authority, examined):
    pem, now = load(authority.credential("silo", "often")).certificate_pem, [0.0]
    trust = RememberingTrust(authority.pem, clock=lambda: now[0])
    examined.clear()
    for _ in range(5):
        assert trust.identify(pem) == trust.identify(pem, role=Role.SILO) == Identity(Role.SILO, "often")
    assert len(examined) == 1
    now[0] = REMEMBERED_SECONDS
    trust.identify(pem)
    assert len(examined) == 2


def test_a_role_and_a_time_of_their_own_are_examined(authority, examined):
    pem = load(authority.credential("silo", "asked")).certificate_pem
    trust = RememberingTrust(authority.pem)
    trust.identify(pem)
    examined.clear()
    with pytest.raises(CertificateError, match="but a operator is needed"):
        trust.identify(pem, role=Role.OPERATOR)
    with pytest.raises(CertificateError, match="expired"):
        trust.identify(pem, now=datetime.now(UTC) + timedelta(days=365))
    assert len(examined) == 2


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
