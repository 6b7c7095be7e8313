"""The online authority certifies whom the root admitted and nobody else, and a thief of its key no more than that."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from crypto.errors import CertificateError, EnrolmentError
from crypto.pki.admission import Token
from crypto.pki.authority import building, issuing, root
from crypto.pki.authority.building import read_request
from crypto.pki.authority.issuing import LIFE, IssuingAuthority
from crypto.pki.certificates import Trust
from crypto.pki.chain import Bundle
from crypto.pki.enrolment import create_request, request_of
from crypto.pki.identity import Identity, Role, Subject
from crypto.pki.reading import ends, hosts_in, parse_certificate, subject_of, to_pem
from crypto.pki.revocation import RevocationLists
from tests.support.online import Online, load, register_of, subject, week

DAY = timedelta(days=1)


@pytest.fixture
def online(tmp_path):
    return Online(tmp_path)


@pytest.fixture
def trust(online):
    online.enrol("operator", "ada")
    return Trust.load(online.folder / "operator-ada" / "authority.pem")


def request(online, name, asked=None, hosts=()):
    return create_request(online.folder / name, asked or subject("silo", "north"), hosts).read_bytes()


def test_a_token_becomes_a_certificate_of_a_week_that_all_accept(online):
    now = datetime.now(UTC).replace(microsecond=0)
    home = online.enrol("silo", "north", now=now)
    credential = load(home)
    assert credential.identity == Identity(Role.SILO, "north")
    assert credential.ends == now + LIFE
    assert credential.chain_pem == credential.certificate_pem + to_pem(online.authority.certificate)
    hub = load(online.enrol("coordinator", "hub"))
    assert hub.trust.identify(credential.certificate_pem, role=Role.SILO).name == "north"
    with register_of(online.issuing) as register:
        kinds = [entry["kind"] for entry in register.entries()]
    assert kinds == ["redemption", "certificate"] * 2


def test_a_token_works_for_one_key_and_again_for_that_key_alone(online):
    token, asked = online.admit("silo", "north"), request(online, "first")
    certificates = [online.authority.redeem(asked, token) for _ in range(2)]
    assert len({parse_certificate(pem).serial_number for pem in certificates}) == 2
    with pytest.raises(EnrolmentError, match="was redeemed already, by a key with SHA-256"):
        online.authority.redeem(request(online, "thief"), token)


def test_a_token_that_is_over_changed_or_anothers_is_refused(online, tmp_path):
    token, asked = online.admit("silo", "north"), request(online, "north")
    redeem = online.authority.redeem
    with pytest.raises(EnrolmentError, match="could be redeemed until"):
        redeem(asked, token, now=datetime.now(UTC) + 15 * DAY)
    with pytest.raises(EnrolmentError, match="secret is not that"):
        redeem(asked, Token(token.admission, bytes(32)))
    foreign = Online(tmp_path / "foreign").admit("silo", "north")
    with pytest.raises(CertificateError, match="by a root that this authority does not know"):
        redeem(asked, foreign)
    with pytest.raises(EnrolmentError) as refused:
        redeem(request(online, "other", Subject(Identity(Role.COORDINATOR, "hub")), ("a.example",)), token)
    assert "it is for fedward://coordinator/hub, and admitted is fedward://silo/north" in str(refused.value)
    assert "its hosts are a.example, and admitted are none" in str(refused.value)
    with pytest.raises(CertificateError, match=r"root\.crl\.pem|revocation list of the authority .* is stale"):
        redeem(asked, token, now=datetime.now(UTC) + 100 * DAY)


def test_an_admission_that_either_authority_takes_back_is_over(online):
    for name, take_back in (
        ("north", lambda uri: online.authority.revoke(uri, None, datetime.now(UTC), "left")),
        ("south", lambda uri: revoke_at_root(online, uri)),
    ):
        home = online.enrol("silo", name)
        token = online.admit("silo", name)
        take_back(f"fedward://silo/{name}")
        with pytest.raises((EnrolmentError, CertificateError), match="was revoked as of"):
            online.renew(home)
        online.bring_lists(home)
        with pytest.raises(CertificateError, match="was revoked as of"):
            load(home)
        with pytest.raises(EnrolmentError, match=rf"the admission of fedward://silo/{name} .* was revoked"):
            online.authority.redeem((home / "request.csr").read_bytes(), token)


def test_a_token_that_nobody_has_redeemed_is_taken_back_with_the_party_and_a_newer_one_counts(online):
    token, asked = online.admit("silo", "north"), request(online, "north")
    (told,) = online.authority.revoke("fedward://silo/north", None, datetime.now(UTC), "a mistake")
    assert told == "no token that was made for fedward://silo/north until now is redeemed here"
    with pytest.raises(EnrolmentError, match="was revoked as of"):
        online.authority.redeem(asked, token)
    with pytest.raises(EnrolmentError, match="there is nothing of fedward://silo/north"):
        online.authority.revoke("fedward://silo/north", None, datetime.now(UTC), "again")
    later = online.admit("silo", "north", now=datetime.now(UTC) + DAY)
    assert ends(online.authority.redeem(asked, later))


def test_a_data_set_has_one_silo_for_the_issuing_authority_too(online):
    """Whatever became of the root's register."""
    online.enrol("silo", "north")
    for name in ("issued.jsonl", "issued.head"):  # as from a backup of before
        (online.root / name).unlink()
    (online.root / "issued.jsonl").touch()
    token = online.admit("silo", "other", data_set="north-ward")
    asked = request(online, "other", token.admission.subject)
    with pytest.raises(EnrolmentError, match="the data set north-ward was certified for fedward://silo/north"):
        online.authority.redeem(asked, token)


def test_a_party_whose_certificate_has_ended_is_revoked_too(online):
    """The token's key could redeem it again."""
    token, asked = online.admit("silo", "north"), request(online, "north")
    online.authority.redeem(asked, token, now=datetime.now(UTC) - 9 * DAY)
    _, told = online.authority.revoke("fedward://silo/north", None, datetime.now(UTC), "left")
    assert told.startswith("revoked the admission of fedward://silo/north, here")
    with pytest.raises(EnrolmentError, match="was revoked as of"):
        online.authority.redeem(asked, token)


def revoke_at_root(online, uri):
    with register_of(online.root) as register:
        issuing.take_back(register, uri, None, datetime.now(UTC), "left", datetime.now(UTC))
    online.publish()


def test_a_certificate_is_renewed_for_the_same_key_and_party_while_it_counts(online):
    home, start = online.enrol("silo", "north"), datetime.now(UTC).replace(microsecond=0)
    for days in (3, 6, 9, 12):
        online.publish()
        online.renew(home, now=start + days * DAY)
        assert ends((home / "certificate.pem").read_bytes()) == start + days * DAY + LIFE
    held = (home / "certificate.pem").read_bytes()
    with pytest.raises(EnrolmentError, match="has another key"):
        online.authority.renew(request(online, "other"), held, now=start + 12 * DAY)
    with pytest.raises(CertificateError, match=r"expired on .* clock is right, ask the authority for a new token"):
        online.renew(home, now=start + 20 * DAY)


def test_a_certificate_is_renewed_for_nobody_else_and_for_no_other_hosts(online):
    home = online.enrol("coordinator", "hub")
    key_pem, held = (home / "key.pem").read_bytes(), (home / "certificate.pem").read_bytes()
    for asked, why in (
        (request_of(key_pem, subject("silo", "north"), ["localhost"]), "it is for fedward://silo/north"),
        (request_of(key_pem, subject("coordinator", "hub"), ["evil.example"]), r"its hosts are evil\.example"),
    ):
        with pytest.raises(EnrolmentError, match=f"the request is not what was admitted: {why}"):
            online.authority.renew(asked[0], held)


def test_no_certificate_outlives_the_admission_and_then_there_are_none(online):
    token, asked = online.admit("silo", "north", days=9), request(online, "north")
    now = datetime.now(UTC) + 5 * DAY
    pem = online.authority.redeem(asked, token, now=now)
    assert ends(pem) == token.admission.expires
    with pytest.raises((EnrolmentError, CertificateError), match=r"the admission of .* ended on|expired on"):
        online.authority.renew(asked, pem, now=token.admission.expires)


def test_no_certificate_outlives_any_authority_above_it(tmp_path):
    """Whichever of root, issuing authority, admission and a week is over first."""
    now = datetime.now(UTC).replace(microsecond=0)
    for number, (of_root, of_issuing, admitted) in enumerate(((3, 99, 99), (99, 3, 99), (99, 99, 3), (99, 99, 99))):
        top, online = tmp_path / str(number), Online(tmp_path / f"{number}-online")
        root.init(top, "Short", of_root)
        keeper = root.load(top, None)
        times = (now - timedelta(minutes=5), now + of_issuing * DAY)
        key = online.stolen.key.public_key()
        mine = building.issuing("Issuing of tests", key, ["localhost"], times, keeper.above)
        (online.issuing / issuing.BUNDLE_FILE).write_bytes((top / "authority.pem").read_bytes() + mine)
        (online.issuing / issuing.ROOT_LISTS_FILE).write_bytes(root.publish(top))
        authority, asked = IssuingAuthority.load(online.issuing), request(online, "north")
        token = root.admit(top, subject("silo", "north"), days=2, redeem_days=1)
        longer = replace(token.admission, expires=now + admitted * DAY).signed(keeper.key)
        pem = authority.redeem(asked, Token(longer, token.secret), now=now)
        top_ends = parse_certificate((top / "authority.pem").read_bytes()).not_valid_after_utc
        assert ends(pem) == min(now + LIFE, top_ends, times[1], longer.expires)
        assert ends(pem) < now + 4 * DAY or number == 3


def test_whom_the_root_certified_itself_needs_a_token_to_renew_online(online):
    asked = request(online, "north")
    pem = root.sign(online.root, asked, subject=subject("silo", "north"), days=9)
    with pytest.raises(EnrolmentError, match="is the root's own and was not admitted to online renewal"):
        online.authority.renew(asked, pem)


def test_a_thief_of_the_online_key_invents_nobody(online, trust):
    key, above = ec.generate_private_key(ec.SECP256R1()).public_key(), online.stolen.above
    north, admitted = subject("silo", "north"), online.admit("silo", "north").admission
    others = [subject("silo", "ghost"), Subject(north.identity, "clinic"), Subject(Identity(Role.OPERATOR, "north"))]
    with pytest.raises(CertificateError, match="without an admission by the root, so it counts for nothing"):
        trust.identify(building.leaf(north, (), key, week(), above))
    for other in others:
        with pytest.raises(CertificateError, match="is not what the root admitted: it is for"):
            trust.identify(building.leaf(other, (), key, week(), above, admission=admitted))
    hub = online.admit("coordinator", "hub").admission
    with pytest.raises(CertificateError, match=r"its hosts are evil\.example, and admitted are localhost"):
        trust.identify(building.leaf(hub.subject, ["evil.example"], key, week(), above, admission=hub))
    with pytest.raises(CertificateError, match="after its admission"):
        trust.identify(building.leaf(north, (), key, week(360), above, admission=admitted))
    forged = admitted.signed(online.stolen.key)
    with pytest.raises(CertificateError, match="was not signed by the root that it names"):
        trust.identify(building.leaf(north, (), key, week(), above, admission=forged))
    with pytest.raises(CertificateError, match="which its admission does not name"):
        trust.identify(building.leaf(north, (), key, week(), above, admission=admitted))
    named = online.admit("silo", "north", key="ab" * 32).admission
    with pytest.raises(CertificateError, match=f"and admitted is the key with {'ab' * 32}"):
        trust.identify(building.leaf(north, (), key, week(), above, admission=named))


def test_no_address_is_certified_online(online):
    with pytest.raises(EnrolmentError, match=r"certifies no addresses \(10\.0\.0\.7\)"):
        online.admit("coordinator", "hub", hosts=("hub.example", "10.0.0.7"))
    with pytest.raises(EnrolmentError, match="certifies no addresses"):
        Online(online.folder / "other", hosts=["::1"])


def test_a_revoked_issuing_authority_certified_nobody(online):
    home = online.enrol("silo", "north")
    with register_of(online.root) as register:
        serial = online.authority.certificate.serial_number
        issuing.take_back(register, None, serial, datetime.now(UTC), "stolen", datetime.now(UTC))
    online.publish()
    online.bring_lists(home)
    with pytest.raises(CertificateError, match="the issuing authority 'Issuing of tests' was revoked as of"):
        load(home)


def test_an_issuing_authority_is_prolonged_and_what_it_certified_before_and_after_counts(online):
    """Its key stays, so `authority.pem` holds two certificates of one name and key."""
    now, request = datetime.now(UTC), asked(online)
    bundle, first = online.issuing / issuing.BUNDLE_FILE, root.delegate(online.root, request, days=10, hosts=[])
    bundle.write_bytes(first)
    online.authority = IssuingAuthority.load(online.issuing)
    before = online.enrol("silo", "north")
    bundle.write_bytes(first + root.delegate(online.root, request, days=90, hosts=[]))
    online.authority = IssuingAuthority.load(online.issuing)
    after = online.enrol("silo", "south", now=now + 9 * DAY)
    trust = Trust(online.pem, lambda: RevocationLists.read(online.authority.lists_pem(later), Bundle.read(online.pem)))
    for home, later in ((before, now + DAY), (after, now + 12 * DAY)):
        trust.identify((home / "certificate.pem").read_bytes(), now=later)
    assert trust.identify((before / "certificate.pem").read_bytes(), now=later, as_of=now).name == "north", (
        "years later too"
    )


def asked(online):
    return (online.issuing / issuing.REQUEST_FILE).read_bytes()


def test_a_stolen_issuing_key_is_revoked_under_every_certificate_that_it_has(online):
    root.delegate(online.root, asked(online), days=90, hosts=[])
    with register_of(online.root) as register:
        serial = online.authority.certificate.serial_number
        told = issuing.take_back(register, None, serial, datetime.now(UTC), "stolen", datetime.now(UTC))
    assert len(told) == 2


def test_its_keeper_hears_in_time_of_whatever_ends(online):
    now, of = datetime.now(UTC), online.authority.concerns
    assert of(now + 70 * DAY) == []
    (told,) = of(now + 80 * DAY)
    assert told.startswith("the revocation list of the authority 'Root of tests' is fresh until")
    assert "bring it as root.crl.pem" in told
    both = of(now + 330 * DAY)[1:]
    assert ["have the root delegate" in both[0], "make a new root" in both[1]] == [True, True]


def test_lists_are_made_anew_when_half_of_their_time_is_over(online, monkeypatch):
    now = datetime.now(UTC)
    first = online.authority.lists_pem(now)
    assert online.authority.lists_pem(now + timedelta(hours=23)) == first
    with monkeypatch.context() as patch:
        patch.setattr(issuing.RevocationLists, "read", lambda *_: 1 / 0)
        assert online.authority.lists_pem(now + timedelta(hours=23)) == first, "lists of years are long to read"
    assert online.authority.lists_pem(now + timedelta(hours=25)) != first
    with pytest.raises(EnrolmentError, match="there is nothing of the serial number 5 in this register"):
        online.authority.revoke(None, 5, now, "-")


def test_files_that_are_missing_or_of_another_authority_are_named(online, tmp_path):
    with pytest.raises(EnrolmentError, match="run `fedward-authority issuing`"):
        IssuingAuthority.load(tmp_path / "nowhere")
    issuing.prepare(tmp_path / "bare", "Bare")
    with pytest.raises(EnrolmentError, match="put there what `fedward-authority delegate` wrote"):
        IssuingAuthority.load(tmp_path / "bare")
    (tmp_path / "bare" / "authority.pem").write_bytes(online.pem)
    with pytest.raises(EnrolmentError, match=r"holds no certificate for issuing\.key; have the root delegate"):
        IssuingAuthority.load(tmp_path / "bare")
    (online.issuing / issuing.ROOT_LISTS_FILE).unlink()
    with pytest.raises(EnrolmentError, match=r"root\.crl\.pem cannot be read"):
        IssuingAuthority.load(online.issuing)


def test_no_secret_stands_in_register_or_certificate(online):
    token, asked = online.admit("silo", "north"), request(online, "north")
    pem = online.authority.redeem(asked, token)
    written = [(folder / "issued.jsonl").read_text() for folder in (online.root, online.issuing)]
    der = parse_certificate(pem).public_bytes(Encoding.DER)
    assert all(token.secret.hex() not in text for text in (*written, repr(token)))
    assert token.secret not in der
    assert token.secret.hex().encode() not in der


def test_the_institution_is_part_of_the_admission(online, trust):
    north = subject("silo", "north")
    run_by = Subject(north.identity, north.data_set, "charite")
    asked = request(online, "north", run_by)
    token = root.admit(online.root, run_by, days=30, redeem_days=5, key=read_request(asked).fingerprint)
    assert Token.parse(token.text()) == token
    with pytest.raises(EnrolmentError, match="with the data set north-ward, and admitted"):
        online.authority.redeem(request(online, "other"), token)
    with pytest.raises(EnrolmentError, match=r"its key has SHA-256 .* and admitted is the key with"):
        online.authority.redeem(request(online, "another", run_by), token)
    pem = online.authority.redeem(asked, token)
    assert subject_of(parse_certificate(pem)) == run_by
    assert trust.identify(pem) == north.identity
    root.admit(online.root, Subject(north.identity, north.data_set, "vivantes"), days=30, redeem_days=5)


def test_who_is_not_in_the_register_is_not_renewed(online):
    """The issuing key was stolen, or the register was put back."""
    token, asked = online.admit("silo", "north"), request(online, "north")
    files = [online.issuing / name for name in ("issued.jsonl", "issued.head")]
    before = [path.read_bytes() if path.exists() else b"" for path in files]
    first = online.authority.redeem(asked, token)
    online.authority.renew(asked, first)
    key = ec.generate_private_key(ec.SECP256R1())
    forged = building.leaf(
        token.admission.subject, (), key.public_key(), week(), online.stolen.above, admission=token.admission
    )
    theirs, _ = request_of(pem_of(key), token.admission.subject)
    with pytest.raises(EnrolmentError, match="is not in this authority's register"):
        online.authority.renew(theirs, forged)
    kept = [path.read_bytes() for path in files]
    files[0].write_bytes(before[0])
    files[1].unlink()
    with pytest.raises(EnrolmentError, match="is not in this authority's register: either the register was put back"):
        online.authority.renew(asked, first)
    for path, content in zip(files, kept, strict=True):
        path.write_bytes(content)
    with pytest.raises(EnrolmentError, match=f"lacks the certificate with the serial number {serial_of(forged)}"):
        online.authority.renew(asked, first)  # the forged one was shown, and no register has it


def serial_of(pem):
    return f"{parse_certificate(pem).serial_number:x}"


def pem_of(key):
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return key.private_bytes(encoding, form, serialization.NoEncryption())


def test_one_party_fills_no_register_and_keeps_nobody_else_waiting(online, monkeypatch):
    monkeypatch.setattr(issuing, "DAILY", 3)
    now = datetime.now(UTC).replace(microsecond=0)
    token, asked = online.admit("silo", "north"), request(online, "first")
    for hour in range(3):
        online.authority.redeem(asked, token, now=now + timedelta(hours=hour))
    with pytest.raises(EnrolmentError, match="had 3 certificates within a day and gets no more"):
        online.authority.redeem(asked, token, now=now + timedelta(hours=23))
    online.enrol("silo", "south", now=now + timedelta(hours=23))
    assert online.authority.redeem(asked, token, now=now + timedelta(hours=25))


def test_an_operator_s_certificate_lasts_longer_and_the_register_says_who_redeemed_which_token(online):
    now = datetime.now(UTC).replace(microsecond=0)
    assert online.authority.keys() == {}
    home = online.enrol("operator", "ada", now=now)
    assert load(home).ends == now + issuing.PERSON_LIFE
    key = read_request((home / "request.csr").read_bytes()).fingerprint
    assert online.authority.keys() == {"fedward://operator/ada": key}
    assert online.authority.name == "Issuing of tests"


def test_its_own_https_has_a_chain_for_its_hosts_that_lasts_as_long_as_itself(online):
    chain, key_pem = online.authority.server_credential(["localhost"])
    leaf, above = x509.load_pem_x509_certificates(chain)
    assert above == online.authority.certificate
    assert leaf.not_valid_after_utc == above.not_valid_after_utc
    assert leaf.not_valid_before_utc <= datetime.now(UTC)
    assert hosts_in(leaf) == ("localhost",)
    key = serialization.load_pem_private_key(key_pem, None)
    assert key.public_key() == leaf.public_key() != above.public_key()


def test_a_revocation_is_on_the_very_next_list_and_told_with_its_number(online):
    home, now = online.enrol("silo", "north"), datetime.now(UTC)
    number = parse_certificate((home / "certificate.pem").read_bytes()).serial_number
    before = online.authority.lists_pem(now)
    told = online.authority.revoke(None, number, now - DAY, "lost")
    assert told[0].startswith("revoked the certificate of fedward://silo/north, serial number " + f"{number:x}, as of ")
    after = RevocationLists.read(online.authority.lists_pem(now), Bundle.read(online.pem))
    (me,) = Bundle.read(online.pem).issuing
    assert after.revoked(me, number) == (now - DAY).replace(microsecond=0)
    assert RevocationLists.read(before, Bundle.read(online.pem)).revoked(me, number) is None
    assert after.newest(me).until <= now + issuing.LIST_LIFE


def test_what_stands_in_its_folder_at_first_is_for_its_owner_alone(tmp_path):
    request = issuing.prepare(tmp_path / "new", "New", passphrase=b"long enough, this one")
    assert (tmp_path / "new" / issuing.REQUEST_FILE).read_bytes() == request
    assert (tmp_path / "new" / issuing.KEY_FILE).stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "new" / "issued.jsonl").read_bytes() == b""
    with pytest.raises(TypeError):
        serialization.load_pem_private_key((tmp_path / "new" / issuing.KEY_FILE).read_bytes(), None)
