"""Shares, reveals and dropouts where a silo has neighbours. Ten silos, of which one may be missing and one hostile."""

from __future__ import annotations

import dataclasses
from io import BytesIO

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crypto.errors import OpeningRefused, RecoveryRefused, RosterRefused, SealError, SignatureRefused
from crypto.rings.ckks_secret import CkksKey
from crypto.rings.rings import RINGS
from crypto.secagg import circle, unmasking
from crypto.secagg.agreement import PairSecrets, Roster
from crypto.secagg.circle import reach_of
from crypto.secagg.dealt.bundles import bound, signed
from crypto.secagg.dealt.complaints import ShareComplaint
from crypto.secagg.dealt.slices import Layout
from crypto.secagg.labels import SumLabel
from crypto.secagg.masks import Masks
from crypto.secagg.packages import GroupKeys, deal, take, with_call, without_call
from crypto.secagg.sealing import Sealer
from crypto.secagg.unmasking import examine, pair_seed
from crypto.secagg.words import NOTHING, Word
from support.consortium import KEYS, TENSOR, TENSORS, Consortium
from support.entropy import SeededEntropy

TEN = tuple(f"silo-{number}" for number in range(10))
NEEDED = 9
REACH = reach_of(len(TEN), 1, NEEDED)


@pytest.fixture(scope="module", autouse=True)
def few():
    """A circle of ten: larger ones are sparse only above `ALL_UP_TO` silos."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(circle, "ALL_UP_TO", 4)
        yield


@pytest.fixture(scope="module")
def met(few, enrol, gather, introduce):
    credentials = {name: enrol(name) for name in TEN}
    keys, whole = gather(credentials)
    roster = Roster(whole.study, whole.entries, REACH)
    return credentials, keys, roster, introduce(keys, roster)


@pytest.fixture(scope="module")
def ten(met) -> Consortium:
    credentials, _, roster, pairs = met
    return Consortium(credentials, roster, pairs, NEEDED)


def near(name):
    return tuple(other for other in TEN if other not in (name, *far(name)))


def far(name):
    place = TEN.index(name)
    return tuple(TEN[(place + step) % 10] for step in (4, 5, 6))


# --- agreement -----------------------------------------------------------------------------------------------------


def test_a_silo_greets_and_meets_its_neighbours_alone(met):
    _, keys, roster, pairs = met
    assert roster.circle.sparse
    assert {name: tuple(secrets) for name, secrets in pairs.items()} == {name: near(name) for name in TEN}
    assert all(pairs[name][other] == pairs[other][name] for name in TEN for other in near(name))
    said = {name: keys[name].greet(roster, name).note for name in TEN}
    later = {name: sum(other > name for other in near(name)) for name in TEN}
    assert later["silo-0"] == 6
    assert later["silo-9"] == 0
    assert all(len(said[name]) == 16 + 73 + 1088 * later[name] for name in TEN)
    own = keys["silo-8"].greet(roster, "silo-8").secrets
    for gone in ("silo-1", "silo-5"):
        with pytest.raises(RosterRefused, match=f"greeting of '{gone}' is missing"):
            keys["silo-8"].meet(roster, "silo-8", own, {name: note for name, note in said.items() if name != gone})
    assert set(keys["silo-8"].meet(roster, "silo-8", own, {name: said[name] for name in near("silo-8")})) == set(
        near("silo-8")
    )


def test_pair_secrets_of_a_whole_roster_are_not_those_of_its_circle(met):
    _, _, roster, pairs = met
    pairs["silo-0"].check("silo-0", roster)
    for secrets in ({**pairs["silo-0"], "silo-5": bytes(32)}, dict(list(pairs["silo-0"].items())[1:])):
        with pytest.raises(SealError, match="belong to another roster"):
            PairSecrets(secrets).check("silo-0", roster)


def test_who_deals_reaches_everybody_by_a_call(met):
    _, keys, roster, pairs = met
    call = keys["silo-3"].call(roster, "silo-3")
    assert set(call.secrets) == set(TEN) - {"silo-3"}
    blob = with_call(call.note, deal(KEYS, call.secrets, "silo-3", roster, SeededEntropy(1)))
    note, package = without_call(blob)
    for name in set(TEN) - {"silo-3"}:
        answered = keys[name].answer(roster, name, "silo-3", note)
        assert dict(answered) == {"silo-3": call.secrets[name]}
        assert take(package, answered, name, "silo-3", roster) == KEYS
        assert call.secrets[name] != pairs["silo-3"].get(name)
    with pytest.raises(SealError, match="another roster or dealer"):
        deal(KEYS, pairs["silo-3"], "silo-3", roster, SeededEntropy(1))
    with pytest.raises(SealError, match="another roster or dealer"):
        take(package, pairs["silo-2"], "silo-2", "silo-3", roster)
    with pytest.raises(SealError, match="another member"):
        take(package, PairSecrets({"hub": bytes(32)}), "silo-2", "hub", roster)
    assert "secrets=PairSecrets(secret)" in repr(call)
    assert with_call(b"ab", b"c") == b"\0\0\0\2abc"


def test_a_call_is_signed_for_its_roster_and_its_reader(met):
    _, keys, roster, _ = met
    note = keys["silo-3"].call(roster, "silo-3").note
    swapped = note[:89] + note[89 + 1088 : 89 + 2 * 1088] + note[89 : 89 + 1088] + note[89 + 2 * 1088 :]
    smaller = Roster(roster.study, roster.entries[:-1], REACH)
    greeting = keys["silo-3"].greet(roster, "silo-3").note
    for caller, wrong, why in (
        ("silo-3", swapped, SignatureRefused),
        ("silo-2", note, SignatureRefused),
        ("silo-3", note[:-80], RosterRefused),
        ("silo-3", greeting, RosterRefused),
        ("silo-3", keys["silo-3"].call(smaller, "silo-3").note, RosterRefused),
    ):
        with pytest.raises(why, match=f"the call of '{caller}'") as refused:
            keys["silo-0"].answer(roster, "silo-0", caller, wrong)
        assert refused.value.culprit == caller
    with pytest.raises(RosterRefused, match="offered last"):
        keys["silo-0"].answer(Roster(roster.study, roster.entries[1:], REACH), "silo-0", "silo-3", note)
    with pytest.raises(RosterRefused, match="another study or another silo"):
        keys["silo-0"].call(roster, "silo-1")
    for blob in (b"", b"\0\0\1", b"\xff" * 4 + note, with_call(b"", note)):
        call, package = without_call(blob)
        with pytest.raises((RosterRefused, SealError)):
            take(package, keys["silo-0"].answer(roster, "silo-0", "silo-3", call), "silo-0", "silo-3", roster)


# --- notes ---------------------------------------------------------------------------------------------------------


def test_shares_are_dealt_to_neighbours_and_everybody_reads_the_commitments(ten):
    for owner in TEN:
        holders = tuple(sorted((owner, *near(owner))))
        assert len(ten.notes[owner]) == Layout.of(TENSORS, holders).form.note
        for me in TEN:
            bundle = ten.held[me][owner]
            assert bool(bundle.shares) == (me in holders)
            assert tuple(bundle.commitments[TENSOR, "own"]) == ("", *holders)
            assert tuple(bundle.pairs[TENSOR]) == near(owner)
            assert tuple(bundle.words) == holders
    commitments = {(a, b): ten.held["silo-5"][a].pairs[TENSOR][b] for a in TEN for b in near(a)}
    assert all(commitments[a, b] == commitments[b, a] for a, b in commitments)


def test_fewer_shares_than_the_reach_give_nothing(ten):
    """So many remain that may still reveal once all others have promised not to."""
    bundles = {me: ten.held[me]["silo-0"] for me in (*near("silo-0"), "silo-0")}
    survivors, secret = ten.list(*TEN), ten.secrets["silo-0"].own[TENSOR]
    given = {me: bundle.shares[TENSOR, "own"] for me, bundle in bundles.items()}
    assert REACH == 3
    assert unmasking._combine(bundles["silo-0"], survivors, given, REACH) == secret
    assert unmasking._combine(bundles["silo-0"], survivors, dict(list(given.items())[-REACH:]), REACH) == secret
    for needed in (1, 2):
        with pytest.raises(RecoveryRefused, match="do not combine"):
            unmasking._combine(bundles["silo-0"], survivors, dict(list(given.items())[:needed]), needed)


def test_the_words_of_who_is_no_neighbour_are_in_no_note(ten, met):
    credentials = met[0]
    words = {name: Word.of(ten.attempt, name, number + 1, credentials[name].sign) for number, name in enumerate(TEN)}
    bundle = ten.read(ten.make("silo-0", words=words), "silo-0", "silo-5")
    assert dict(bundle.words) == {name: words[name] for name in sorted(("silo-0", *near("silo-0")))}
    assert NOTHING not in bundle.words.values()


def test_a_note_for_everybody_is_refused_on_a_circle_and_the_other_way_round(ten, met):
    credentials, keys, roster, _ = met
    whole = Roster(roster.study, roster.entries)
    assert whole.digest == roster.digest
    with pytest.raises(SealError, match="belong to another roster"):
        ten.read(ten.notes["silo-1"], "silo-1", "silo-0", roster=whole)
    other = Roster(roster.study, roster.entries, REACH + 1)
    with pytest.raises(SealError, match="belong to another roster"):
        ten.read(ten.notes["silo-1"], "silo-1", "silo-0", roster=other)
    said = {name: keys[name].greet(whole, name) for name in TEN}
    notes = {name: one.note for name, one in said.items()}
    everybody = {name: keys[name].meet(whole, name, said[name].secrets, notes) for name in ("silo-0", "silo-1")}
    blob = unmasking.make_bundle(
        ten.secrets["silo-1"],
        ten.attempt,
        "silo-1",
        whole,
        everybody["silo-1"],
        KEYS,
        NEEDED,
        credentials["silo-1"],
        SeededEntropy(2),
        {},
    )
    with pytest.raises(RecoveryRefused, match="cut or of another version"):
        ten.read(blob, "silo-1", "silo-0")


def test_whoever_relays_a_note_needs_the_circle_s_numbers(ten, met):
    credentials, _, roster, _ = met
    holders = roster.circle.holders("silo-1")
    pem = credentials["silo-1"].certificate_pem
    ten.trust.verify(pem, *signed(ten.notes["silo-1"], "silo-1", ten.attempt, TENSORS, holders, REACH))
    with pytest.raises(SignatureRefused):
        ten.trust.verify(pem, *signed(ten.notes["silo-1"], "silo-1", ten.attempt, TENSORS, holders, NEEDED))


def test_who_holds_no_share_and_complains_has_lied(ten, met):
    _, _, roster, pairs = met
    note = ten.notes["silo-0"]

    def found(holder, key):
        complaint = ShareComplaint(ten.attempt, "silo-0", holder, key)
        return examine(complaint, note, TENSORS, roster, NEEDED, ten.trust)

    key = unmasking._shares_key(pairs["silo-1"], "silo-0", "silo-1", bound("shares", ten.attempt, "silo-0", "silo-1"))
    assert [found(holder, key) for holder in ("silo-1", *far("silo-0"))] == ["silo-1", *far("silo-0")]
    with pytest.raises(RosterRefused, match="'hub' is no member"):
        examine(ShareComplaint(ten.attempt, "hub", "silo-1", key), note, TENSORS, roster, NEEDED, ten.trust)


def test_wrong_shares_name_their_dealer_to_who_does_not_hold_them(ten, met):
    roster = met[2]
    with pytest.MonkeyPatch.context() as patch:
        seal = unmasking.seal_under
        patch.setattr(unmasking, "seal_under", lambda key, plain, of, entropy: seal(b"x" * 32, plain, of, entropy))
        note = ten.make("silo-0")
    with pytest.raises(RecoveryRefused, match="sealed its shares for this silo wrongly") as refused:
        ten.read(note, "silo-0", "silo-1")
    assert not ten.read(note, "silo-0", "silo-5").shares
    complaint = ShareComplaint(ten.attempt, "silo-0", "silo-1", refused.value.evidence)
    assert examine(complaint, note, TENSORS, roster, NEEDED, ten.trust) == "silo-0"


# --- sums ----------------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=20)
@given(st.sampled_from(TEN), st.sampled_from(("share", "upload", "reveal", "lies")), st.sampled_from(TEN))
def test_any_one_may_be_lost_at_any_step(ten, lost, step, me):
    participants = [name for name in TEN if name != lost or step != "share"]
    survivors = ten.list(
        *(name for name in participants if name != lost or step != "upload"), participants=participants
    )
    blobs = {name: ten.reveal(name, survivors, participants) for name in TEN if name != lost}
    if step == "lies":
        blobs[lost] = bytes(len(blobs[me if me != lost else near(lost)[0]]))
    result = ten.recover(blobs, survivors, participants, me=me)
    assert result.ignored == ((lost,) if step == "lies" else ())
    assert result.unmasking.own == {name: ten.secrets[name].own[TENSOR] for name in survivors.names}
    gone = set(participants) - set(survivors.names)
    assert result.unmasking.dropped == {
        one: {name: pair_seed(ten.pairs[one][name], ten.attempt, TENSOR) for name in near(one)} for one in gone
    }


def test_a_second_loss_leaves_nothing(ten):
    survivors = ten.list(*TEN)
    blobs = {name: ten.reveal(name, survivors) for name in TEN[:8]}
    with pytest.raises(RecoveryRefused, match="8 of the 9 reveals"):
        ten.recover(blobs, survivors)


def test_a_reveal_has_the_shares_that_its_sender_holds_and_a_wrong_one_is_ignored(ten):
    survivors = ten.list(*TEN)
    sizes = {len(ten.reveal(name, survivors)) for name in TEN}
    assert max(sizes) - min(sizes) <= 8, "all hold as many"
    assert min(sizes) < 7 * 33 + 89 + 72 + 28 + 1
    held = dict(ten.held["silo-4"])
    wrong = {spot: bytes(33) for spot in held["silo-3"].shares}
    held["silo-3"] = dataclasses.replace(held["silo-3"], shares=wrong)
    blobs = {name: ten.reveal(name, survivors) for name in TEN if name != "silo-4"}
    blobs["silo-4"] = ten.reveal("silo-4", survivors, bundles=held)
    for me in ("silo-3", "silo-9"):
        assert ten.recover(blobs, survivors, me=me).ignored == ("silo-4",)


def test_a_dealer_whose_shares_do_not_combine_is_named_by_all(ten):
    with pytest.MonkeyPatch.context() as patch:
        split = unmasking.split
        patch.setattr(unmasking, "split", lambda secret, needed, *rest: split(secret, needed + 1, *rest))
        note = ten.make("silo-2")
    held = {me: {**ten.held[me], "silo-2": ten.read(note, "silo-2", me)} for me in TEN}
    survivors = ten.list(*TEN, bundles=held["silo-0"])
    blobs = {me: ten.reveal(me, survivors, bundles=held[me]) for me in TEN}
    for me in ("silo-2", "silo-7"):
        with pytest.raises(RecoveryRefused, match="'silo-2' dealt do not combine") as refused:
            ten.recover(blobs, survivors, bundles=held[me])
        assert refused.value.culprit == "silo-2"


@pytest.mark.parametrize("kind", ["ring32", "ckks"])
@pytest.mark.parametrize("gone", [None, "silo-0", "silo-5"])
def test_the_survivors_sum_opens_to_its_values_and_with_fewer_masks_to_nothing(ten, met, kind, gone):
    _, _, _, pairs = met
    keys = GroupKeys(CkksKey.create().to_bytes(), b"g" * 32, b"c" * 32)
    label = SumLabel(ten.attempt.study, ten.attempt.roster, "m", 4, 1, TENSOR)
    sealers = {name: Sealer(name, keys, TEN) for name in TEN}
    survivors = ten.list(*(name for name in TEN if name != gone))
    blobs = {name: ten.reveal(name, survivors, keys=keys) for name in survivors.names}
    unmask = ten.recover(blobs, survivors, keys=keys).unmasking

    def masks(name):
        seeds = {other: pair_seed(pairs[name][other], ten.attempt, TENSOR) for other in near(name)}
        return Masks(name, ten.secrets[name].own[TENSOR], seeds, keys.group)

    values = {name: np.arange(50, dtype=np.int64) * (number + 1) - 40 for number, name in enumerate(TEN)}
    sealed = {name: b"".join(sealers[name].seal(kind, values[name], label, masks(name))) for name in survivors.names}
    ring = RINGS[kind]
    total = ring.read(sealed[survivors.names[0]])
    for name in survivors.names[1:]:
        ring.add(total, ring.read(sealed[name]))
    opened = sealers["silo-9"].open(kind, BytesIO(ring.write(total)), 50, label, unmask)
    assert np.array_equal(opened, sum(values[name] for name in survivors.names))
    for content in sealed.values():
        with pytest.raises(OpeningRefused):
            sealers["silo-9"].open(kind, BytesIO(content), 50, label, unmask)
    if gone:
        fewer = dict(list(unmask.dropped[gone].items())[1:])
        with pytest.raises(SealError, match="all survivors that are its neighbours"):
            dataclasses.replace(unmask, dropped={gone: fewer})
        with pytest.raises(SealError, match="all survivors that are its neighbours"):
            dataclasses.replace(unmask, circle=None)
        wrong = {gone: {name: bytes(32) for name in unmask.dropped[gone]}}
        with pytest.raises(OpeningRefused):
            sealers["silo-9"].open(
                kind, BytesIO(ring.write(total)), 50, label, dataclasses.replace(unmask, dropped=wrong)
            )
