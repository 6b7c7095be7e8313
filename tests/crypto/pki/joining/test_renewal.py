"""Certificates and lists through a year under an injected clock, and what happens while the authority is away."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from unittest.mock import MagicMock, call

import pytest

from crypto.errors import CertificateError, EnrolmentError
from crypto.pki.authority import issuing, readmission, root
from crypto.pki.authority.readmission import READMISSIONS_FILE
from crypto.pki.chain import Bundle
from crypto.pki.joining import renewal as renewals
from crypto.pki.joining.renewal import Files, Renewal, Times, due, fades, link_for, live_lists
from crypto.pki.reading import parse_certificate
from crypto.pki.revocation import RevocationList
from support.online import Online, load

DAY = timedelta(days=1)
START = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
"""An hour from now: what the tests issue is valid from a little before they issue it, and they may run long after."""


class Near:
    """The authority without a network, at the time of the test's clock."""

    url = "https://near"

    def __init__(self, online, clock):
        self.online, self.clock, self.away, self.asked = online, clock, False, []

    def _reach(self):
        if self.away:
            msg = "the authority is away"
            raise EnrolmentError(msg)

    def bundle(self):
        return self.online.pem

    def lists(self, tag=None):
        self._reach()
        return None, self.online.authority.lists_pem(self.clock())

    def reenroll(self, request, chain, _key, _passphrase):
        self._reach()
        self.asked.append(self.clock())
        held = chain.read_bytes()
        end = b"-----END CERTIFICATE-----\n"
        return self.online.authority.renew(request, held[: held.index(end) + len(end)], now=self.clock())


@pytest.fixture
def party(tmp_path, monkeypatch):
    """A silo's renewal, with a clock that the test moves, for the credential too."""
    online, now = Online(tmp_path / "online", days=400), [START]
    monkeypatch.setattr("crypto.pki.certificates.datetime", Clock(now))
    monkeypatch.setattr("os.fsync", lambda _: None)  # a year of writes; nothing here is about a crash
    home = online.enrol("silo", "north", now=START)
    credential, said, times = load(home), [], []
    link = Near(online, lambda: now[0])
    files = Files(*(home / name for name in ("certificate.pem", "key.pem", "authority.pem", "crls.pem")))
    renewal = Renewal(
        credential,
        files,
        lambda: link,
        tell=lambda level, text: said.append((level, text)),
        on_times=times.append,
        clock=lambda: now[0],
    )
    return Party(online, now, home, credential, said, times, link, renewal)


class Clock:
    def __init__(self, now):
        self._now = now

    def now(self, _):
        return self._now[0]


class Party:
    def __init__(self, *parts):
        self.online, self.now, self.home, self.credential, self.said, self.times, self.link, self.renewal = parts

    def go(self, step):
        self.now[0] += step
        self.renewal.look()


def test_a_year_of_certificates_of_a_week_without_a_gap_and_with_one_key(party):
    key = parse_certificate(party.credential.certificate_pem).public_key()
    brought = START
    while party.now[0] < START + 290 * DAY:
        if party.now[0] > brought + 70 * DAY:
            brought = party.now[0]
            (party.online.issuing / issuing.ROOT_LISTS_FILE).write_bytes(root.publish(party.online.root, now=brought))
        party.go(timedelta(hours=28))
        assert party.credential.trust.identify(party.credential.certificate_pem, now=party.now[0]).name == "north"
    assert parse_certificate(party.credential.certificate_pem).public_key() == key
    gaps = {later - sooner for sooner, later in zip(party.link.asked, party.link.asked[1:], strict=False)}
    assert gaps == {timedelta(hours=56)}, "a third of a week, seen every 28 hours"
    assert all(one.certificate > START for one in party.times)
    warnings = [text for level, text in party.said if level == "warning"]
    assert len(warnings) == 18, "at every look of the last month of the admission"
    assert all(text.startswith("the authority has admitted this party until") for text in warnings)


def test_while_the_authority_is_away_it_is_told_once_and_warned_daily_and_then_all_goes_on(party):
    party.link.away = True
    for _ in range(41):
        party.go(timedelta(hours=4))
    warnings = [text for level, text in party.said if level == "warning"]
    assert [text for text in warnings if "not renewed" in text] == [
        "lists not renewed: the authority is away",
        "certificate not renewed: the authority is away",
    ]
    daily = [text for text in warnings if text.startswith("the certificate expires on")]
    assert len(daily) == 3, "of the last third of a week"
    party.link.away = False
    party.go(timedelta(hours=1))
    assert party.credential.ends > START + 12 * DAY
    assert [text.partition(" until")[0] for level, text in party.said if level == "info"] == [
        "lists renewed again",
        "the certificate was renewed",
        "certificate renewed again",
    ]


def test_a_new_issuing_authority_comes_over_the_wire_and_a_new_root_does_not(party, tmp_path, monkeypatch):
    online = party.online
    request = issuing.prepare(tmp_path / "second", "Second")
    online.authority.authority_pem += root.delegate(online.root, request, days=99, hosts=["localhost"])
    party.go(timedelta(minutes=5))
    assert [one.name for one in Bundle.read((party.home / "authority.pem").read_bytes()).issuing] == [
        "Issuing of tests",
        "Second",
    ]
    before = (party.home / "authority.pem").read_bytes()
    root.init(tmp_path / "other", "Stranger", 9)
    online.authority.authority_pem += (tmp_path / "other" / "authority.pem").read_bytes()
    party.go(timedelta(minutes=5))
    assert (party.home / "authority.pem").read_bytes() == before
    (online.issuing / issuing.BUNDLE_FILE).write_bytes(online.pem)
    with (online.issuing / issuing.ROOT_LISTS_FILE).open("ab") as lists:
        lists.write(root.publish(tmp_path / "other", 5))
    online.authority = issuing.IssuingAuthority.load(online.issuing)
    fresh = party.times[-1].lists
    party.go(timedelta(hours=25))
    assert party.times[-1].lists > fresh, "the lists of its own root come as ever"
    (party.home / "crls.pem").unlink()
    with monkeypatch.context() as patch:
        patch.setattr(renewals, "Link", lambda *_: party.link)
        files = Files.of(*[party.home / f"{name}.pem" for name in ("certificate", "key", "authority")], None)
        assert renewals.load(files, "https://near").identity.name == "north", "also at a start"
    assert (
        "offers roots that this party does not have (Stranger), and a root never comes over the wire"
        in (party.said[-1][1])
    )


def test_a_certificate_that_cannot_be_used_does_not_replace_one_that_can(party):
    before = party.credential.certificate_pem
    other = party.online.enrol("silo", "south", now=START)
    party.link.reenroll = lambda *_: (other / "certificate.pem").read_bytes()
    party.go(3 * DAY)
    assert party.credential.certificate_pem == before == (party.home / "certificate.pem").read_bytes()
    assert "the one before it was put back" in party.said[-1][1]


def test_a_list_that_the_root_should_have_made_anew_is_told_daily(party):
    party.now[0] += 75 * DAY + timedelta(hours=12)
    party.renewal.look()
    told = [text for level, text in party.said if "is fresh until" in text]
    assert not told, "more than fourteen days before"
    for _ in range(3):
        party.go(DAY)
    told = [text for level, text in party.said if "is fresh until" in text]
    assert len(told) == 3
    assert told[0].startswith("the revocation list of the authority 'Root of tests' is fresh until")


def test_a_fault_that_nobody_foresaw_does_not_end_the_renewal(party):
    stop = threading.Event()
    party.renewal.look = lambda: stop.set() or 1 / 0
    party.renewal.run(stop, 0.0)
    assert party.said == [("warning", "renewal failed: ZeroDivisionError: division by zero")]


def test_without_an_authority_online_times_are_told_and_warned_of(party, tmp_path):
    said, times = [], []
    offline = Renewal(
        party.credential,
        Files(*[tmp_path] * 4),
        None,
        tell=lambda *words: said.append(words),
        on_times=times.append,
        clock=lambda: party.now[0],
    )
    offline.look()
    assert not said
    party.now[0] += 5 * DAY
    offline.look()
    assert said[0][0] == "warning"
    assert said[0][1].endswith("have it signed again (`fedward-authority sign`)")
    assert times[-1].certificate == party.credential.ends


def test_over_the_network_a_certificate_is_renewed_and_lists_come_once(online, url):
    home = online.enrol("silo", "wired", now=datetime.now(UTC) - timedelta(minutes=4))
    credential, said = load(home), []
    files = Files(*(home / name for name in ("certificate.pem", "key.pem", "authority.pem", "crls.pem")))
    later = datetime.now(UTC) + 3 * DAY
    renewal = Renewal(
        credential,
        files,
        link_for(credential, url),
        tell=lambda *words: said.append(words),
        on_times=lambda _: None,
        clock=lambda: later,
    )
    before = credential.certificate_pem
    renewal.look()
    assert credential.certificate_pem != before
    assert [level for level, text in said if "revocation list" not in text] == ["info"]
    stamp = files.lists.stat().st_mtime_ns
    renewal.look()
    assert files.lists.stat().st_mtime_ns == stamp


def test_an_older_list_undoes_no_revocation_also_after_a_restart(party):
    """A thief of the issuing key, whom the root revoked, may serve what the root said before."""
    home, online = party.home, party.online
    before = online.authority.lists_pem()
    online.authority.revoke("fedward://silo/north", None, datetime.now(UTC), "lost")
    party.go(timedelta(minutes=1))
    with pytest.raises(CertificateError, match="was revoked as of"):
        load(home)
    party.link.lists = lambda _: ("older", before)
    party.go(timedelta(minutes=1))
    with pytest.raises(CertificateError, match="was revoked as of"):
        load(home)
    kept = (home / "crls.pem").read_bytes()
    (home / "crls.pem").unlink()
    party.go(timedelta(minutes=1))
    assert (home / "crls.pem").exists(), "lists that were deleted are fetched, whatever their tag"
    (home / "crls.pem").write_bytes(kept + kept)
    party.go(timedelta(minutes=1))
    assert len((home / "crls.pem").read_bytes()) <= len(kept)


def test_it_is_due_at_a_third(online):
    assert not due(START, START + 9 * DAY, START + 3 * DAY - timedelta(seconds=1))
    assert due(START, START + 9 * DAY, START + 3 * DAY)


def test_who_was_away_until_the_lists_were_stale_fetches_them_when_it_starts(online, url):
    home = online.enrol("silo", "away")
    files = Files.of(home / "certificate.pem", home / "key.pem", home / "authority.pem", None)
    files.lists.unlink()
    with pytest.raises(CertificateError, match="revocation lists are required, and there are none"):
        renewals.load(files, None)
    with pytest.raises(
        CertificateError, match=r"there are none.* No newer lists could be fetched: the issuing authority at"
    ):
        renewals.load(files, "https://localhost:1")
    assert renewals.load(files, url).identity.name == "away"
    assert renewals.load(files, None).identity.name == "away"


class Tagged(Near):
    """As the service: lists are sent only to who does not have them."""

    def lists(self, tag=None):
        self.asked.append(tag)
        pem = self.online.authority.lists_pem(self.clock())
        return "now", None if tag == "now" else pem


def test_lists_that_were_deleted_are_fetched_again(party):
    link = Tagged(party.online, lambda: party.now[0])
    party.renewal._link = lambda: link
    path = party.home / "crls.pem"
    party.go(DAY / 24)
    kept = path.read_bytes()
    party.go(DAY / 24)
    path.unlink()
    party.go(DAY / 24)
    assert link.asked == [None, "now", None]
    assert path.read_bytes() == kept


def test_until_the_root_has_named_the_key_the_certificate_is_renewed_every_two_hours(tmp_path, monkeypatch):
    online, now = Online(tmp_path / "online"), [START]
    monkeypatch.setattr("crypto.pki.certificates.datetime", Clock(now))
    home = online.enrol("silo", "north", named=False)
    credential, link = load(home), Near(online, lambda: now[0])
    files = Files(*(home / name for name in ("certificate.pem", "key.pem", "authority.pem", "crls.pem")))
    said = lambda *_: None  # noqa: E731
    renewal = Renewal(credential, files, lambda: link, tell=said, on_times=said, clock=lambda: now[0])

    def go(hours):
        now[0] += timedelta(hours=hours)
        renewal.look()
        return len(link.asked)

    assert [go(hours) for hours in (0, 1.9, 0.2, 1, 1.1)] == [1, 1, 2, 2, 3]
    assert not credential.named
    made = root.readmit(online.root, days=310, keys=online.authority.keys())
    (online.issuing / READMISSIONS_FILE).write_bytes(readmission.to_json(made))
    assert [go(hours) for hours in (2.1, 3, 20)] == [4, 4, 4]
    assert credential.named


def test_a_list_fades_in_its_last_third_if_that_is_within_two_weeks():
    def from_when(days):
        one = RevocationList(1, START, START + days * DAY, {})
        at = next(hours for hours in range(24 * days + 2) if fades(one, START + timedelta(hours=hours)))
        return timedelta(hours=at)

    assert from_when(3) == 2 * DAY
    assert from_when(90) == 76 * DAY + timedelta(hours=1)


def test_a_try_that_failed_is_made_again_after_ten_minutes_and_up_to_half_as_much(party, monkeypatch):
    tried = []
    party.renewal._renew = lambda _: tried.append(party.now[0]) or party.link._reach()
    party.link.away = True
    monkeypatch.setattr(renewals.random, "random", lambda: 0.5)
    party.go(3 * DAY)
    for minutes in (12, 1 / 2, 12, 1):
        party.go(timedelta(minutes=minutes))
    start = START + 3 * DAY
    assert tried == [start, start + timedelta(minutes=12.5), start + timedelta(minutes=25.5)]


def test_times_are_told_in_words_and_lists_only_if_there_are_some():
    later = datetime(2026, 3, 1, 12, 30, tzinfo=UTC)
    assert str(Times(later, None)) == "certificate until 2026-03-01 12:30 UTC"
    whole = "certificate until 2026-03-01 12:30 UTC, revocation lists until 2026-03-02 12:30 UTC"
    assert str(Times(later, later + DAY)) == whole


def test_without_a_url_there_is_no_way_and_with_one_it_leads_there(party):
    assert link_for(party.credential, None) is None
    assert link_for(party.credential, "https://near")().url == "https://near"


def test_lists_come_in_the_order_in_which_they_end_and_none_of_an_authority_that_is_gone(party):
    now = party.now[0]
    found = live_lists(party.credential, now)
    assert [one.until for _, one in found] == sorted(one.until for _, one in found)
    assert {one.kind for one, _ in found} == {"the authority", "the issuing authority"}
    ended = max(one.ends for one, _ in found)
    assert [one for one, _ in live_lists(party.credential, ended)] == [one for one, _ in found if one.ends == ended]
    assert live_lists(party.credential, ended + DAY) == []


def test_what_the_authority_hands_out_is_looked_at_and_not_written(party, tmp_path, monkeypatch):
    monkeypatch.setattr(renewals, "Link", lambda *_: party.link)
    before = {path: path.read_bytes() for path in party.home.iterdir()}
    standing = renewals.look(party.home / "authority.pem", "https://near")
    assert standing.bundle.pem == party.credential.trust.source().bundle.pem
    assert standing.lists.of.keys() == {one.fingerprint for one in standing.bundle.all}
    assert {path: path.read_bytes() for path in party.home.iterdir()} == before
    root.init(tmp_path / "other", "Stranger", 9)
    party.online.authority.authority_pem += (tmp_path / "other" / "authority.pem").read_bytes()
    with pytest.raises(CertificateError, match=r"offers roots .* \(Stranger\)"):
        renewals.look(party.home / "authority.pem", "https://near")
    with pytest.raises(CertificateError, match=r"none\.pem cannot be read \(No such file or directory\)"):
        renewals.look(party.home / "none.pem", "https://near")


def test_between_two_looks_it_waits_for_its_pace(party):
    stop, looks = MagicMock(), []
    stop.is_set.side_effect = [False, False, True]
    party.renewal.look = lambda: looks.append(1)
    party.renewal.run(stop, 7.0)
    assert (looks, stop.wait.mock_calls) == ([1, 1], [call(7.0), call(7.0)])


def test_a_command_beside_the_program_does_not_keep_the_memory_of_keys(party, monkeypatch):
    said = []
    monkeypatch.setattr(renewals.Credential, "load", lambda *files, **more: said.append((files, more)))
    own = Files(*[party.home / f"{name}.pem" for name in ("certificate", "key", "authority", "crls")])
    renewals.load(own, None)
    renewals.load(replace(own, passphrase=party.home / "word", memory=party.home / "memory"), None, keeps=True)
    files = (own.certificate, own.key, own.authority, own.lists)
    assert said == [
        (files, {"passphrase": None, "memory": None, "keeps": False}),
        (files, {"passphrase": party.home / "word", "memory": party.home / "memory", "keeps": True}),
    ]
