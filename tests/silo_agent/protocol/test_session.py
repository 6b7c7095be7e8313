import json
from base64 import b64encode
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from crypto.entropy import SystemEntropy
from crypto.errors import (
    CertificateError,
    RosterRefused,
    SealError,
    SignatureRefused,
)
from crypto.pki.at_rest import Vault
from crypto.secagg.agreement import EphemeralKey
from crypto.secagg.labels import Label
from crypto.secagg.packages import open_note, seal_note
from protos.messages import Member
from silo_agent.protocol.session import KEY_FILE, Session, session_name
from support.certificates import load
from support.entropy import SeededEntropy
from support.sessions import (
    NAMES,
    NEEDED,
    NEXT,
    PLACE,
    STUDY,
    TENSORS,
    dealt,
    flipped,
    fresh,
    greeted,
    met,
    roster_of,
)


def forged(roster, name, **fields):
    return tuple(replace(member, **fields) if member.silo == name else member for member in roster)


def test_keys_that_one_silo_deals_are_taken_by_all(sessions):
    roster, _ = dealt(sessions)
    keys = [session.keys(roster) for session in sessions.values()]
    assert keys[0] == keys[1] == keys[2]
    label = Label(STUDY, "r", "m", 1, 1, "note-heads")
    note = seal_note(keys[0], label, b"heads", SystemEntropy())
    assert open_note(keys[2], label, note) == b"heads"


def test_the_coordinator_cannot_find_the_keys_in_the_package(sessions):
    roster, package = dealt(sessions)
    keys = sessions["north"].keys(roster)
    for secret in (keys.group, keys.check, keys.ckks[:64]):
        assert secret not in package


def test_a_roster_without_this_silos_own_key_is_refused(sessions, credentials):
    others = tuple(member for member in roster_of(sessions) if member.silo != "north")
    with pytest.raises(SealError, match="does not hold this silo's own key"):
        sessions["north"].greet(others)
    other = EphemeralKey.create(credentials["north"], STUDY).offer
    older = forged(roster_of(sessions), "north", public_key=other.public, kem_key=other.kem, signature=other.signature)
    with pytest.raises(SealError, match="does not hold this silo's own key"):
        sessions["north"].greet(older)


def test_a_key_that_another_process_offered_is_not_met(sessions):
    restarted = {**sessions, "north": fresh(sessions["north"]._credential)}
    with pytest.raises(SealError):
        restarted["north"].greet(roster_of(sessions))


def test_a_forged_signature_is_refused(sessions):
    roster = roster_of(sessions)
    swapped = forged(roster, "south", signature=sessions["west"].member.signature)
    with pytest.raises(SignatureRefused):
        sessions["north"].greet(swapped)


def test_a_key_put_in_place_of_a_silos_is_refused(sessions):
    other = EphemeralKey.create(sessions["north"]._credential, STUDY).offer
    for key in ({"public_key": bytes(range(32))}, {"kem_key": other.kem}):
        with pytest.raises(SignatureRefused):
            sessions["north"].greet(forged(roster_of(sessions), "south", **key))


def test_a_key_offered_for_another_study_is_refused(sessions, credentials):
    other = EphemeralKey.create(credentials["south"], "6" * 64).offer
    roster = forged(roster_of(sessions), "south", public_key=other.public, kem_key=other.kem, signature=other.signature)
    with pytest.raises(SignatureRefused):
        sessions["north"].greet(roster)


def test_a_certificate_of_another_authority_is_refused(sessions, foreign_authority):
    impostor = load(foreign_authority.credential("silo", "south"))
    member = fresh(impostor).member
    roster = tuple(member if m.silo == "south" else m for m in roster_of(sessions))
    with pytest.raises(CertificateError):
        sessions["north"].greet(roster)


def test_a_silo_under_anothers_name_is_refused(sessions, authority):
    southeast = fresh(load(authority.credential("silo", "southeast"))).member
    roster = tuple(replace(southeast, silo="south") if m.silo == "south" else m for m in roster_of(sessions))
    with pytest.raises(RosterRefused):
        sessions["north"].greet(roster)


def test_a_coordinator_is_no_member(sessions, coordinator):
    offer = EphemeralKey.create(coordinator, STUDY).offer
    hub = Member("hub", coordinator.certificate_pem, offer.public, offer.kem, offer.signature)
    with pytest.raises(CertificateError):
        sessions["north"].greet(tuple(sorted((*roster_of(sessions), hub), key=lambda m: m.silo)))


def test_an_unsorted_or_repeated_roster_is_refused(sessions):
    roster = roster_of(sessions)
    for wrong in (roster[::-1], (*roster, roster[-1]), (sessions["north"].member,)):
        with pytest.raises(RosterRefused):
            sessions["north"].greet(wrong)


def test_nothing_is_sealed_before_keys_are_dealt_to_this_very_roster(sessions):
    roster = roster_of(sessions)
    with pytest.raises(SealError, match="no keys were dealt to this roster"):
        sessions["north"].sealer(roster, NAMES)
    dealt(sessions)
    with pytest.raises(SealError, match="no keys were dealt to this roster"):
        sessions["north"].sealer(roster[:2], NAMES)


def test_a_package_that_was_altered_or_comes_from_another_dealer_is_refused(sessions):
    roster, package = dealt(sessions)
    for blob, dealer in ((package[:-1] + bytes([package[-1] ^ 1]), "south"), (package, "west"), (b"", "south")):
        with pytest.raises(SealError):
            sessions["north"].take(roster, dealer, blob)


def test_a_package_opens_for_its_own_roster_alone(sessions):
    _, package = dealt(sessions)
    pair = {name: sessions[name] for name in ("north", "south")}
    with pytest.raises(SealError):
        sessions["north"].take(met(pair), "south", package)


def test_the_group_keys_come_from_the_entropy_given(credentials):
    keys = []
    for _ in range(2):
        sessions = {name: fresh(credential, SeededEntropy(3)) for name, credential in credentials.items()}
        roster, _ = dealt(sessions)
        keys.append(sessions["north"].keys(roster))
    assert keys[0].group == keys[1].group != keys[0].check
    assert keys[0].ckks != keys[1].ckks


def test_secrets_are_not_printed(sessions):
    roster, _ = dealt(sessions)
    shown = repr((sessions["north"], sessions["north"].keys(roster), sessions["north"].sealer(roster, NAMES)))
    assert repr(sessions["north"].keys(roster).group)[2:-1] not in shown


# --- greeting ---------------------------------------------------------------------------------------------------------
def test_a_roster_is_greeted_once_and_another_one_anew(sessions):
    roster = roster_of(sessions)
    greeting = sessions["north"].greet(roster)
    assert sessions["north"].greet(roster) == greeting
    pair = roster[:2]
    assert sessions["north"].greet(pair) != greeting
    # What was said to the first roster is forgotten with it.
    assert sessions["north"].greet(roster) != greeting


def test_nobody_is_met_who_was_not_greeted(sessions):
    roster, greetings = greeted(sessions)
    stranger = fresh(sessions["north"]._credential)
    with pytest.raises(SealError, match="was not greeted"):
        stranger.meet(roster, greetings)
    with pytest.raises(SealError, match="was not greeted"):
        sessions["north"].meet(roster[:2], greetings)


def test_nothing_is_dealt_or_shared_before_the_greetings_are_read(sessions):
    roster, _ = greeted(sessions)
    with pytest.raises(SealError, match="have not been read"):
        sessions["north"].deal(roster, PLACE)
    with pytest.raises(SealError, match="have not been read"):
        sessions["north"].share(roster, PLACE, TENSORS, NEEDED)


@pytest.mark.parametrize("at", [0, 100, 1200, -10])
def test_an_altered_greeting_is_refused_by_name(sessions, at):
    roster, greetings = greeted(sessions)
    with pytest.raises((RosterRefused, SignatureRefused), match="'north'"):
        sessions["west"].meet(roster, {**greetings, "north": flipped(greetings["north"], at)})


def test_a_greeting_of_another_silo_or_roster_or_none_is_refused_by_name(sessions):
    roster, greetings = greeted(sessions)
    elsewhere = {name: sessions[name] for name in ("north", "south")}
    _, others = greeted(elsewhere)
    for note in (greetings["south"], others["north"], b""):
        with pytest.raises((RosterRefused, SignatureRefused), match="'north'"):
            sessions["west"].meet(roster, {**greetings, "north": note})
    with pytest.raises(RosterRefused, match="'south'"):
        sessions["west"].meet(roster, {"north": greetings["north"]})


def test_keys_are_dealt_under_both_secrets(sessions):
    """A package can be opened by those alone who have read the dealer's greeting, or were read by the dealer."""
    roster, greetings = greeted(sessions)
    sessions["north"].meet(roster, greetings)
    package = sessions["north"].deal(roster, PLACE)
    with pytest.raises(SealError, match="have not been read"):
        sessions["west"].take(roster, "north", package)
    sessions["west"].meet(roster, greetings)
    sessions["west"].take(roster, "north", package)
    assert sessions["west"].keys(roster) == sessions["north"].keys(roster)


# --- outliving the process --------------------------------------------------------------------------------------------
def test_a_silo_that_begins_again_goes_on_with_its_keys(stored):
    roster, _ = dealt(stored())
    again = stored()
    assert roster_of(again) == roster
    keys = [session.keys(roster) for session in again.values()]
    assert keys[0] == keys[1] == keys[2]


def test_a_dealer_that_begins_again_sends_the_same_package_within_an_attempt(stored):
    roster, package = dealt(stored())
    south = stored()["south"]
    assert south.deal(roster, PLACE) == package
    assert south.deal(roster, NEXT) != package


def test_keys_lie_sealed_and_open_for_their_owner_alone(stored, credentials, tmp_path):
    roster, _ = dealt(stored())
    sessions = stored()
    path = tmp_path / "north" / KEY_FILE
    blob, keys = path.read_bytes(), sessions["north"].keys(roster)
    for secret in (keys.group, keys.check, keys.ckks[:64], sessions["north"]._ephemeral.to_bytes()[:32]):
        assert secret not in blob
    assert path.stat().st_mode & 0o777 == 0o600
    thief = Session.open(STUDY, credentials["west"], SystemEntropy(), tmp_path / "north")
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
    assert stored()["north"].member == after
