"""A token becomes a certificate over real HTTPS; whoever stands in between gets nothing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from crypto.errors import CertificateError, EnrolmentError, UnknownAuthorityError
from crypto.pki.admission import Token
from crypto.pki.authority import issuing, root
from crypto.pki.authority.building import read_request
from crypto.pki.enrolment import create_request
from crypto.pki.identity import Identity, Role
from crypto.pki.joining import renewal
from crypto.pki.joining.enrol import enrol
from crypto.pki.joining.renewal import Files, Renewal
from crypto.pki.key_files import read_passphrase
from crypto.pki.reading import to_pem
from support.online import Online, load, serving, subject


def with_url(token, url):
    return Token(token.admission, token.secret, url)


def test_a_token_is_redeemed_with_a_key_that_stays(online, url, tmp_path):
    home = tmp_path / "north"
    done = enrol(home, with_url(online.admit("silo", "north"), url))
    credential = load(home)
    assert credential.identity == Identity(Role.SILO, "north") == done.subject.identity
    assert (done.ends, done.url) == (credential.ends, url)
    assert (home / "key.pem").stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in home.iterdir()) == [
        "authority.pem",
        "certificate.pem",
        "crls.pem",
        "key.pem",
        "request.csr",
    ]
    with pytest.raises(EnrolmentError, match=r"certificate\.pem exists already"):
        enrol(home, with_url(online.admit("silo", "north"), url))


def test_a_second_try_goes_on_with_the_key_of_the_first(online, url, tmp_path):
    home, token = tmp_path / "hub", with_url(online.admit("coordinator", "hub"), url)
    first = enrol(home, token)
    (home / "certificate.pem").unlink()
    assert enrol(home, token).key == first.key
    with pytest.raises(EnrolmentError, match=f"refuses: the token of .* was redeemed already, by a key .* {first.key}"):
        enrol(tmp_path / "thief", token)
    assert not (tmp_path / "thief" / "certificate.pem").exists()


def test_no_root_but_the_tokens_is_taken_from_a_service_whose_key_was_stolen(tmp_path):
    online = Online(tmp_path / "online")
    root.init(tmp_path / "thief", "Thief", 9)
    online.authority.authority_pem += (tmp_path / "thief" / "authority.pem").read_bytes()
    with (online.issuing / issuing.ROOT_LISTS_FILE).open("ab") as lists:
        lists.write(root.publish(tmp_path / "thief", 5))
    online.authority = replace_bundle(online)
    with serving(online) as there:
        enrol(tmp_path / "north", online.admit("silo", "north"), url=there)
    trusted = load(tmp_path / "north").trust.bundle
    assert [one.name for one in trusted.all] == ["Root of tests", "Issuing of tests"]


def test_in_a_change_of_root_a_service_under_both_serves_who_knows_one(tmp_path):
    online, second = Online(tmp_path / "online"), tmp_path / "second"
    before = online.enrol("coordinator", "hub")
    root.init(second, "Second", 99, predecessor=online.root)
    online.authority.authority_pem += root.delegate(
        second, (online.issuing / issuing.REQUEST_FILE).read_bytes(), days=90, hosts=["localhost"]
    )
    with (online.issuing / issuing.ROOT_LISTS_FILE).open("ab") as lists:
        lists.write(root.publish(second, 5))
    online.authority = replace_bundle(online)
    asked = create_request(tmp_path / "north", subject("silo", "north")).read_bytes()
    key = read_request(asked).fingerprint
    token = root.admit(second, subject("silo", "north"), days=30, redeem_days=5, key=key)
    with serving(online) as there:
        with pytest.raises(EnrolmentError, match=f"the token is for the key with SHA-256 {key}, and key.pem has"):
            enrol(tmp_path / "other", token, url=there)
        enrol(tmp_path / "north", token, url=there)
        with pytest.raises(CertificateError, match="a root never comes over the wire"):
            renewal.fetch(files_of(before), renewal.link_for(load(before), there)())
    assert load(before).trust.bundle.roots[0].name == "Root of tests"
    (before / "authority.pem").write_bytes(online.pem)
    online.bring_lists(before)
    both = load(before)
    assert both.trust.identify((tmp_path / "north" / "certificate.pem").read_bytes()).name == "north"
    shown = [both.chain_pem, (tmp_path / "north" / "certificate.pem").read_bytes()]
    assert [both.trust.examine(first(pem)).issuer.above.name for pem in shown] == ["Root of tests", "Second"]
    with pytest.raises(UnknownAuthorityError, match="by a root that"):  # what was kept of it counts on: `held_by`
        load(tmp_path / "north").trust.examine(both.certificate_pem)


def first(pem):
    end = b"-----END CERTIFICATE-----\n"
    return pem[: pem.index(end) + len(end)]


def files_of(home):
    return Files.of(home / "certificate.pem", home / "key.pem", home / "authority.pem", None)


def replace_bundle(online):
    """The service that was started anew with the files of now."""
    (online.issuing / issuing.BUNDLE_FILE).write_bytes(online.authority.authority_pem)
    return issuing.IssuingAuthority.load(online.issuing)


def test_a_service_of_another_root_gets_no_token(online, tmp_path):
    foreign = Online(tmp_path / "foreign")
    asked = []
    redeem = foreign.authority.redeem
    foreign.authority.redeem = lambda *given: asked.append(given) or redeem(*given)
    with (
        serving(foreign) as there,
        pytest.raises(EnrolmentError, match=r"does not know the root that made the token .* so nothing was sent"),
    ):
        enrol(tmp_path / "north", online.admit("silo", "north"), url=there)
    assert not asked
    assert not (tmp_path / "north").exists()


def test_a_service_that_shows_the_right_root_without_its_key_gets_no_token(online, tmp_path):
    foreign = Online(tmp_path / "foreign")
    asked = []
    foreign.authority.authority_pem = online.pem
    foreign.authority.redeem = lambda *given: asked.append(given)
    with (
        serving(foreign) as there,
        pytest.raises(EnrolmentError, match="does not show a certificate of this consortium's authority"),
    ):
        enrol(tmp_path / "north", online.admit("silo", "north"), url=there)
    assert not asked


def test_a_coordinator_that_stands_at_the_url_gets_no_token(online, tmp_path, monkeypatch):
    """Its certificate names the host, as the service's does."""
    hub, asked = online.enrol("coordinator", "gate"), []
    shown = (hub / "certificate.pem").read_bytes() + to_pem(online.authority.certificate)
    monkeypatch.setattr(online.authority, "server_credential", lambda _hosts: (shown, (hub / "key.pem").read_bytes()))
    monkeypatch.setattr(online.authority, "redeem", lambda *given: asked.append(given))
    with (
        serving(online) as there,
        pytest.raises(EnrolmentError, match=r"shows the certificate of a party .* so nothing was sent"),
    ):
        enrol(tmp_path / "north", online.admit("silo", "trusting"), url=there)
    assert not asked


def test_what_cannot_be_reached_or_is_not_named_says_so(online, url, tmp_path):
    token = online.admit("silo", "lost")
    with pytest.raises(EnrolmentError, match="give its URL with --authority"):
        enrol(tmp_path / "lost", token)
    with pytest.raises(EnrolmentError, match=r"at https://localhost:1 cannot be reached \(Connection refused\)"):
        enrol(tmp_path / "lost", token, url="https://localhost:1")
    with pytest.raises(EnrolmentError, match=r"through the proxy http://127\.0\.0\.1:1"):
        enrol(tmp_path / "lost", token, url=url, proxy="http://127.0.0.1:1")
    by_address = url.replace("localhost", "127.0.0.1")
    with pytest.raises(EnrolmentError, match=r"for that host .*; check the URL and this machine's clock"):
        enrol(tmp_path / "lost", token, url=by_address)


def test_a_key_is_kept_under_a_passphrase_and_renewed_with_it(online, url, tmp_path):
    home, secret = tmp_path / "safe", tmp_path / "secret"
    secret.write_text("long and secret\n")
    secret.chmod(0o600)
    enrol(home, with_url(online.admit("silo", "safe"), url), passphrase=read_passphrase(secret))
    assert b"ENCRYPTED" in (home / "key.pem").read_bytes()
    files = Files.of(home / "certificate.pem", home / "key.pem", home / "authority.pem", None, secret)
    credential, said = renewal.load(files, url), []
    before, later = credential.certificate_pem, datetime.now(UTC) + timedelta(days=3)
    Renewal(
        credential,
        files,
        renewal.link_for(credential, url),
        tell=lambda *words: said.append(words),
        on_times=lambda _: None,
        clock=lambda: later,
    ).look()
    told = [level for level, text in said if "revocation list" not in text]
    assert (credential.certificate_pem != before, told) == (True, ["info"])
    for content, mode, why in (
        ("another", 0o600, "cannot be opened with that passphrase"),
        ("long and secret", 0o640, "others than its owner may read or write secret"),
        ("", 0o600, "must hold the passphrase in one line"),
    ):
        secret.write_text(content)
        secret.chmod(mode)
        with pytest.raises(CertificateError, match=why):
            renewal.load(files, None)
    with pytest.raises(CertificateError, match="has a passphrase; name the file that holds it under key_passphrase"):
        load(home)
