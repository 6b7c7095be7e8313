from dataclasses import replace
from io import BytesIO

import numpy as np
import pytest
from structlog.testing import capture_logs

from crypto.entropy import SystemEntropy
from crypto.errors import (
    CertificateError,
    OpeningRefused,
    RecoveryRefused,
    RosterRefused,
    SealError,
    SignatureRefused,
)
from crypto.rings.rings import RINGS
from crypto.secagg.agreement import EphemeralKey
from crypto.secagg.labels import SumLabel
from crypto.secagg.packages import open_note, seal_note
from crypto.secagg.survivors import SurvivorList
from crypto.secagg.unmasking import notes_digest
from crypto.secagg.words import NOTHING
from protos.messages import Member
from support.certificates import load
from support.entropy import SeededEntropy
from support.sessions import (
    NAMES,
    NEEDED,
    NEXT,
    PLACE,
    STUDY,
    TENSORS,
    bundles_of,
    dealt,
    flipped,
    fresh,
    greeted,
    met,
    roster_of,
    secrets_of,
    shared,
)


def forged(roster, name, **fields):
    return tuple(replace(member, **fields) if member.silo == name else member for member in roster)


def test_keys_that_one_silo_deals_are_taken_by_all(sessions):
    roster, _ = dealt(sessions)
    keys = [session.within(roster).keys for session in sessions.values()]
    assert keys[0] == keys[1] == keys[2]
    label = SumLabel(STUDY, "r", "m", 1, 1, "note-heads")
    note = seal_note(keys[0], label, b"heads", SystemEntropy())
    assert open_note(keys[2], label, note) == b"heads"


def test_the_coordinator_cannot_find_the_keys_in_the_package(sessions):
    roster, package = dealt(sessions)
    keys = sessions["north"].within(roster).keys
    for secret in (keys.group, keys.check, keys.ckks[:64]):
        assert secret not in package


def test_a_roster_without_this_silos_own_key_is_refused(sessions, credentials):
    others = tuple(member for member in roster_of(sessions) if member.silo != "north")
    with pytest.raises(SealError, match="does not hold this silo's own key"):
        sessions["north"].within(others).greet()
    other = EphemeralKey.create(credentials["north"], STUDY).offer
    older = forged(roster_of(sessions), "north", public_key=other.public, kem_key=other.kem, signature=other.signature)
    with pytest.raises(SealError, match=r"holds another key .*its log then names the file"):
        sessions["north"].within(older).greet()


def test_a_key_that_another_process_offered_is_not_met(sessions):
    restarted = {**sessions, "north": fresh(sessions["north"]._credential)}
    with pytest.raises(SealError):
        restarted["north"].within(roster_of(sessions)).greet()


def test_a_forged_signature_is_refused(sessions):
    roster = roster_of(sessions)
    swapped = forged(roster, "south", signature=sessions["west"].member.signature)
    with pytest.raises(SignatureRefused):
        sessions["north"].within(swapped).greet()


def test_a_key_put_in_place_of_a_silos_is_refused(sessions):
    other = EphemeralKey.create(sessions["north"]._credential, STUDY).offer
    for key in ({"public_key": bytes(range(32))}, {"kem_key": other.kem}):
        with pytest.raises(SignatureRefused):
            sessions["north"].within(forged(roster_of(sessions), "south", **key)).greet()


def test_a_key_offered_for_another_study_is_refused(sessions, credentials):
    other = EphemeralKey.create(credentials["south"], "6" * 64).offer
    roster = forged(roster_of(sessions), "south", public_key=other.public, kem_key=other.kem, signature=other.signature)
    with pytest.raises(SignatureRefused):
        sessions["north"].within(roster).greet()


def test_a_certificate_of_another_authority_is_refused(sessions, foreign_authority):
    impostor = load(foreign_authority.credential("silo", "south"))
    member = fresh(impostor).member
    roster = tuple(member if m.silo == "south" else m for m in roster_of(sessions))
    with pytest.raises(CertificateError):
        sessions["north"].within(roster).greet()


def test_a_silo_under_anothers_name_is_refused(sessions, authority):
    southeast = fresh(load(authority.credential("silo", "southeast"))).member
    roster = tuple(replace(southeast, silo="south") if m.silo == "south" else m for m in roster_of(sessions))
    with pytest.raises(RosterRefused):
        sessions["north"].within(roster).greet()


def test_a_coordinator_is_no_member(sessions, coordinator):
    offer = EphemeralKey.create(coordinator, STUDY).offer
    hub = Member("hub", coordinator.certificate_pem, offer.public, offer.kem, offer.signature)
    with pytest.raises(CertificateError):
        sessions["north"].within(tuple(sorted((*roster_of(sessions), hub), key=lambda m: m.silo))).greet()


def test_an_unsorted_or_repeated_roster_is_refused(sessions):
    roster = roster_of(sessions)
    for wrong in (roster[::-1], (*roster, roster[-1]), (sessions["north"].member,)):
        with pytest.raises(RosterRefused):
            sessions["north"].within(wrong).greet()


def test_nothing_is_sealed_before_keys_are_dealt_to_this_very_roster(sessions):
    roster = roster_of(sessions)
    with pytest.raises(SealError, match="no keys were dealt to this roster"):
        sessions["north"].within(roster).sealer(NAMES)
    dealt(sessions)
    with pytest.raises(SealError, match="no keys were dealt to this roster"):
        sessions["north"].within(roster[:2]).sealer(NAMES)


def test_a_package_that_was_altered_or_comes_from_another_dealer_is_refused(sessions):
    roster, package = dealt(sessions)
    for blob, dealer in ((package[:-1] + bytes([package[-1] ^ 1]), "south"), (package, "west"), (b"", "south")):
        with pytest.raises(RecoveryRefused):
            sessions["north"].within(roster).take(dealer, blob)


def test_a_package_opens_for_its_own_roster_alone(sessions):
    _, package = dealt(sessions)
    pair = {name: sessions[name] for name in ("north", "south")}
    with pytest.raises(RecoveryRefused):
        sessions["north"].within(met(pair)).take("south", package)


def test_the_group_keys_come_from_the_entropy_given(credentials):
    keys = []
    for _ in range(2):
        sessions = {name: fresh(credential, SeededEntropy(3)) for name, credential in credentials.items()}
        roster, _ = dealt(sessions)
        keys.append(sessions["north"].within(roster).keys)
    assert keys[0].group == keys[1].group != keys[0].check
    assert keys[0].ckks != keys[1].ckks


def test_secrets_are_not_printed(sessions):
    roster, _ = dealt(sessions)
    shown = repr(
        (sessions["north"], sessions["north"].within(roster).keys, sessions["north"].within(roster).sealer(NAMES))
    )
    assert repr(sessions["north"].within(roster).keys.group)[2:-1] not in shown


# --- greeting ---------------------------------------------------------------------------------------------------------
def test_a_roster_is_greeted_once_and_another_one_anew(sessions):
    roster = roster_of(sessions)
    greeting = sessions["north"].within(roster).greet()
    assert sessions["north"].within(roster).greet() == greeting
    pair = roster[:2]
    assert sessions["north"].within(pair).greet() != greeting
    # What was said to the first roster is forgotten with it.
    assert sessions["north"].within(roster).greet() != greeting


def test_a_greeting_that_an_older_version_has_kept_is_made_anew(sessions):
    roster = roster_of(sessions)
    greeting = sessions["north"].within(roster).greet()
    store = sessions["north"]._store
    store.greeted(replace(store.stored.met, greeting=b"fedward greet 1\0" + greeting[16:]))
    again = sessions["north"].within(roster).greet()
    assert again.startswith(b"fedward greet 2\0")
    assert again != greeting
    assert sessions["north"].within(roster).greet() == again


def test_nobody_is_met_who_was_not_greeted(sessions):
    roster, greetings = greeted(sessions)
    stranger = fresh(sessions["north"]._credential)
    with pytest.raises(SealError, match="was not greeted"):
        stranger.within(roster).meet(greetings)
    with pytest.raises(SealError, match="was not greeted"):
        sessions["north"].within(roster[:2]).meet(greetings)


def test_nothing_is_dealt_or_shared_before_the_greetings_are_read(sessions):
    roster, _ = greeted(sessions)
    with pytest.raises(SealError, match="have not been read"):
        sessions["north"].within(roster).deal(PLACE)
    with pytest.raises(SealError, match="have not been read"):
        sessions["north"].within(roster).share(PLACE, TENSORS, NEEDED, dict)


@pytest.mark.parametrize("at", [0, 100, 1200, -10])
def test_an_altered_greeting_is_refused_by_name(sessions, at):
    roster, greetings = greeted(sessions)
    with pytest.raises((RosterRefused, SignatureRefused), match="'north'"):
        sessions["west"].within(roster).meet({**greetings, "north": flipped(greetings["north"], at)})


def test_a_greeting_of_another_silo_or_roster_or_none_is_refused_by_name(sessions):
    roster, greetings = greeted(sessions)
    elsewhere = {name: sessions[name] for name in ("north", "south")}
    _, others = greeted(elsewhere)
    for note in (greetings["south"], others["north"], b""):
        with pytest.raises((RosterRefused, SignatureRefused), match="'north'"):
            sessions["west"].within(roster).meet({**greetings, "north": note})
    with pytest.raises(RosterRefused, match="'south'"):
        sessions["west"].within(roster).meet({"north": greetings["north"]})


def test_keys_are_dealt_under_both_secrets(sessions):
    """A package can be opened by those alone who have read the dealer's greeting, or were read by the dealer."""
    roster, greetings = greeted(sessions)
    sessions["north"].within(roster).meet(greetings)
    package = sessions["north"].within(roster).deal(PLACE)
    with pytest.raises(SealError, match="have not been read"):
        sessions["west"].within(roster).take("north", package)
    sessions["west"].within(roster).meet(greetings)
    sessions["west"].within(roster).take("north", package)
    assert sessions["west"].within(roster).keys == sessions["north"].within(roster).keys


# --- secrets of an attempt --------------------------------------------------------------------------------------------
def test_secrets_are_shared_once_in_an_attempt_and_anew_in_the_next(sessions):
    roster, notes = shared(sessions)
    north = sessions["north"]
    assert north.within(roster).share(PLACE, TENSORS, NEEDED, dict) == notes["north"]
    first = north.within(roster).masks(PLACE, "heads", NAMES)
    assert north.within(roster).share(NEXT, TENSORS, NEEDED, dict) != notes["north"]
    second = north.within(roster).masks(NEXT, "heads", NAMES)
    assert first.own != second.own
    assert all(first.pairs[name] != second.pairs[name] for name in ("south", "west"))
    with pytest.raises(SealError, match="secrets of this attempt are gone"):
        north.within(roster).masks(PLACE, "heads", NAMES)


def test_masks_agree_at_both_ends_and_differ_by_tensor(sessions):
    roster, _ = shared(sessions)
    masks = {name: session.within(roster).masks(PLACE, "heads", NAMES) for name, session in sessions.items()}
    for one in NAMES:
        assert set(masks[one].pairs) == set(NAMES) - {one}
        for other in masks[one].pairs:
            assert masks[one].pairs[other] == masks[other].pairs[one]
    assert len({mask.own for mask in masks.values()}) == 3
    assert len({mask.group for mask in masks.values()}) == 1
    encoder = sessions["north"].within(roster).masks(PLACE, "encoder", NAMES)
    assert encoder.own != masks["north"].own
    assert encoder.pairs["south"] != masks["north"].pairs["south"]


def test_masks_are_towards_the_participants_alone(sessions):
    roster, _ = shared(sessions)
    assert set(sessions["north"].within(roster).masks(PLACE, "heads", ("north", "west")).pairs) == {"west"}


def test_there_are_no_masks_without_shared_secrets(sessions):
    roster, _ = dealt(sessions)
    with pytest.raises(SealError, match="secrets of this attempt are gone"):
        sessions["north"].within(roster).masks(PLACE, "heads", NAMES)


def test_keys_that_are_dealt_anew_end_the_attempt_that_was_shared(sessions):
    roster, _ = shared(sessions)
    package = sessions["west"].within(roster).deal(NEXT)
    sessions["north"].within(roster).take("west", package)
    for name in ("west", "north"):
        with pytest.raises(SealError, match="secrets of this attempt are gone"):
            sessions[name].within(roster).masks(PLACE, "heads", NAMES)


def test_shares_that_were_swapped_altered_or_replayed_are_refused(sessions):
    roster, notes = shared(sessions)
    later = {name: session.within(roster).share(NEXT, TENSORS, NEEDED, dict) for name, session in sessions.items()}
    middle = len(notes["south"]) // 2
    for wrong in (notes["west"], flipped(notes["south"], middle), flipped(notes["south"], -5), later["south"], b""):
        with pytest.raises(RecoveryRefused, match="'south'"):
            sessions["north"].within(roster).read_shares(PLACE, TENSORS, NEEDED, {**notes, "south": wrong})
    assert set(sessions["north"].within(roster).read_shares(PLACE, TENSORS, NEEDED, notes)) == set(NAMES)


def test_shares_for_another_threshold_or_other_tensors_are_refused(sessions):
    """A coordinator cannot have one silo deal for fewer than the others count on."""
    roster, notes = shared(sessions)
    for tensors, needed in ((TENSORS, 3), (TENSORS[:1], NEEDED)):
        with pytest.raises(RecoveryRefused):
            sessions["north"].within(roster).read_shares(PLACE, tensors, needed, notes)


def test_signers_are_those_who_signed_this_very_list(sessions, credentials):
    roster, _ = dealt(sessions)
    attempt = sessions["north"].within(roster).attempt(PLACE)
    assert (attempt.study, attempt.round, attempt.attempt) == (STUDY, 1, 1)
    survivors = SurvivorList(attempt, "heads", NAMES, "")
    signed = {name: credentials[name].sign(survivors.to_sign()) for name in NAMES}
    assert sessions["north"].within(roster).signers(survivors, signed) == NAMES
    others = SurvivorList(attempt, "heads", NAMES[:2], "")
    later = SurvivorList(sessions["north"].within(roster).attempt(NEXT), "heads", NAMES, "")
    for wrong in (credentials["west"].sign(others.to_sign()), credentials["west"].sign(later.to_sign()), b"signed"):
        assert sessions["north"].within(roster).signers(survivors, {**signed, "west": wrong}) == ("north", "south")
    assert sessions["north"].within(roster).signers(survivors, {**signed, "west": signed["north"]}) == (
        "north",
        "south",
    )


def revealed(sessions, place=PLACE, there=NAMES):
    roster, notes = shared(sessions, place)
    bundles = bundles_of(sessions, roster, notes, place)
    survivors = SurvivorList(
        sessions["north"].within(roster).attempt(place), "heads", there, notes_digest(bundles["north"], NAMES)
    )
    return (
        roster,
        bundles,
        survivors,
        {n: sessions[n].within(roster).reveal(bundles[n], survivors, NAMES, NOTHING) for n in there},
    )


def test_what_is_revealed_gives_the_survivors_masks_and_the_seeds_of_those_who_are_gone(sessions):
    roster, bundles, survivors, notes = revealed(sessions, there=NAMES[:2])
    masks = {name: session.within(roster).masks(PLACE, "heads", NAMES) for name, session in sessions.items()}
    unmasking = (
        sessions["north"]
        .within(roster)
        .unmasking(notes, bundles["north"], survivors, participants=NAMES, threshold=NEEDED)
    )
    assert unmasking.own == {name: masks[name].own for name in NAMES[:2]}
    assert unmasking.dropped == {"west": {name: masks["west"].pairs[name] for name in NAMES[:2]}}


def test_reveals_of_no_use_are_ignored_by_name_and_too_few_are_refused(sessions):
    roster, bundles, survivors, notes = revealed(sessions)
    north = sessions["north"]

    def unmask(**wrong):
        given = {**notes, **wrong}
        return north.within(roster).unmasking(given, bundles["north"], survivors, participants=NAMES, threshold=NEEDED)

    right = unmask()
    with capture_logs() as logs:
        assert unmask(west=notes["south"]) == right
    assert [entry["silos"] for entry in logs if entry["event"] == "reveals of no use"] == [("west",)]
    with pytest.raises(RecoveryRefused, match="1 of the 2 reveals"):
        unmask(west=flipped(notes["west"], 40), south=notes["west"])


def test_what_the_coordinator_carries_holds_no_secret_of_the_attempt(sessions):
    roster, notes = shared(sessions)
    bundles = bundles_of(sessions, roster, notes)
    survivors = SurvivorList(
        sessions["north"].within(roster).attempt(PLACE), "heads", NAMES, notes_digest(bundles["north"], NAMES)
    )
    reveal = sessions["north"].within(roster).reveal(bundles["north"], survivors, NAMES, NOTHING)
    carried = b"".join([*notes.values(), reveal])
    for secret in secrets_of(sessions["north"], roster):
        assert secret not in carried
    for bundle in bundles["north"].values():
        assert all(share not in carried for share in bundle.shares.values())


def test_secrets_of_an_attempt_are_not_printed(sessions):
    roster, _ = shared(sessions)
    north = sessions["north"]
    parts = (
        north,
        north._store.stored,
        north._store.stored.met,
        north._store.stored.shared,
        north.within(roster).masks(PLACE, "heads", NAMES),
    )
    shown = repr(parts)
    for secret in secrets_of(north, roster):
        assert repr(secret)[2:-1] not in shown
        assert secret.hex() not in shown


@pytest.mark.parametrize("gone", ["", "west"])
@pytest.mark.parametrize("kind", RINGS)
def test_sums_open_under_what_the_survivors_reveal_and_single_contributions_do_not(sessions, kind, gone):
    roster, notes = shared(sessions)
    bundles = bundles_of(sessions, roster, notes)
    names = tuple(sessions)
    label = SumLabel(STUDY, sessions["north"].within(roster).roster.digest, "m", 1, 1, "heads")
    values = {name: np.arange(50, dtype=np.int64) * (n + 1) - 40 for n, name in enumerate(names)}
    sealed = {
        name: b"".join(
            session.within(roster)
            .sealer(names)
            .seal(kind, values[name], label, session.within(roster).masks(PLACE, "heads", names))
        )
        for name, session in sessions.items()
    }
    there = tuple(name for name in names if name != gone)
    survivors = SurvivorList(
        sessions["north"].within(roster).attempt(PLACE), "heads", there, notes_digest(bundles[names[0]], names)
    )
    reveals = {name: sessions[name].within(roster).reveal(bundles[name], survivors, names, NOTHING) for name in there}
    ring = RINGS[kind]
    total = ring.read(sealed[there[0]])
    for name in there[1:]:
        ring.add(total, ring.read(sealed[name]))
    for name in there:
        unmasking = (
            sessions[name]
            .within(roster)
            .unmasking(reveals, bundles[name], survivors, participants=names, threshold=NEEDED)
        )
        sealer = sessions[name].within(roster).sealer(names)
        opened = sealer.open(kind, BytesIO(ring.write(total)), 50, label, unmasking)
        assert np.array_equal(opened, sum(values[name] for name in there))
        with pytest.raises(OpeningRefused):
            sealer.open(kind, BytesIO(sealed["north"]), 50, label, unmasking)
