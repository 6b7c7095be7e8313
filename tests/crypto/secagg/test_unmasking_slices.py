"""A sum that is opened by silos of which each has read its own slices, and more where somebody is missing or lies."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crypto.errors import NotesWantedError, RecoveryRefused
from crypto.secagg import circle, unmasking
from crypto.secagg.agreement import Roster
from crypto.secagg.circle import reach_of
from crypto.secagg.dealt.slices import HASH_BYTES, Layout
from crypto.secagg.survivors import threshold
from crypto.secagg.words import Word
from support.consortium import TENSOR, TENSORS, Consortium

TEN = tuple(f"silo-{number}" for number in range(10))
MISSING = 2


@pytest.fixture(scope="module", params=["everybody", "circle"])
def ten(request, enrol, gather, introduce):
    """Ten silos, of which two may be missing (or three, where all are neighbours) and one or two hostile."""
    credentials = {name: enrol(name) for name in TEN}
    with pytest.MonkeyPatch.context() as patch:
        needed = threshold(10, 2, 5)
        if request.param == "circle":
            patch.setattr(circle, "ALL_UP_TO", 4)
            needed = 9
        keys, whole = gather(credentials)
        reach = reach_of(10, 1, needed) if request.param == "circle" else 0
        roster = Roster(whole.study, whole.entries, reach)
        assert roster.circle.sparse is (request.param == "circle")
        yield Consortium(credentials, roster, introduce(keys, roster), needed)


def opened(consortium, blobs, survivors, participants, me):
    """What a silo recovers, and of whom it wanted to read more, in turn."""
    notes = {name: consortium.notes[name] for name in participants}
    held, wanted = consortium.sliced(me, notes), []
    while True:
        try:
            return consortium.recover(blobs, survivors, participants, bundles=held), wanted
        except NotesWantedError as more:
            wanted.append(more.silos)
            held = consortium.more(me, held, more.silos, notes)


def lying(consortium, name, about, survivors):
    """A reveal with a wrong share of this silo's secret, signed and sealed as the right one would be."""
    bundle = consortium.held[name][about]
    wrong = {spot: share[:-1] + bytes([share[-1] ^ 1]) for spot, share in bundle.shares.items()}
    held = {**consortium.held[name], about: dataclasses.replace(bundle, shares=wrong)}
    return consortium.reveal(name, survivors, bundles=held)


def near(consortium, name):
    return consortium.roster.circle.neighbours(name)


# --- reading -------------------------------------------------------------------------------------------------------


def test_of_a_slice_a_silo_reads_its_own_shares_and_the_same_digest_as_of_the_note(ten):
    for me in ("silo-0", "silo-6"):
        for owner, bundle in ten.sliced(me).items():
            whole, mine = ten.held[me][owner], me in ten.roster.circle.holders(owner)
            assert (bundle.digest, bundle.keys, bundle.holders) == (whole.digest, whole.keys, whole.holders)
            assert bundle.shares == whole.shares
            assert (bundle.whole, whole.whole) == (False, True)
            known = ("", me) if mine else ("",)
            assert {tuple(of) for of in bundle.commitments.values()} == {known}
            assert all(
                held[name] == whole.commitments[spot][name]
                for spot, held in bundle.commitments.items()
                for name in known
            )
            assert {tuple(of) for of in bundle.pairs.values()} == {(me,) if mine and me != owner else ()}
            assert set(bundle.words) == {owner, *known[1:]}


def test_a_slice_says_what_its_owner_has_heard_of_the_reader(ten):
    words = {
        name: Word.of(ten.attempt, name, number + 1, ten.credentials[name].sign) for number, name in enumerate(TEN)
    }
    note = ten.make("silo-1", words=words)
    for me in (near(ten, "silo-1")[0], "silo-1"):
        read = ten.read(ten.cut("silo-1", (me,), note), "silo-1", me, about=(me,))
        assert dict(read.words) == {"silo-1": words["silo-1"], me: words[me]}


def test_what_was_cut_for_others_has_no_shares_for_the_reader_and_joins_what_it_has(ten):
    me, other = near(ten, "silo-1")[:2]
    held, about = ten.sliced(me)["silo-1"], (other,)
    more = ten.read(ten.cut("silo-1", about), "silo-1", me, about=about)
    assert more.shares == {}
    joined = held.joined(more)
    assert joined.shares == held.shares
    assert set(joined.commitments[TENSOR, "own"]) == {"", me, other}
    assert set(joined.pairs[TENSOR]) == {me, other}
    assert not joined.whole
    whole = joined.joined(ten.read(ten.notes["silo-1"], "silo-1", me))
    assert (whole.whole, whole.commitments, whole.pairs) == (True, *two(ten.held[me]["silo-1"]))
    assert whole.joined(more).whole, "what was read stays read"


def two(bundle):
    return bundle.commitments, bundle.pairs


def test_two_notes_of_one_silo_do_not_join(ten):
    me = near(ten, "silo-1")[0]
    held, second = ten.sliced(me)["silo-1"], ten.make("silo-1")
    with pytest.raises(RecoveryRefused, match="shows two shares notes of 'silo-1'") as refused:
        held.joined(ten.read(second, "silo-1", me))
    assert refused.value.culprit == ""
    with pytest.raises(RecoveryRefused, match="two shares notes"):
        held.joined(ten.held[me]["silo-2"])
    with pytest.raises(RecoveryRefused, match="two shares notes"):
        held.joined(dataclasses.replace(held, attempt=dataclasses.replace(ten.attempt, attempt=2)))


def test_a_slice_that_is_not_its_owners_is_refused_without_a_culprit(ten):
    owner, me = "silo-1", near(ten, "silo-1")[0]
    layout, blob = Layout.of(TENSORS, ten.roster.circle.holders(owner)), ten.cut(owner, (me,))
    other = near(ten, owner)[1]
    foreign = ten.cut(owner, (other,))
    second = ten.cut(owner, (me,), ten.make(owner))
    for bad, why in (
        *(
            (blob[:at] + bytes([blob[at] ^ 1]) + blob[at + 1 :], "did not sign its shares note")
            for at in range(16, len(blob), 37)
        ),
        (foreign, "did not sign"),
        (blob[: layout.head] + foreign[layout.head :], "did not sign"),
        (blob[: layout.head] + second[layout.head :], "did not sign"),
        (blob[:-HASH_BYTES], "cut or of another version"),
        (blob + bytes(HASH_BYTES), "cut or of another version"),
        (blob[: layout.head], "cut or of another version"),
        (b"fedward shares 2" + blob[16:], "cut or of another version"),
        (ten.notes[owner], "cut or of another version"),
    ):
        with pytest.raises(RecoveryRefused, match=why) as refused:
            ten.read(bad, owner, me, about=(me,))
        assert refused.value.culprit == ""
    with pytest.raises(RecoveryRefused, match="cut or of another version"):
        ten.read(blob, owner, me, about=(me, other))


def test_a_wrong_share_in_a_slice_shows_its_dealer_as_in_the_note(ten):
    me = near(ten, "silo-1")[0]
    with pytest.MonkeyPatch.context() as patch:
        seal = unmasking.seal_under
        patch.setattr(unmasking, "seal_under", lambda key, plain, of, entropy: seal(b"x" * 32, plain, of, entropy))
        note = ten.make("silo-1")
    with pytest.raises(RecoveryRefused, match="sealed its shares for this silo wrongly") as refused:
        ten.read(ten.cut("silo-1", (me,), note), "silo-1", me, about=(me,))
    assert refused.value.culprit == "silo-1"
    assert len(refused.value.evidence) == 32


# --- opening -------------------------------------------------------------------------------------------------------


def test_if_all_are_there_a_sum_opens_with_slices_alone(ten):
    survivors = ten.list(*TEN)
    blobs = ten.reveals(survivors)
    for me in ("silo-0", "silo-7"):
        found, wanted = opened(ten, blobs, survivors, TEN, me)
        assert (found, wanted) == (ten.recover(blobs, survivors, me=me), [])


def test_a_reveal_made_of_slices_is_that_of_the_notes(ten):
    survivors = ten.list(*TEN)
    blobs = {name: ten.reveal(name, survivors, bundles=ten.sliced(name)) for name in TEN}
    assert ten.recover(blobs, survivors) == ten.recover(ten.reveals(survivors), survivors)


@settings(deadline=None, max_examples=20)
@given(st.data())
def test_whoever_is_missing_or_lies_slices_give_what_notes_give(ten, data):
    spare = len(TEN) - ten.needed
    lost = data.draw(st.lists(st.sampled_from(TEN), max_size=spare, unique=True))
    steps = {name: data.draw(st.sampled_from(("share", "upload", "reveal", "lies")), name) for name in lost}
    participants = [name for name in TEN if steps.get(name) != "share"]
    survivors = ten.list(*(name for name in participants if steps.get(name) != "upload"), participants=participants)
    blobs = {
        name: ten.reveal(name, survivors, participants)
        for name in survivors.names
        if steps.get(name) not in ("reveal", "lies")
    }
    for name in (name for name in lost if steps[name] == "lies"):
        bundle = ten.held[name][name]
        held = {**ten.held[name], name: dataclasses.replace(bundle, shares=dict.fromkeys(bundle.shares, bytes(33)))}
        blobs[name] = ten.reveal(name, survivors, participants, bundles=held)
    me = data.draw(st.sampled_from([name for name in TEN if name not in lost]))
    found, wanted = opened(ten, blobs, survivors, participants, me)
    expected = ten.recover(blobs, survivors, participants, me=me)
    assert found.unmasking == expected.unmasking
    assert set(found.ignored) <= set(expected.ignored), "a lie that changes nothing is not looked for"
    gone = tuple(sorted(name for name in lost if steps[name] == "upload"))
    assert wanted[:1] == ([gone] if gone else wanted[:1])
    asked = [name for names in wanted for name in names]
    assert set(asked) <= set(lost)
    assert len(set(asked)) == len(asked), "nothing is wanted twice"


def test_of_who_dropped_out_the_whole_note_is_wanted_and_what_others_dealt_to_it(ten):
    gone, participants = "silo-4", TEN
    survivors = ten.list(*(name for name in TEN if name != gone))
    blobs = ten.reveals(survivors)
    held = ten.sliced("silo-0")
    whole = ten.read(ten.notes[gone], gone, "silo-0")
    for partly in (
        held,
        {**held, gone: held[gone].joined(whole)},
        {**ten.more("silo-0", held, (gone,)), gone: held[gone]},
    ):
        with pytest.raises(NotesWantedError) as wanted:
            ten.recover(blobs, survivors, participants, bundles=partly)
        assert wanted.value.silos == (gone,)
    read = ten.more("silo-0", held, (gone,))
    assert ten.recover(blobs, survivors, participants, bundles=read) == ten.recover(blobs, survivors, participants)
    last = near(ten, gone)[-1]
    for missing in (near(ten, gone)[0], last):
        with pytest.raises(NotesWantedError):
            ten.recover(
                blobs,
                survivors,
                participants,
                bundles={**read, missing: held[missing] if missing != "silo-0" else ten.sliced("silo-0")["silo-0"]},
            )


def test_the_dropped_are_wanted_before_any_reveal_is_read(ten):
    """So what a silo asks for follows from the list, and from reveals only where these do not fit."""
    survivors = ten.list(*(name for name in TEN if name != "silo-4"))
    with pytest.raises(NotesWantedError):
        ten.recover({}, survivors, bundles=ten.sliced("silo-0"))


def test_a_wrong_share_that_spoils_a_secret_has_the_notes_read_and_its_revealer_ignored(ten):
    survivors, about = ten.list(*TEN), "silo-3"
    liar = ten.roster.circle.holders(about)[0]
    assert liar != about
    blobs = {**ten.reveals(survivors), liar: lying(ten, liar, about, survivors)}
    for me in ("silo-3", "silo-9"):
        found, wanted = opened(ten, blobs, survivors, TEN, me)
        assert wanted == [(about,)]
        assert found.ignored == (liar,)
        assert found == ten.recover(blobs, survivors, me=me)


def test_a_wrong_share_that_is_not_needed_changes_nothing(ten):
    survivors, about = ten.list(*TEN), "silo-3"
    liar = ten.roster.circle.holders(about)[-1]
    blobs = {**ten.reveals(survivors), liar: lying(ten, liar, about, survivors)}
    found, wanted = opened(ten, blobs, survivors, TEN, "silo-0")
    assert (found.unmasking, found.ignored, wanted) == (ten.recover(blobs, survivors).unmasking, (), [])


def test_with_too_few_right_reveals_nothing_opens_and_the_one_that_answers_for_a_wrong_one_is_named(ten):
    survivors, about = ten.list(*TEN), "silo-3"
    liar = ten.roster.circle.holders(about)[0]
    kept = [liar, *(name for name in ten.roster.circle.holders(about) if name != liar)]
    kept = [*kept, *(name for name in TEN if name not in kept)][: ten.needed]
    blobs = {**{name: ten.reveal(name, survivors) for name in kept}, liar: lying(ten, liar, about, survivors)}
    held = ten.sliced("silo-5")
    with pytest.raises(NotesWantedError):
        ten.recover(blobs, survivors, bundles=held)
    read = ten.more("silo-5", held, (about,))
    with pytest.raises(RecoveryRefused, match=rf"\(ignored: {liar}\)") as refused:
        ten.recover(blobs, survivors, bundles=read, answerable=(liar,))
    assert refused.value.culprit == liar


def test_a_dealer_whose_shares_do_not_combine_is_named_once_its_note_is_read(ten):
    with pytest.MonkeyPatch.context() as patch:
        split = unmasking.split
        patch.setattr(unmasking, "split", lambda secret, *rest: split(b"z" * 32, *rest))
        notes = {**ten.notes, "silo-2": ten.make("silo-2")}
    held = {me: ten.sliced(me, notes) for me in TEN}
    survivors = ten.list(*TEN, bundles=held["silo-0"])
    blobs = {me: ten.reveal(me, survivors, bundles=held[me]) for me in TEN}
    for me in ("silo-2", "silo-7"):
        with pytest.raises(NotesWantedError) as wanted:
            ten.recover(blobs, survivors, bundles=held[me])
        assert wanted.value.silos == ("silo-2",)
        read = ten.more(me, held[me], ("silo-2",), notes)
        with pytest.raises(RecoveryRefused, match="'silo-2' dealt do not combine") as refused:
            ten.recover(blobs, survivors, bundles=read)
        assert refused.value.culprit == "silo-2"
