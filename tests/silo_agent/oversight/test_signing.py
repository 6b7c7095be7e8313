from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from crypto.errors import CertificateError, SignatureRefused
from crypto.pki.certificates import Credential, Trust
from policies.errors import CosignError, ExportError
from policies.ledger.chain import Genesis
from policies.ledger.cosign import checkpoint
from silo_agent.oversight.recovery import checked
from silo_agent.oversight.signing import (
    Detached,
    binding,
    cosigner_of,
    held_by,
    is_vouched,
    sign_file,
    signer_of,
    verifier,
)
from support.certificates import load, make_authority
from support.cosigners import cosigned
from support.thefts import Consortium

NOW = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)
"""Within the certificates' time, whenever in the run they are made."""
AT = NOW.isoformat()
LATER = NOW + timedelta(days=200)
"""Certificates of the tests last a month, their authority a year."""


@pytest.fixture
def detached(credentials):
    return sign_file(credentials["north"], "json", AT, b"content")


def test_anybody_with_the_authoritys_certificate_can_tell_who_signed(authority, detached, tmp_path):
    detached.write(tmp_path / "ledger.json.sig")
    again = Detached.read(tmp_path / "ledger.json.sig")
    assert again == detached
    signer = signer_of(Trust(authority.pem), again, b"content")
    assert (signer.identity.uri, signer.expired) == ("fedward://silo/north", None)


def test_a_signature_fits_its_bytes_its_kind_and_its_time_alone(authority, detached):
    others = (replace(detached, kind="csv"), replace(detached, at="2026-01-31T08:00:00+00:00"))
    for other, content in ((detached, b"Content"), *((one, b"content") for one in others)):
        with pytest.raises(SignatureRefused):
            signer_of(Trust(authority.pem), other, content)


def test_only_a_silo_of_this_consortium_signs(authority, foreign_authority, coordinator, detached):
    with pytest.raises(CertificateError, match="not issued by the authority"):
        signer_of(Trust(foreign_authority.pem), detached, b"content")
    with pytest.raises(CertificateError, match="a silo is needed"):
        signer_of(Trust(authority.pem), sign_file(coordinator, "json", AT, b"content"), b"content")


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"format": "fedward detached signature 1"}', "\x00"])
def test_what_is_no_signature_is_a_sentence(tmp_path, content):
    (tmp_path / "x.sig").write_text(content)
    for path in (tmp_path / "x.sig", tmp_path / "absent.sig"):
        with pytest.raises(ExportError, match="no signature of an export"):
            Detached.read(path)


# --- certificates that expired since ----------------------------------------------------------------------------------
def test_after_its_certificate_expired_a_signature_counts_as_of_the_time_that_it_names(authority, detached):
    signer = signer_of(Trust(authority.pem), detached, b"content", now=LATER)
    assert signer.identity.uri == "fedward://silo/north"
    assert NOW < signer.expired < LATER
    with pytest.raises(SignatureRefused):
        signer_of(Trust(authority.pem), detached, b"Content", now=LATER)


def test_it_counts_after_the_authority_expired_too(authority, detached):
    end = NOW + timedelta(days=4000)
    assert signer_of(Trust(authority.pem), detached, b"content", now=end).expired < end


@pytest.mark.parametrize("days", [-40, 40, 4000])
def test_a_time_at_which_the_certificate_was_not_valid_is_refused(authority, credentials, days):
    at = (NOW + timedelta(days=days)).isoformat()
    detached = sign_file(credentials["north"], "json", at, b"content")
    assert signer_of(Trust(authority.pem), detached, b"content").expired is None, "today the certificate is enough"
    with pytest.raises(CertificateError, match=r"says that it was signed at .*: .*(not yet valid|expired on)"):
        signer_of(Trust(authority.pem), detached, b"content", now=LATER)


@pytest.mark.parametrize("at", ["", "soon", NOW.replace(tzinfo=None).isoformat()], ids=["none", "no time", "no zone"])
def test_without_a_time_an_expired_certificate_is_refused(authority, credentials, at):
    detached = sign_file(credentials["north"], "json", at, b"content")
    with pytest.raises(CertificateError, match="expired on"):
        signer_of(Trust(authority.pem), detached, b"content", now=LATER)


def test_a_cosignature_counts_as_of_its_statement(authority, coordinator, credentials):
    trust, said = Trust(authority.pem), checkpoint("north", Genesis("north-ward", 0.2, 1e-5), (), AT)
    found, signer = cosigner_of(trust, cosigned(said, coordinator, credentials["north"]), now=LATER)
    assert (found.signer, signer.identity.uri) == ("fedward://coordinator/hub",) * 2
    assert signer.expired is not None
    with pytest.raises(CosignError, match="cannot cosign"):
        cosigner_of(trust, cosigned(said, credentials["north"], credentials["north"]), now=LATER)
    with pytest.raises(SignatureRefused):
        cosigner_of(
            trust, replace(cosigned(said, coordinator, credentials["north"]), checkpoint=replace(said, epsilon=1.0))
        )


def test_a_kept_cosignature_of_a_root_that_was_taken_out_counts_on_and_a_forged_one_does_not(
    authority, foreign_authority, coordinator, credentials
):
    now, after = Trust(authority.pem), Trust(foreign_authority.pem)
    said = checkpoint("north", Genesis("north-ward", 0.2, 1e-5), (), AT)
    kept = replace(cosigned(said, coordinator, credentials["north"]), signer="fedward://coordinator/hub")
    assert held_by(now, kept) == held_by(after, kept) == kept
    assert (is_vouched(now, kept), is_vouched(after, kept)) == (True, False)
    with pytest.raises(SignatureRefused):
        held_by(now, replace(kept, checkpoint=replace(said, epsilon=1.0)))


def test_a_kept_cosignature_counts_on_if_its_signer_was_revoked_from_before_it(tmp_path):
    """A stolen key is revoked as of the theft: this must stop no silo whose ledger it cosigned since."""
    authority = make_authority(tmp_path)
    homes = [authority.credential("coordinator", "hub"), authority.credential("silo", "north")]
    coordinator, north = map(load, homes)
    said = checkpoint("north", Genesis("north-ward", 0.2, 1e-5), (), AT)
    kept = replace(cosigned(said, coordinator, north), signer="fedward://coordinator/hub")
    with authority.revoked("fedward://coordinator/hub"):
        trust = Trust.load(homes[0] / "authority.pem")
    with pytest.raises(CertificateError, match="was revoked as of"):
        cosigner_of(trust, kept)
    assert held_by(trust, kept) == kept
    assert checked((), north, [kept]) == [kept]
    assert not is_vouched(trust, kept)
    with pytest.raises(SignatureRefused):
        held_by(trust, replace(kept, checkpoint=replace(said, epsilon=1.0)))


def test_a_head_is_checked_against_the_authority(authority, coordinator):
    verify = verifier(Trust(authority.pem))
    for at in (None, AT):
        assert verify(coordinator.certificate_pem, b"m", coordinator.sign(b"m"), at) == "fedward://coordinator/hub"
        with pytest.raises(SignatureRefused):
            verify(coordinator.certificate_pem, b"n", coordinator.sign(b"m"), at)


def test_only_with_a_time_does_an_expired_certificate_count(authority):
    home = authority.credential("silo", "bygone", period=(timedelta(minutes=-4), timedelta(minutes=-2)))
    pems = {f"{name}_pem": (home / f"{name}.pem").read_bytes() for name in ("certificate", "key", "authority")}
    then = datetime.now(UTC) - timedelta(minutes=3)
    bygone, verify = Credential(**pems, now=then), verifier(Trust(authority.pem))
    signature = bygone.sign(b"m")
    assert verify(bygone.certificate_pem, b"m", signature, then.isoformat()) == "fedward://silo/bygone"
    with pytest.raises(CertificateError, match="expired on"):
        verify(bygone.certificate_pem, b"m", signature, None)


def test_what_a_thief_had_cosigned_binds_no_more_once_the_root_has_dated_the_theft(tmp_path):
    """The silo's own time of hearing counts, not the time that the thief wrote."""
    parties, theft = Consortium(tmp_path), datetime.now(UTC) - timedelta(hours=1)
    times = [theft + timedelta(minutes=minutes) for minutes in (-1, 0, 1)]
    said = checkpoint("north", Genesis("north-ward", 0.2, 1e-5), (), times[0].isoformat())
    during = cosigned(said, parties.hub, parties.old)
    before, at, after = (replace(during, received=time.isoformat()) for time in times)
    unknown = [during, replace(during, checkpoint=replace(said, at=times[2].isoformat()))]
    everything = (before, at, after, *unknown)
    assert binding(parties.trust, everything) == everything
    assert binding(parties.revoke(theft), everything) == (before, unknown[0])
