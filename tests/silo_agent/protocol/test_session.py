import json
from base64 import b64encode
from datetime import UTC, datetime

import pytest
from structlog.testing import capture_logs

from crypto.entropy import SystemEntropy
from crypto.errors import CertificateError, RosterRefused, SealError
from crypto.pki.at_rest import Vault
from crypto.pki.authority import root
from crypto.pki.authority.building import read_request
from crypto.pki.enrolment import create_request
from crypto.pki.identity import Identity, Role, Subject
from crypto.secagg.dealt.attempt_secrets import AttemptSecrets
from crypto.secagg.survivors import SurvivorList
from crypto.secagg.unmasking import notes_digest
from crypto.secagg.words import NOTHING
from protos import record
from silo_agent.protocol.session import Session, session_name
from support.online import Online, load
from support.sessions import (
    NAMES,
    NEEDED,
    NEXT,
    PLACE,
    STUDY,
    TENSORS,
    bundles_of,
    dealt,
    fresh,
    greeted,
    met,
    roster_of,
    secrets_of,
    shared,
)

KEY_FILE = "keys.sealed"


def test_a_silo_that_begins_again_goes_on_with_its_keys(stored):
    roster, _ = dealt(stored())
    again = stored()
    assert roster_of(again) == roster
    keys = [session.within(roster).keys for session in again.values()]
    assert keys[0] == keys[1] == keys[2]


def test_a_dealer_that_begins_again_sends_the_same_package_within_an_attempt(stored):
    roster, package = dealt(stored())
    south = stored()["south"]
    assert south.within(roster).deal(PLACE) == package
    assert south.within(roster).deal(NEXT) != package


def test_keys_lie_sealed_and_open_for_their_owner_alone(stored, credentials, tmp_path):
    roster, _ = dealt(stored())
    sessions = stored()
    path = tmp_path / "north" / KEY_FILE
    blob, keys = path.read_bytes(), sessions["north"].within(roster).keys
    for secret in (keys.group, keys.check, keys.ckks[:64], sessions["north"]._store.ephemeral.to_bytes()[:32]):
        assert secret not in blob
    assert path.stat().st_mode & 0o777 == 0o600
    thief = Session.open(STUDY, credentials["west"], SystemEntropy(), tmp_path / "north", begun=True)
    assert thief.member.public_key != sessions["north"].member.public_key


@pytest.mark.parametrize("damage", [lambda b: b[:-1], lambda b: b[:40] + bytes([b[40] ^ 1]) + b[41:], lambda b: b""])
def test_a_damaged_key_file_gives_fresh_keys(stored, tmp_path, damage):
    before = stored()["north"].member
    path = tmp_path / "north" / KEY_FILE
    path.write_bytes(damage(path.read_bytes()))
    after = stored()["north"].member
    assert after.public_key != before.public_key
    assert stored()["north"].member == after


def test_forgotten_keys_are_gone(stored, tmp_path):
    before = stored()["north"].member
    Session.forget(tmp_path / "north")
    assert not (tmp_path / "north" / KEY_FILE).exists()
    assert stored()["north"].member.public_key != before.public_key


@pytest.mark.parametrize("begun", [True, False])
def test_keys_that_are_gone_are_told_where_the_study_had_begun(credentials, tmp_path, begun):
    def opened(begun):
        with capture_logs() as logs:
            session = Session.open(STUDY, credentials["north"], SystemEntropy(), tmp_path, begun=begun)
        return session.member, logs

    before, _ = opened(begun=False)
    (tmp_path / KEY_FILE).unlink()
    after, logs = opened(begun)
    assert after.public_key != before.public_key
    told = [(one["event"], one["file"], one["why"], one["mend"]) for one in logs]
    mend = "check the disk, and who removes files there; the round that is under way begins again"
    whole = [("stored keys are not usable; new ones are made", str(tmp_path / KEY_FILE), "it is gone", mend)]
    assert told == (whole if begun else [])
    assert opened(begun=True) == (after, [])


def test_a_key_store_keeps_its_name_until_it_does_not_open(credentials, tmp_path):
    name = session_name(tmp_path, credentials["north"], SystemEntropy())
    assert session_name(tmp_path, credentials["north"], SystemEntropy()) == name
    other = session_name(tmp_path, credentials["south"], SystemEntropy())
    assert other != name
    assert session_name(tmp_path, credentials["north"], SystemEntropy()) not in (name, other)


OLD = {
    "ephemeral": b64encode(b"k" * 32 + b"signature").decode(),
    "dealt": {"roster": "r", "ckks": "", "group": "", "check": "", "place": [0, 1], "package": ""},
}
"""As version 0.2 wrote it: one key pair, the roster's keys."""


@pytest.mark.parametrize("old", [OLD, {**OLD, "dealt": None}, {"ephemeral": OLD["ephemeral"]}, {}])
def test_a_file_of_another_version_gives_fresh_keys(stored, credentials, tmp_path, old):
    before = stored()["north"].member
    path, vault = tmp_path / "north" / KEY_FILE, Vault(credentials["north"], f"keys of {STUDY}", SystemEntropy())
    path.write_bytes(vault.seal(json.dumps(old).encode()))
    with capture_logs() as logs:
        after = stored()["north"].member
    assert after.public_key != before.public_key
    assert [entry["event"] for entry in logs] == ["stored keys are not usable; new ones are made"]
    assert logs[0]["file"] == str(path)
    assert stored()["north"].member == after


def test_a_silo_that_begins_again_goes_on_in_the_same_attempt(stored):
    """Its words are the same bytes, its masks the same, and it can reveal and open what it shared before."""
    before = stored()
    roster, greetings = greeted(before)
    assert {name: session.within(roster).greet() for name, session in stored().items()} == greetings
    for session in before.values():
        session.within(roster).meet(greetings)
    package = before["south"].within(roster).deal(PLACE)
    for session in before.values():
        session.within(roster).take("south", package)
    notes = {name: session.within(roster).share(PLACE, TENSORS, NEEDED, dict) for name, session in before.items()}
    masks = {name: session.within(roster).masks(PLACE, "heads", NAMES) for name, session in before.items()}
    again = stored()
    assert again["south"].within(roster).greet() == greetings["south"]
    assert again["south"].within(roster).deal(PLACE) == package
    assert {
        name: session.within(roster).share(PLACE, TENSORS, NEEDED, dict) for name, session in again.items()
    } == notes
    assert {name: session.within(roster).masks(PLACE, "heads", NAMES) for name, session in again.items()} == masks
    bundles = bundles_of(again, roster, notes)
    notes = notes_digest(bundles["north"], NAMES)
    survivors = SurvivorList(again["north"].within(roster).attempt(PLACE), "heads", NAMES, notes)
    reveals = {
        name: session.within(roster).reveal(bundles[name], survivors, NAMES, NOTHING) for name, session in again.items()
    }
    unmasking = (
        again["west"]
        .within(roster)
        .unmasking(reveals, bundles["west"], survivors, participants=NAMES, threshold=NEEDED)
    )
    assert unmasking.own == {name: mask.own for name, mask in masks.items()}


def test_a_secret_is_durable_before_the_note_that_tells_of_it_is_given(credentials):
    """Were it the other way round, a crash between the two would have others hold shares of nothing."""
    kept = []
    sessions = {name: Session(STUDY, credentials[name], SystemEntropy(), kept.append) for name in credentials}
    for step in (greeted, met, dealt, shared):
        step(sessions)
        for session in sessions.values():
            assert record.dump(session._store.stored).encode() in kept


def test_secrets_of_an_attempt_lie_sealed_and_are_erased_with_it(stored, credentials, tmp_path):
    roster, _ = shared(stored())
    north = stored()["north"]
    path, vault = tmp_path / "north" / KEY_FILE, Vault(credentials["north"], f"keys of {STUDY}", SystemEntropy())
    secrets = secrets_of(north, roster)
    drawn = AttemptSecrets.from_bytes(north._store.stored.shared.secrets)
    for secret in secrets:
        for form in (secret, secret.hex().encode(), b64encode(secret)):
            assert form not in path.read_bytes()
    lies_there = vault.open(path.read_bytes())
    assert b64encode(north._store.stored.shared.secrets) in lies_there
    before = north.within(roster).keys
    north.forget_attempt()
    left = vault.open(path.read_bytes())
    assert json.loads(left)["shared"] is None
    for secret in (*drawn.own.values(), *drawn.keys.values()):
        assert all(form not in left for form in (secret.hex().encode(), b64encode(secret)))
    assert north.within(roster).keys == stored()["north"].within(roster).keys == before
    for session in (north, stored()["north"]):
        with pytest.raises(SealError, match="secrets of this attempt are gone"):
            session.within(roster).masks(PLACE, "heads", NAMES)


def test_a_roster_is_judged_anew_at_every_attempt_and_not_within_one(tmp_path):
    online = Online(tmp_path)
    homes = {name: online.enrol("silo", name) for name in NAMES}
    sessions = {name: fresh(load(home)) for name, home in homes.items()}
    roster = roster_of(sessions)
    within = sessions["north"].within
    assert within(roster, PLACE).roster is within(roster, PLACE).roster
    online.authority.revoke("fedward://silo/west", None, datetime.now(UTC), "left")
    online.bring_lists(homes["north"])
    assert within(roster, PLACE).roster.names == NAMES
    with pytest.raises(CertificateError, match="fedward://silo/west was revoked"):
        _ = within(roster, NEXT).roster


def test_a_silo_whose_certificate_was_renewed_stays_in_the_roster_and_offers_the_new_one_next(tmp_path):
    online = Online(tmp_path)
    homes = {name: online.enrol("silo", name) for name in NAMES}
    sessions = {name: fresh(load(home)) for name, home in homes.items()}
    roster, greetings = greeted(sessions)
    online.renew(homes["north"])
    for session in sessions.values():
        session.within(roster, PLACE).meet(greetings)
    assert sessions["north"].member != roster[0]
    assert dealt(sessions)[0][0] == sessions["north"].member


def test_two_silos_of_one_institution_are_no_roster(tmp_path):
    online, sessions = Online(tmp_path), {}
    for name, run_by in (("north", "charite"), ("south", "vivantes"), ("west", "charite")):
        party = Subject(Identity(Role.SILO, name), f"{name}-ward", run_by)
        home = tmp_path / name
        request = create_request(home, party).read_bytes()
        key = read_request(request).fingerprint
        token = root.admit(online.root, party, days=30, redeem_days=5, key=key)
        (home / "certificate.pem").write_bytes(online.authority.redeem(request, token))
        (home / "authority.pem").write_bytes(online.pem)
        online.bring_lists(home)
        sessions[name] = fresh(load(home))
    with pytest.raises(RosterRefused, match="'north' and 'west' are both of the institution 'charite'"):
        greeted(sessions)
    del sessions["west"]
    assert len(greeted(sessions)[0]) == 2
