from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from crypto.errors import CertificateError, SignatureRefused
from crypto.pki.certificates import Trust
from crypto.pki.dated import Signer, signer_at
from crypto.pki.identity import Identity, Role

NORTH = Identity(Role.SILO, "north")
TODAY = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)
LATER = TODAY + timedelta(days=90)
"""Certificates of these tests last a month."""


@pytest.fixture(scope="module")
def trust(authority_folder):
    return Trust((authority_folder / "authority.pem").read_bytes())


@pytest.fixture
def ask(trust, silos):
    north = silos["north"]

    def ask(at, now, *, message=b"m", signed=b"m", role=Role.SILO):
        return signer_at(trust, north.certificate_pem, message, north.sign(signed), at, role=role, now=now)

    return ask


def test_a_valid_certificate_needs_no_time(ask):
    for at in (TODAY.isoformat(), "1999-01-01T00:00:00+00:00", "no time"):
        assert ask(at, TODAY) == Signer(NORTH, None)


def test_an_expired_one_counts_as_of_the_time_that_is_named(ask):
    found = ask(TODAY.isoformat(), LATER)
    assert found.identity == NORTH
    assert TODAY < found.expired < LATER


@pytest.mark.parametrize("at", ["", "no time", "2026-01-31T08:00:00"])
def test_without_a_time_with_its_zone_an_expired_one_counts_for_nothing(ask, at):
    with pytest.raises(CertificateError, match="expired on"):
        ask(at, LATER)


@pytest.mark.parametrize("at", [TODAY - timedelta(days=9), LATER])
def test_a_time_outside_the_certificates_own_counts_for_nothing(ask, at):
    with pytest.raises(CertificateError, match=r"says that it was signed at .*: the certificate of"):
        ask(at.isoformat(), LATER)


@pytest.mark.parametrize("now", [TODAY, LATER])
def test_signature_and_role_have_to_fit_whenever_it_is_asked(ask, now):
    with pytest.raises(SignatureRefused):
        ask(TODAY.isoformat(), now, signed=b"n")
    with pytest.raises(CertificateError, match="a coordinator is needed"):
        ask(TODAY.isoformat(), now, role=Role.COORDINATOR)
