from dataclasses import replace

import numpy as np
import pytest

from crypto import ckks_public, ring
from crypto.agreement import EphemeralKey
from crypto.entropy import SystemEntropy
from crypto.errors import CertificateError, OpeningRefused, RosterRefused, SealError, SignatureRefused
from crypto.labels import Label
from crypto.packages import open_note, seal_note
from protos.messages import Member
from silo_agent.session import Session
from support.certificates import load
from support.entropy import SeededEntropy

STUDY = "5" * 64


@pytest.fixture
def sessions(credentials):
    return {name: Session(STUDY, credential, SystemEntropy()) for name, credential in credentials.items()}


def roster_of(sessions):
    return tuple(sessions[name].member for name in sorted(sessions))


def forged(roster, name, **fields):
    return tuple(replace(member, **fields) if member.silo == name else member for member in roster)


def dealt(sessions, dealer="south"):
    roster = roster_of(sessions)
    package = sessions[dealer].deal(roster)
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
    restarted = {**sessions, "north": Session(STUDY, sessions["north"]._ephemeral._credential, SystemEntropy())}
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
    member = Session(STUDY, impostor, SystemEntropy()).member
    roster = tuple(member if m.silo == "south" else m for m in roster_of(sessions))
    with pytest.raises(CertificateError):
        sessions["north"].meet(roster)


def test_a_silo_under_anothers_name_is_refused(sessions, authority):
    east = Session(STUDY, load(authority.credential("silo", "east")), SystemEntropy()).member
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
        sessions = {name: Session(STUDY, credential, SeededEntropy(3)) for name, credential in credentials.items()}
        roster, _ = dealt(sessions)
        keys.append(sessions["north"].keys(roster))
    assert keys[0].group == keys[1].group != keys[0].check
    assert keys[0].ckks != keys[1].ckks


def test_secrets_are_not_printed(sessions):
    roster, _ = dealt(sessions)
    shown = repr((sessions["north"], sessions["north"].keys(roster), sessions["north"].sealer(roster)))
    assert repr(sessions["north"].keys(roster).group)[2:-1] not in shown
