"""Years of an issuing authority: delegated to anew, parties admitted anew, another root, and no party does anything."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from crypto.errors import CertificateError, EnrolmentError
from crypto.pki.admission import Token
from crypto.pki.authority import readmission, root
from crypto.pki.authority.issuing import BUNDLE_FILE, REQUEST_FILE, ROOT_LISTS_FILE, IssuingAuthority, take_back
from crypto.pki.authority.readmission import READMISSIONS_FILE
from crypto.pki.certificates import Trust
from crypto.pki.identity import Role
from crypto.pki.joining.enrol import enrol
from crypto.pki.reading import parse_certificate, to_pem
from tests.support.online import LOOPBACK, Online, load, register_of, serving, subject

DAY = timedelta(days=1)
NOW = datetime.now(UTC).replace(microsecond=0)


@pytest.fixture
def online(tmp_path):
    return Online(tmp_path, days=900)


def delegated(online, folder, days):
    """The bundle of a root that delegates to the same issuing key."""
    return root.delegate(folder, (online.issuing / REQUEST_FILE).read_bytes(), days=days, hosts=LOOPBACK)


def serve(online, bundle=None, lists=None, admissions=None):
    """Put files into the issuing authority's folder and start it anew."""
    for name, content in ((BUNDLE_FILE, bundle), (ROOT_LISTS_FILE, lists), (READMISSIONS_FILE, admissions)):
        if content is not None:
            (online.issuing / name).write_bytes(content)
    online.authority = IssuingAuthority.load(online.issuing)


def admitted(home):
    """Root and end of the admission in a party's certificate, and who signed it."""
    pem = (home / "certificate.pem").read_bytes()
    holder = Trust.load(home / "authority.pem").examine(pem)
    return holder.admission[0].root, holder.admission[0].expires, holder.issuer


def test_an_issuing_authority_is_delegated_to_anew_and_the_old_certificates_stay_what_they_were(tmp_path):
    online = Online(tmp_path, days=400)
    first = online.authority.certificate
    home = online.enrol("silo", "north")
    serve(online, delegated(online, online.root, 20))
    (home / "authority.pem").write_bytes(to_pem(first) + online.pem)
    online.bring_lists(home)
    before = (home / "certificate.pem").read_bytes()
    trust = load(home).trust
    assert trust.identify(before).name == "north"
    assert trust.examine(before).issuer.certificate == first, "as of then, years later"
    assert trust.revoked(before) is None
    online.authority.revoke("fedward://silo/north", None, NOW - DAY, "left")
    online.bring_lists(home)
    assert trust.revoked(before) == NOW - DAY, "the list of the key counts under each of its certificates"


def test_who_is_admitted_is_admitted_again_and_nobody_else(online):
    for name in ("north", "south", "west"):
        online.enrol("silo", name)
    online.admit("silo", "east", days=1)
    with register_of(online.root) as register:
        take_back(register, "fedward://silo/south", None, NOW, "left", NOW)
    made = root.readmit(online.root, days=700, now=NOW + 2 * DAY)
    assert sorted(one.subject.identity.name for one in made) == ["north", "west"]
    with pytest.raises(EnrolmentError, match="give --days 702 or more"):
        root.readmit(online.root, days=700, now=NOW + 2 * DAY - timedelta(minutes=1))
    with pytest.raises(EnrolmentError, match="nobody is admitted now"):
        root.readmit(online.root, days=10, now=NOW + 880 * DAY)


def test_a_renewed_certificate_carries_the_admission_that_lasts_longest(online):
    home = online.enrol("silo", "north")
    online.enrol("silo", "south")
    first = admitted(home)
    online.renew(home)
    assert admitted(home)[:2] == first[:2]
    made = root.readmit(online.root, days=700)
    forged = readmission.to_json([one.signed(online.stolen.key) for one in made])
    serve(online, admissions=forged)
    with pytest.raises(CertificateError, match="not signed by the root that it names"):
        online.renew(home)
    serve(online, admissions=readmission.to_json(made))
    online.renew(home)
    assert admitted(home)[1] == made[0].expires > first[1]
    with register_of(online.root) as register:
        take_back(register, None, made[0].serial, NOW, "a mistake", NOW)
    online.publish()
    with pytest.raises(CertificateError, match="the admission of fedward://silo/north was revoked as of"):
        online.renew(home)


def test_what_was_taken_back_here_is_not_undone_by_a_root_that_did_not_know(online):
    home = online.enrol("silo", "north")
    serve(online, admissions=readmission.to_json(root.readmit(online.root, days=700)))
    holder = Trust.load(home / "authority.pem").examine((home / "certificate.pem").read_bytes())
    with register_of(online.issuing) as register:
        register.revoke(holder.admission[0].serial, NOW, "the admission of north, here", "left")
    with pytest.raises(EnrolmentError, match="was revoked as of"):
        online.renew(home)


@pytest.mark.parametrize("where", ["issuing", "root"])
def test_who_has_a_token_after_a_readmission_was_taken_back_is_renewed_by_the_token(online, tmp_path, where):
    home = online.enrol("silo", "north")
    made = root.readmit(online.root, days=700)
    serve(online, admissions=readmission.to_json(made))
    online.renew(home)
    with register_of(online.issuing if where == "issuing" else online.root) as register:
        take_back(register, "fedward://silo/north", None, NOW, "stolen", NOW)
    online.publish()
    again = online.enrol("silo", "north", home=tmp_path / "again")
    online.renew(again)
    assert admitted(again)[1] < made[0].expires
    with pytest.raises(CertificateError, match="revoked"):
        online.renew(home)


def test_a_readmission_that_was_taken_back_before_anybody_had_it_leaves_the_admission_of_before(online):
    home = online.enrol("silo", "north")
    first = admitted(home)
    made = root.readmit(online.root, days=700)
    with register_of(online.root) as register:
        take_back(register, None, made[0].serial, NOW, "a mistake", NOW)
    online.publish()
    serve(online, admissions=readmission.to_json(made))
    online.renew(home)
    assert admitted(home)[:2] == first[:2]


def test_a_readmission_is_no_token(online):
    home = online.enrol("silo", "north")
    (made,) = root.readmit(online.root, days=700)
    with pytest.raises(EnrolmentError, match="secret is not that of its admission"):
        online.authority.redeem((home / "request.csr").read_bytes(), Token(made, b"0" * 32))


@pytest.mark.parametrize("content", [b"{}", b"[1]", b"\xff"])
def test_a_file_that_is_none_is_named(online, content):
    (online.issuing / READMISSIONS_FILE).write_bytes(content)
    with pytest.raises(CertificateError, match=r"^admissions.json"):
        IssuingAuthority.load(online.issuing)


def test_a_root_is_changed_and_the_parties_only_add_the_new_one(online, tmp_path):
    homes = [online.enrol(Role.SILO, "north"), online.enrol(Role.COORDINATOR, "hub")]
    first, bundle = (online.root / "authority.pem").read_bytes(), online.pem
    root.init(tmp_path / "second", "Second", 1000, predecessor=online.root)
    second = (tmp_path / "second" / "authority.pem").read_bytes()
    for home in homes:
        (home / "authority.pem").write_bytes(bundle + second)
    made = readmission.to_json(root.readmit(tmp_path / "second", days=730))
    new = delegated(online, tmp_path / "second", 365)
    lists = root.publish(tmp_path / "second")
    serve(online, bundle + new, (online.issuing / ROOT_LISTS_FILE).read_bytes() + lists, made)
    for home in homes:
        (home / "authority.pem").write_bytes(online.pem)
        online.bring_lists(home)
        assert admitted(home)[2].root.pem == first, "until it is renewed"
        online.renew(home)
        assert admitted(home)[2].root.pem == second

    token = root.admit(tmp_path / "second", subject("silo", "west"), days=300, redeem_days=14)
    with serving(online) as url:  # which shows the chain to the old root
        enrol(tmp_path / "west", token, url=url)
    west = load(tmp_path / "west")
    assert west.trust.examine(west.certificate_pem).issuer.root.pem == second

    serve(online, new, lists)
    for home in homes:
        online.bring_lists(home)
        credential = load(home)  # a restart, while the old root is still in the party's file
        (home / "authority.pem").write_bytes(new)
        assert load(home).chain_pem == credential.chain_pem
        assert {load(one).trust.identify(credential.certificate_pem).name for one in homes} == {
            credential.identity.name
        }
        online.renew(home)
    assert online.authority.certificate == parse_certificate(new[len(second) :])


def test_the_newest_admission_for_the_very_key_is_taken_whichever_lasts_longest(online):
    home, key = online.enrol("silo", "north"), root.load(online.root, None).key
    (made,) = root.readmit(online.root, days=700)
    newest = replace(made, number=98, expires=made.expires - 300 * DAY).signed(key)
    others = replace(made, number=99, key="ab" * 32).signed(key)
    serve(online, admissions=readmission.to_json([newest, made, others]))
    online.renew(home)
    assert admitted(home)[1] == newest.expires < made.expires


def test_a_file_of_admissions_that_is_too_long_is_not_read(tmp_path, monkeypatch):
    path = tmp_path / "admissions.json"
    path.write_bytes(readmission.to_json([]))
    size = path.stat().st_size
    for most, taken in ((size + 1, True), (size, True), (size - 1, False)):
        monkeypatch.setattr(readmission, "_MAX_BYTES", most)
        if taken:
            assert readmission.read(path) == []
            continue
        with pytest.raises(CertificateError, match=r"admissions\.json is not what"):
            readmission.read(path)
