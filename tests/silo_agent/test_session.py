from dataclasses import replace

import numpy as np
import pytest

from crypto import ckks_public, ring
from crypto.agreement import EphemeralKey
from crypto.entropy import SystemEntropy
from crypto.errors import CertificateError, OpeningRefused, RosterRefused, SealError, SignatureRefused
from crypto.labels import Label
from crypto.packages import open_note, seal_note
from protos.messages import Member, Place
from silo_agent.session import KEY_FILE, Session, session_name
from support.certificates import load
from support.entropy import SeededEntropy

STUDY = "5" * 64
PLACE = Place(STUDY, 0, 1)


def fresh(credential, entropy=None):
    return Session(STUDY, credential, entropy or SystemEntropy(), lambda _: None)


@pytest.fixture
def sessions(credentials):
    return {name: fresh(credential) for name, credential in credentials.items()}


def roster_of(sessions):
    return tuple(sessions[name].member for name in sorted(sessions))


def forged(roster, name, **fields):
    return tuple(replace(member, **fields) if member.silo == name else member for member in roster)


def dealt(sessions, dealer="south"):
    roster = roster_of(sessions)
    package = sessions[dealer].deal(roster, PLACE)
    for session in sessions.values():
        session.take(roster, dealer, package)
    return roster, package


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


@pytest.mark.parametrize(("kind", "public"), [("ckks", ckks_public), ("ring", ring)])
def test_sums_under_dealt_keys_open_and_single_contributions_do_not(sessions, kind, public):
    roster, _ = dealt(sessions)
    sealers = {name: session.sealer(roster) for name, session in sessions.items()}
    label = Label(STUDY, sessions["north"].meet(roster).digest, "m", 1, 1, "heads")
    values = {name: np.arange(50, dtype=np.int64) * (n + 1) - 40 for n, name in enumerate(sealers)}
    sealed = {name: sealer.seal(kind, values[name], label) for name, sealer in sealers.items()}
    total = bytearray(sealed["north"])
    for name in ("south", "west"):
        public.add_frames(total, sealed[name])
    for sealer in sealers.values():
        opened = sealer.open(kind, bytes(total), 50, label, list(sealers))
        assert np.array_equal(opened, sum(values.values()))
    if kind == "ckks":
        with pytest.raises(OpeningRefused):
            sealers["south"].open(kind, sealed["north"], 50, label, list(sealers))
    else:
        alone = sealers["south"].open(kind, sealed["north"], 50, label, list(sealers))
        assert not np.isin(alone, values["north"]).any()


def test_a_roster_without_this_silos_own_key_is_refused(sessions, credentials):
    others = tuple(member for member in roster_of(sessions) if member.silo != "north")
    with pytest.raises(SealError, match="does not hold this silo's own key"):
        sessions["north"].meet(others)
    other = EphemeralKey.create(credentials["north"], STUDY).offer
    older = forged(roster_of(sessions), "north", public_key=other.public, signature=other.signature)
    with pytest.raises(SealError, match="does not hold this silo's own key"):
        sessions["north"].meet(older)


def test_a_key_that_another_process_offered_is_not_met(sessions):
    restarted = {**sessions, "north": fresh(sessions["north"]._ephemeral._credential)}
    with pytest.raises(SealError):
        restarted["north"].meet(roster_of(sessions))


def test_a_forged_signature_is_refused(sessions):
    roster = roster_of(sessions)
    swapped = forged(roster, "south", signature=sessions["west"].member.signature)
    with pytest.raises(SignatureRefused):
        sessions["north"].meet(swapped)


def test_a_key_put_in_place_of_a_silos_is_refused(sessions):
    roster = forged(roster_of(sessions), "south", public_key=bytes(range(32)))
    with pytest.raises(SignatureRefused):
        sessions["north"].meet(roster)


def test_a_key_offered_for_another_study_is_refused(sessions, credentials):
    other = EphemeralKey.create(credentials["south"], "6" * 64).offer
    roster = forged(roster_of(sessions), "south", public_key=other.public, signature=other.signature)
    with pytest.raises(SignatureRefused):
        sessions["north"].meet(roster)


def test_a_certificate_of_another_authority_is_refused(sessions, foreign_authority):
    impostor = load(foreign_authority.credential("silo", "south"))
    member = fresh(impostor).member
    roster = tuple(member if m.silo == "south" else m for m in roster_of(sessions))
    with pytest.raises(CertificateError):
        sessions["north"].meet(roster)


def test_a_silo_under_anothers_name_is_refused(sessions, authority):
    east = fresh(load(authority.credential("silo", "east"))).member
    roster = tuple(replace(east, silo="south") if m.silo == "south" else m for m in roster_of(sessions))
    with pytest.raises(RosterRefused):
        sessions["north"].meet(roster)


def test_a_coordinator_is_no_member(sessions, coordinator):
    offer = EphemeralKey.create(coordinator, STUDY).offer
    hub = Member("hub", coordinator.certificate_pem, offer.public, offer.signature)
    with pytest.raises(CertificateError):
        sessions["north"].meet(tuple(sorted((*roster_of(sessions), hub), key=lambda m: m.silo)))


def test_an_unsorted_or_repeated_roster_is_refused(sessions):
    roster = roster_of(sessions)
    for wrong in (roster[::-1], (*roster, roster[-1]), (sessions["north"].member,)):
        with pytest.raises(RosterRefused):
            sessions["north"].meet(wrong)


def test_nothing_is_sealed_before_keys_are_dealt_to_this_very_roster(sessions):
    roster = roster_of(sessions)
    with pytest.raises(SealError, match="no keys were dealt to this roster"):
        sessions["north"].sealer(roster)
    dealt(sessions)
    with pytest.raises(SealError, match="no keys were dealt to this roster"):
        sessions["north"].sealer(roster[:2])


def test_a_package_that_was_altered_or_comes_from_another_dealer_is_refused(sessions):
    roster, package = dealt(sessions)
    for blob, dealer in ((package[:-1] + bytes([package[-1] ^ 1]), "south"), (package, "west"), (b"", "south")):
        with pytest.raises(SealError):
            sessions["north"].take(roster, dealer, blob)


def test_a_package_opens_for_its_own_roster_alone(sessions):
    _, package = dealt(sessions)
    pair = {name: sessions[name] for name in ("north", "south")}
    with pytest.raises(SealError):
        sessions["north"].take(roster_of(pair), "south", package)


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
    shown = repr((sessions["north"], sessions["north"].keys(roster), sessions["north"].sealer(roster)))
    assert repr(sessions["north"].keys(roster).group)[2:-1] not in shown


# --- outliving the process --------------------------------------------------------------------------------------------
@pytest.fixture
def stored(credentials, tmp_path):
    """Sessions that lie in folders, and how to begin them again."""

    def begin():
        folders = {name: tmp_path / name for name in credentials}
        for folder in folders.values():
            folder.mkdir(exist_ok=True)
        return {name: Session.open(STUDY, credentials[name], SystemEntropy(), folders[name]) for name in folders}

    return begin


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
    assert south.deal(roster, replace(PLACE, attempt=2)) != package


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
