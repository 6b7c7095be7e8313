import json
from base64 import b64encode
from io import BytesIO

import numpy as np
import pytest
from structlog.testing import capture_logs

from crypto.entropy import SystemEntropy
from crypto.errors import (
    OpeningRefused,
    RecoveryRefused,
    SealError,
)
from crypto.pki.at_rest import Vault
from crypto.rings.rings import RINGS
from crypto.secagg.labels import Label
from crypto.secagg.survivors import SurvivorList
from crypto.secagg.unmasking import AttemptSecrets
from protos import record
from silo_agent.protocol.session import KEY_FILE, Session
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
    greeted,
    met,
    shared,
)


# --- secrets of an attempt --------------------------------------------------------------------------------------------
def test_secrets_are_shared_once_in_an_attempt_and_anew_in_the_next(sessions):
    roster, notes = shared(sessions)
    north = sessions["north"]
    assert north.share(roster, PLACE, TENSORS, NEEDED) == notes["north"]
    first = north.masks(roster, PLACE, "heads", NAMES)
    assert north.share(roster, NEXT, TENSORS, NEEDED) != notes["north"]
    second = north.masks(roster, NEXT, "heads", NAMES)
    assert first.own != second.own
    assert all(first.pairs[name] != second.pairs[name] for name in ("south", "west"))
    with pytest.raises(SealError, match="secrets of this attempt are gone"):
        north.masks(roster, PLACE, "heads", NAMES)


def test_masks_agree_at_both_ends_and_differ_by_tensor(sessions):
    roster, _ = shared(sessions)
    masks = {name: session.masks(roster, PLACE, "heads", NAMES) for name, session in sessions.items()}
    for one in NAMES:
        assert set(masks[one].pairs) == set(NAMES) - {one}
        for other in masks[one].pairs:
            assert masks[one].pairs[other] == masks[other].pairs[one]
    assert len({mask.own for mask in masks.values()}) == 3
    assert len({mask.group for mask in masks.values()}) == 1
    encoder = sessions["north"].masks(roster, PLACE, "encoder", NAMES)
    assert encoder.own != masks["north"].own
    assert encoder.pairs["south"] != masks["north"].pairs["south"]


def test_masks_are_towards_the_participants_alone(sessions):
    roster, _ = shared(sessions)
    assert set(sessions["north"].masks(roster, PLACE, "heads", ("north", "west")).pairs) == {"west"}


def test_there_are_no_masks_without_shared_secrets(sessions):
    roster, _ = dealt(sessions)
    with pytest.raises(SealError, match="secrets of this attempt are gone"):
        sessions["north"].masks(roster, PLACE, "heads", NAMES)


def test_keys_that_are_dealt_anew_end_the_attempt_that_was_shared(sessions):
    roster, _ = shared(sessions)
    package = sessions["west"].deal(roster, NEXT)
    sessions["north"].take(roster, "west", package)
    for name in ("west", "north"):
        with pytest.raises(SealError, match="secrets of this attempt are gone"):
            sessions[name].masks(roster, PLACE, "heads", NAMES)


def test_shares_that_were_swapped_altered_or_replayed_are_refused(sessions):
    roster, notes = shared(sessions)
    later = {name: session.share(roster, NEXT, TENSORS, NEEDED) for name, session in sessions.items()}
    middle = len(notes["south"]) // 2
    for wrong in (notes["west"], flipped(notes["south"], middle), flipped(notes["south"], -5), later["south"], b""):
        with pytest.raises(RecoveryRefused, match="'south'"):
            sessions["north"].read_shares(roster, PLACE, TENSORS, NEEDED, {**notes, "south": wrong})
    assert set(sessions["north"].read_shares(roster, PLACE, TENSORS, NEEDED, notes)) == set(NAMES)


def test_shares_for_another_threshold_or_other_tensors_are_refused(sessions):
    """A coordinator cannot have one silo deal for fewer than the others count on."""
    roster, notes = shared(sessions)
    for tensors, needed in ((TENSORS, 3), (TENSORS[:1], NEEDED)):
        with pytest.raises(RecoveryRefused):
            sessions["north"].read_shares(roster, PLACE, tensors, needed, notes)


def test_signers_are_those_who_signed_this_very_list(sessions, credentials):
    roster, _ = dealt(sessions)
    attempt = sessions["north"].attempt(roster, PLACE)
    assert (attempt.study, attempt.round, attempt.attempt) == (STUDY, 1, 1)
    survivors = SurvivorList(attempt, "heads", NAMES)
    signed = {name: credentials[name].sign(survivors.to_sign()) for name in NAMES}
    assert sessions["north"].signers(roster, survivors, signed) == NAMES
    others = SurvivorList(attempt, "heads", NAMES[:2])
    later = SurvivorList(sessions["north"].attempt(roster, NEXT), "heads", NAMES)
    for wrong in (credentials["west"].sign(others.to_sign()), credentials["west"].sign(later.to_sign()), b"signed"):
        assert sessions["north"].signers(roster, survivors, {**signed, "west": wrong}) == ("north", "south")
    assert sessions["north"].signers(roster, survivors, {**signed, "west": signed["north"]}) == ("north", "south")


def revealed(sessions, place=PLACE, there=NAMES):
    roster, notes = shared(sessions, place)
    bundles = bundles_of(sessions, roster, notes, place)
    survivors = SurvivorList(sessions["north"].attempt(roster, place), "heads", there)
    return roster, bundles, survivors, {n: sessions[n].reveal(roster, bundles[n], survivors, NAMES) for n in there}


def test_what_is_revealed_gives_the_survivors_masks_and_the_seeds_of_those_who_are_gone(sessions):
    roster, bundles, survivors, notes = revealed(sessions, there=NAMES[:2])
    masks = {name: session.masks(roster, PLACE, "heads", NAMES) for name, session in sessions.items()}
    unmasking = sessions["north"].unmasking(
        roster, notes, bundles["north"], survivors, participants=NAMES, threshold=NEEDED
    )
    assert unmasking.own == {name: masks[name].own for name in NAMES[:2]}
    assert unmasking.dropped == {"west": {name: masks["west"].pairs[name] for name in NAMES[:2]}}


def test_reveals_of_no_use_are_ignored_by_name_and_too_few_are_refused(sessions):
    roster, bundles, survivors, notes = revealed(sessions)
    north = sessions["north"]

    def unmask(**wrong):
        given = {**notes, **wrong}
        return north.unmasking(roster, given, bundles["north"], survivors, participants=NAMES, threshold=NEEDED)

    right = unmask()
    with capture_logs() as logs:
        assert unmask(west=notes["south"]) == right
    assert [entry["silos"] for entry in logs if entry["event"] == "reveals of no use"] == [("west",)]
    with pytest.raises(RecoveryRefused, match="1 of the 2 reveals"):
        unmask(west=flipped(notes["west"], 40), south=notes["west"])


def test_what_the_coordinator_carries_holds_no_secret_of_the_attempt(sessions):
    roster, notes = shared(sessions)
    bundles = bundles_of(sessions, roster, notes)
    survivors = SurvivorList(sessions["north"].attempt(roster, PLACE), "heads", NAMES)
    carried = b"".join([*notes.values(), sessions["north"].reveal(roster, bundles["north"], survivors, NAMES)])
    for secret in secrets_of(sessions["north"], roster):
        assert secret not in carried
    for bundle in bundles["north"].values():
        assert all(share not in carried for share in bundle.shares.values())


def secrets_of(session, roster):
    """All that must be seen by this silo alone, or by it and one peer."""
    drawn = AttemptSecrets.from_bytes(session._stored.shared.secrets)
    masks = [session.masks(roster, PLACE, tensor, NAMES) for tensor in TENSORS]
    return [
        *drawn.own.values(),
        *drawn.keys.values(),
        *session._stored.met.pairs.values(),
        *(seed for mask in masks for seed in mask.pairs.values()),
    ]


def test_secrets_of_an_attempt_are_not_printed(sessions):
    roster, _ = shared(sessions)
    north = sessions["north"]
    parts = (north, north._stored, north._stored.met, north._stored.shared, north.masks(roster, PLACE, "heads", NAMES))
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
    label = Label(STUDY, sessions["north"].roster(roster).digest, "m", 1, 1, "heads")
    values = {name: np.arange(50, dtype=np.int64) * (n + 1) - 40 for n, name in enumerate(names)}
    sealed = {
        name: b"".join(
            session.sealer(roster, names).seal(kind, values[name], label, session.masks(roster, PLACE, "heads", names))
        )
        for name, session in sessions.items()
    }
    there = tuple(name for name in names if name != gone)
    survivors = SurvivorList(sessions["north"].attempt(roster, PLACE), "heads", there)
    reveals = {name: sessions[name].reveal(roster, bundles[name], survivors, names) for name in there}
    ring = RINGS[kind]
    total = ring.read(sealed[there[0]])
    for name in there[1:]:
        ring.add(total, ring.read(sealed[name]))
    for name in there:
        unmasking = sessions[name].unmasking(
            roster, reveals, bundles[name], survivors, participants=names, threshold=NEEDED
        )
        sealer = sessions[name].sealer(roster, names)
        opened = sealer.open(kind, BytesIO(ring.write(total)), 50, label, unmasking)
        assert np.array_equal(opened, sum(values[name] for name in there))
        with pytest.raises(OpeningRefused):
            sealer.open(kind, BytesIO(sealed["north"]), 50, label, unmasking)


# --- outliving the process --------------------------------------------------------------------------------------------
def test_a_silo_that_begins_again_goes_on_in_the_same_attempt(stored):
    """Its words are the same bytes, its masks the same, and it can reveal and open what it shared before."""
    before = stored()
    roster, greetings = greeted(before)
    assert {name: session.greet(roster) for name, session in stored().items()} == greetings
    for session in before.values():
        session.meet(roster, greetings)
    package = before["south"].deal(roster, PLACE)
    for session in before.values():
        session.take(roster, "south", package)
    notes = {name: session.share(roster, PLACE, TENSORS, NEEDED) for name, session in before.items()}
    masks = {name: session.masks(roster, PLACE, "heads", NAMES) for name, session in before.items()}
    again = stored()
    assert again["south"].greet(roster) == greetings["south"]
    assert again["south"].deal(roster, PLACE) == package
    assert {name: session.share(roster, PLACE, TENSORS, NEEDED) for name, session in again.items()} == notes
    assert {name: session.masks(roster, PLACE, "heads", NAMES) for name, session in again.items()} == masks
    bundles = bundles_of(again, roster, notes)
    survivors = SurvivorList(again["north"].attempt(roster, PLACE), "heads", NAMES)
    reveals = {name: session.reveal(roster, bundles[name], survivors, NAMES) for name, session in again.items()}
    unmasking = again["west"].unmasking(
        roster, reveals, bundles["west"], survivors, participants=NAMES, threshold=NEEDED
    )
    assert unmasking.own == {name: mask.own for name, mask in masks.items()}


def test_a_secret_is_durable_before_the_note_that_tells_of_it_is_given(credentials):
    """Were it the other way round, a crash between the two would have others hold shares of nothing."""
    kept = []
    sessions = {name: Session(STUDY, credentials[name], SystemEntropy(), kept.append) for name in credentials}
    for step in (greeted, met, dealt, shared):
        step(sessions)
        for session in sessions.values():
            assert record.dump(session._stored).encode() in kept


def test_secrets_of_an_attempt_lie_sealed_and_are_erased_with_it(stored, credentials, tmp_path):
    roster, _ = shared(stored())
    north = stored()["north"]
    path, vault = tmp_path / "north" / KEY_FILE, Vault(credentials["north"], f"keys of {STUDY}", SystemEntropy())
    secrets = secrets_of(north, roster)
    drawn = AttemptSecrets.from_bytes(north._stored.shared.secrets)
    for secret in secrets:
        for form in (secret, secret.hex().encode(), b64encode(secret)):
            assert form not in path.read_bytes()
    lies_there = vault.open(path.read_bytes())
    assert b64encode(north._stored.shared.secrets) in lies_there
    before = north.keys(roster)
    north.forget_attempt()
    left = vault.open(path.read_bytes())
    assert json.loads(left)["shared"] is None
    for secret in (*drawn.own.values(), *drawn.keys.values()):
        assert all(form not in left for form in (secret.hex().encode(), b64encode(secret)))
    assert north.keys(roster) == stored()["north"].keys(roster) == before
    for session in (north, stored()["north"]):
        with pytest.raises(SealError, match="secrets of this attempt are gone"):
            session.masks(roster, PLACE, "heads", NAMES)
