from __future__ import annotations

import dataclasses
import random
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crypto.entropy import SystemEntropy
from crypto.errors import CertificateError, RecoveryRefused, RosterRefused, SealError, SignatureRefused
from crypto.hkdf import derive
from crypto.pki.certificates import Trust
from crypto.secagg import unmasking
from crypto.secagg.agreement import PairSecrets, Roster
from crypto.secagg.dealt.attempt_secrets import AttemptSecrets
from crypto.secagg.dealt.boxes import SEAL_BYTES
from crypto.secagg.dealt.bundles import bound, signed
from crypto.secagg.dealt.shamir import SHARE_BYTES
from crypto.secagg.dealt.slices import MAGIC
from crypto.secagg.survivors import threshold
from crypto.secagg.unmasking import (
    notes_digest,
    pair_seed,
    require_same_keys,
)
from crypto.secagg.words import NOTHING, Word
from support.consortium import KEYS, TENSOR, TENSORS, Consortium

STUDY = "5" * 64
TEN = tuple(f"silo-{n}" for n in range(10))
THREE = ("north", "south", "west")


@pytest.fixture(scope="module")
def trio(silos, meeting) -> Consortium:
    return Consortium(silos, *meeting, 2)


@pytest.fixture(scope="module")
def ten(enrol, gather, introduce) -> Consortium:
    credentials = {name: enrol(name) for name in TEN}
    keys, roster = gather(credentials)
    return Consortium(credentials, roster, introduce(keys, roster), threshold(10, 2, 5))


@pytest.fixture(scope="module")
def forge(trio):
    """A dealer that signs whatever it likes: `make` with functions of the module replaced."""

    def forge(owner, **replaced):
        with pytest.MonkeyPatch.context() as patch:
            for name, value in replaced.items():
                patch.setattr(unmasking, name, value)
            return trio.make(owner)

    return forge


def expected(consortium, unmasking, survivors, participants, tensor=TENSOR):
    assert unmasking.own == {name: consortium.secrets[name].own[tensor] for name in survivors.names}
    assert unmasking.dropped == {
        gone: {name: pair_seed(consortium.pairs[gone][name], consortium.attempt, tensor) for name in survivors.names}
        for gone in set(participants) - set(survivors.names)
    }
    assert unmasking.group == KEYS.group


# --- simulation ----------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=25)
@given(st.data())
def test_ten_silos_lose_any_three_at_any_step(ten, data):
    """Before sharing: no participant. Before the upload: dropped. After it: a survivor that reveals nothing."""
    lost = data.draw(st.lists(st.sampled_from(TEN), min_size=3, max_size=3, unique=True))
    steps = {name: data.draw(st.sampled_from(("share", "upload", "reveal")), name) for name in lost}
    participants = [name for name in TEN if steps.get(name) != "share"]
    survivors = ten.list(*(name for name in participants if steps.get(name) != "upload"), participants=participants)
    alive = [name for name in TEN if name not in lost]
    blobs = {name: ten.reveal(name, survivors, participants) for name in alive}
    results = [ten.recover(blobs, survivors, participants, me=me) for me in alive]
    assert all(result == results[0] for result in results)
    assert results[0].ignored == ()
    expected(ten, results[0].unmasking, survivors, participants)


def test_a_fourth_loss_leaves_nothing(ten):
    survivors = ten.list(*TEN)
    blobs = {name: ten.reveal(name, survivors) for name in TEN[:6]}
    with pytest.raises(RecoveryRefused, match="6 of the 7 reveals") as refused:
        ten.recover(blobs, survivors)
    assert refused.value.culprit == ""


@given(st.permutations(TEN), st.integers(7, 10))
@settings(deadline=None, max_examples=10)
def test_whoever_reveals_the_result_is_the_same(ten, order, count):
    survivors = ten.list(*TEN[1:], TEN[0])
    blobs = {name: ten.reveal(name, survivors) for name in order[:count]}
    expected(ten, ten.recover(blobs, survivors).unmasking, survivors, TEN)


# --- secrets -------------------------------------------------------------------------------------------------------


def test_attempt_secrets_are_fresh_for_every_tensor_and_come_back():
    secrets = AttemptSecrets.create(TENSORS, SystemEntropy())
    drawn = [*secrets.own.values(), *secrets.keys.values()]
    assert len(set(drawn)) == 4
    assert set(secrets.own) == set(secrets.keys) == set(TENSORS)
    assert AttemptSecrets.from_bytes(secrets.to_bytes()) == secrets
    assert repr(secrets) == "AttemptSecrets()"


@pytest.mark.parametrize(
    "blob",
    [
        b"",
        b"\xff",
        b"1",
        b"[]",
        b"[{}, {}]",
        b"[[], []]",
        b'[{"a": 1}, {"a": 1}]',
        b'[{"a": "zz"}, {"a": "00"}]',
        b'[{"a": "00"}, {"a": "00"}]',
        b'[{"a": "%s"}, {"b": "%s"}]' % (b"00" * 32, b"00" * 32),
    ],
)
def test_stored_secrets_that_are_none_are_refused(blob):
    with pytest.raises(SealError):
        AttemptSecrets.from_bytes(blob)


def test_a_pair_seed_is_the_same_at_both_ends_and_of_its_purpose_alone(trio):
    pair = trio.pairs["north"]["west"]
    assert pair_seed(pair, trio.attempt, TENSOR) == pair_seed(trio.pairs["west"]["north"], trio.attempt, TENSOR)
    attempts = [dataclasses.replace(trio.attempt, **change) for change in ({"round": 5}, {"attempt": 2}, {"study": ""})]
    seeds = {pair_seed(pair, attempt, TENSOR) for attempt in (trio.attempt, *attempts)}
    assert len(seeds | {pair_seed(pair, trio.attempt, "heads"), pair}) == 6


def test_nothing_secret_is_printed_or_lies_open_in_a_note(trio):
    bundle = trio.held["north"]["west"]
    survivors = trio.list("north", "west")
    result = trio.recover(trio.reveals(survivors), survivors)
    shown = repr(bundle) + repr(result)
    assert repr(bundle) == f"ShareBundle(owner='west', attempt={trio.attempt!r})"
    for held, field in ((bundle, "owner"), (result, "ignored"), (trio.secrets["west"], "own")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(held, field, ())
    secrets = [*trio.secrets["west"].own.values(), *trio.secrets["west"].keys.values(), *bundle.shares.values()]
    secrets += [pair_seed(trio.pairs["west"][name], trio.attempt, TENSOR) for name in ("north", "south")]
    for secret in secrets:
        assert repr(secret) not in shown
        assert secret not in trio.notes["west"]
        assert all(secret not in blob for blob in trio.reveals(survivors).values())


# --- shares notes --------------------------------------------------------------------------------------------------


def test_everybody_reads_the_same_commitments_and_shares_of_its_own(trio):
    for owner in THREE:
        bundles = [trio.held[me][owner] for me in THREE]
        assert all(b.owner == owner and b.attempt == trio.attempt for b in bundles)
        assert all(
            (b.digest, b.commitments, b.pairs, b.deposits)
            == (bundles[0].digest, bundles[0].commitments, bundles[0].pairs, bundles[0].deposits)
            for b in bundles
        )
        shares = {share for bundle in bundles for share in bundle.shares.values()}
        assert len(shares) == 3 * 2 * len(TENSORS)
    assert trio.held["north"]["west"].pairs[TENSOR]["south"] == trio.held["north"]["south"].pairs[TENSOR]["west"]


def test_a_note_of_another_attempt_roster_owner_or_form_is_refused_without_a_culprit(trio, silos, gather, introduce):
    note = trio.notes["west"]
    elsewhere = dataclasses.replace(trio.attempt, attempt=2)
    keys, roster = gather(silos)
    other = Consortium(silos, roster, introduce(keys, roster), 2)
    for blob, owner, change in (
        (note, "south", {}),
        (note, "west", {"attempt": elsewhere}),
        (note, "west", {"attempt": dataclasses.replace(trio.attempt, study="6")}),
        (note, "west", {"tensors": ("heads",)}),
        (note, "west", {"tensors": ("heads", "other")}),
        (note, "west", {"threshold": 3}),
        (trio.make("west", attempt=elsewhere), "west", {}),
        (trio.make("west", credential=silos["south"]), "west", {}),
        (other.notes["west"], "west", {}),
        (b"", "west", {}),
    ):
        with pytest.raises(RecoveryRefused, match="shares note") as refused:
            trio.read(blob, owner, "north", **change)
        assert refused.value.culprit == ""
    with pytest.raises(RecoveryRefused, match="another roster"):
        trio.read(note, "west", "north", attempt=dataclasses.replace(trio.attempt, roster=roster.digest))
    with pytest.raises(RecoveryRefused, match="another roster"):
        trio.make("north", attempt=other.attempt)
    with pytest.raises(RosterRefused, match="'hub' is no member"):
        trio.read(note, "hub", "north")
    with pytest.raises(SealError, match="belong to another roster"):
        trio.read(note, "west", "north", roster=Roster(STUDY, roster.entries[1:]))


def test_whoever_relays_a_note_sees_whether_its_owner_has_signed_it(trio, silos):
    """Else each reader would have to dispute it, and nobody else could tell who of the two was to blame."""
    note, west = trio.notes["west"], silos["west"].certificate_pem

    def seen(blob, owner="west", attempt=trio.attempt, tensors=TENSORS, needed=trio.needed):
        return signed(blob, owner, attempt, tensors, trio.names, needed)

    trio.trust.verify(west, *seen(note))
    trio.trust.verify(west, *seen(note, tensors=TENSORS[::-1]))
    elsewhere = dataclasses.replace(trio.attempt, attempt=2)
    foreign = trio.make("west", credential=silos["south"])
    changed = [note[:at] + bytes([note[at] ^ 1]) + note[at + 1 :] for at in range(len(MAGIC), len(note), 31)]
    for other in (
        seen(note, "south"),
        seen(note, attempt=elsewhere),
        seen(note, needed=trio.needed + 1),
        seen(foreign),
    ):
        with pytest.raises(SignatureRefused):
            trio.trust.verify(west, *other)
    for blob in changed:
        with pytest.raises((SignatureRefused, RecoveryRefused), match="sign"):
            trio.trust.verify(west, *seen(blob))
    for blob, change in (
        (b"", {}),
        (note[1:], {}),
        (note[:-80], {}),
        (note + bytes(9), {}),
        (note, {"tensors": ["a"]}),
    ):
        with pytest.raises(RecoveryRefused, match="cut or of another version"):
            seen(blob, **change)


def test_a_certificate_that_is_no_longer_good_is_refused(trio, foreign):
    strangers = SimpleNamespace(**vars(trio))
    strangers.trust = Trust(foreign("north").authority_pem)
    with pytest.raises(CertificateError, match="not issued by"):
        Consortium.read(strangers, trio.notes["west"], "west", "north")


def test_a_wrong_share_for_one_member_shows_that_member_its_dealer(trio, forge):
    honest = unmasking._commit

    def commit(attempt, owner, spot, holder, value):
        """Commits to a share that is one bit off what that member is handed."""
        return honest(attempt, owner, spot, holder, value[:-1] + bytes([value[-1] ^ (holder == "north")]))

    note = forge("west", _commit=commit)
    with pytest.raises(RecoveryRefused, match="'west' dealt this silo shares that it did not commit to") as refused:
        trio.read(note, "west", "north")
    assert refused.value.culprit == "west"
    assert trio.liar(note, "west", "north", refused.value.evidence) == "west"
    assert trio.read(note, "west", "south").owner == "west"
    key = unmasking._shares_key(trio.pairs["south"], "west", "south", bound("shares", trio.attempt, "west", "south"))
    assert trio.liar(note, "west", "south", key) == "south"


def test_shares_that_are_not_sealed_under_the_committed_key_show_their_dealer_to_everybody(trio, forge):
    seal = unmasking.seal_under
    note = forge("west", seal_under=lambda key, plain, of, entropy: seal(b"x" * 32, plain, of, entropy))
    with pytest.raises(RecoveryRefused, match="sealed its shares for this silo wrongly") as refused:
        trio.read(note, "west", "north")
    assert refused.value.culprit == "west"
    assert trio.liar(note, "west", "north", refused.value.evidence) == "west"
    assert trio.liar(note, "west", "south", refused.value.evidence) == "south", "that is not the key of south's note"


def test_another_key_than_the_committed_one_is_one_silos_word_against_the_others(trio):
    strangers = PairSecrets({**trio.pairs["west"], "north": b"x" * 32})
    with pytest.raises(RecoveryRefused, match="'west' committed to another key") as refused:
        trio.read(trio.make("west", pairs=strangers), "west", "north")
    assert (refused.value.culprit, refused.value.evidence) == ("west", b"")


def test_who_complains_about_a_right_note_lies_whatever_key_it_shows(trio):
    note = trio.notes["west"]
    asked = bound("shares", trio.attempt, "west", "north")
    right = unmasking._shares_key(trio.pairs["north"], "west", "north", asked)
    assert [trio.liar(note, "west", "north", key) for key in (right, bytes(32))] == ["north", "north"]
    assert trio.liar(note[:-80], "west", "north", right) == "west", "a note that nobody can read"


def test_keys_that_differ_from_the_dealers_are_between_the_two(trio):
    other = dataclasses.replace(KEYS, check=b"x" * 32)
    notes = {**trio.notes, "west": trio.make("west", keys=other)}
    held = {owner: trio.read(note, owner, "north") for owner, note in notes.items()}
    require_same_keys(trio.held["north"], "north", "west")
    require_same_keys(held, "north", "south")
    for dealer, culprit in (("west", "west"), ("hub", "")):
        with pytest.raises(RecoveryRefused, match="hold different keys") as refused:
            require_same_keys(held, "north", dealer)
        assert refused.value.culprit == culprit


@pytest.mark.parametrize("owner", THREE)
def test_a_commitment_to_another_pair_seed_shows_its_dealer(trio, forge, owner):
    note = forge(owner, pair_seed=lambda pair, attempt, tensor: bytes(32))
    for me in set(THREE) - {owner}:
        with pytest.raises(RecoveryRefused, match="committed to another seed") as refused:
            trio.read(note, owner, me)
        assert refused.value.culprit == owner


def test_a_dealers_own_shares_lie_under_all_its_pair_secrets_and_another_s_under_the_one_with_it(trio):
    pairs, bound = trio.pairs["west"], b"bound"
    assert unmasking._shares_key(pairs, "west", "west", bound) == derive(pairs["north"] + pairs["south"], bound)
    assert unmasking._shares_key(pairs, "west", "north", bound) == derive(pairs["north"], bound)
    assert unmasking._shares_key(trio.pairs["north"], "west", "north", bound) == derive(pairs["north"], bound)


def test_a_note_that_is_cut_or_lengthened_or_of_another_version_is_told_from_one_that_is_not_signed(trio):
    note = trio.notes["west"]
    for blob in (b"", note[:-80], note + bytes(80), b"fedward shares 0" + note[16:]):
        with pytest.raises(RecoveryRefused, match="shares note of 'west' is cut or of another version") as refused:
            trio.read(blob, "west", "north")
        assert refused.value.culprit == ""
    with pytest.raises(RecoveryRefused, match="'west' did not sign its shares note") as refused:
        trio.read(note[:-1] + bytes([note[-1] ^ 1]), "west", "north")
    assert refused.value.culprit == ""


def test_a_threshold_above_the_roster_cannot_be_shared(trio):
    with pytest.raises(SealError, match="threshold"):
        trio.make("west", threshold=4)


def test_3000_mutated_shares_notes_are_refused(trio):
    chance = random.Random(6)  # noqa: S311  # mutations that repeat
    other = trio.make("west")
    for _ in range(3000):
        with pytest.raises(RecoveryRefused) as refused:
            trio.read(mutate(trio.notes["west"], other, chance), "west", "north")
        assert refused.value.culprit == ""


def mutate(blob: bytes, other: bytes, chance: random.Random) -> bytes:
    """Flip bits, cut, lengthen, or put in a stretch of another note of the same kind (from the same place or not)."""
    out, kind = bytearray(blob), chance.randrange(5)
    if kind == 0:
        del out[chance.randrange(len(out)) :]
    elif kind == 1:
        out += chance.randbytes(chance.randrange(1, 40))
    elif kind == 2:
        begin, size = chance.randrange(16, len(out) - 80), chance.randrange(32, 64)
        source = chance.choice((begin, chance.randrange(16, len(out) - 80)))
        out[begin : begin + size] = other[source : source + size]
    else:
        out[chance.randrange(len(out))] ^= chance.randrange(1, 256)
    # Two notes of one attempt hold the same commitments to pair seeds: a stretch of those changes nothing.
    return bytes(out) if out != blob else mutate(blob, other, chance)


# --- reveals -------------------------------------------------------------------------------------------------------


def test_of_each_silo_one_secret_is_revealed_and_never_both(trio, monkeypatch):
    shown = []
    monkeypatch.setattr(unmasking, "_reveal_message", lambda context, pieces: shown.extend(pieces[:-1]) or context)
    survivors = trio.list("north", "south")
    trio.reveal("north", survivors)
    held = trio.held["north"]
    spots = {"north": "own", "south": "own", "west": "key"}
    assert shown == [held[name].shares[TENSOR, part] for name, part in spots.items()]


def test_tensors_recover_apart(trio):
    for tensor, names in (("heads", ("north", "south")), ("update", ("north", "west"))):
        survivors = trio.list(*names, tensor=tensor)
        result = trio.recover(trio.reveals(survivors), survivors)
        expected(trio, result.unmasking, survivors, THREE, tensor)


def test_a_silo_that_is_no_survivor_reveals_nothing(trio):
    with pytest.raises(RecoveryRefused, match="not in the sum, so it reveals nothing"):
        trio.reveal("west", trio.list("north", "south"))


def test_survivors_participants_and_notes_belong_together(trio):
    survivors = trio.list("north", "south")
    swapped = {**trio.held["north"], "west": trio.held["north"]["south"]}
    second = {**trio.held["north"], "west": trio.read(trio.make("west"), "west", "north")}
    later = dataclasses.replace(trio.attempt, attempt=2)
    for change, listed, participants in (
        ({"bundles": swapped}, survivors, THREE),
        ({"bundles": second}, survivors, THREE),
        ({}, survivors, ("north", "south")),
        ({}, trio.list("north", "south", participants=("north", "west")), ("north", "west")),
        ({}, dataclasses.replace(survivors, attempt=later), THREE),
        ({}, dataclasses.replace(survivors, tensor="counts"), THREE),
        ({}, dataclasses.replace(survivors, notes=""), THREE),
    ):
        with pytest.raises(RecoveryRefused, match="do not belong to one attempt") as refused:
            trio.reveal("north", listed, participants, **change)
        assert refused.value.culprit == ""
        with pytest.raises(RecoveryRefused, match="do not belong to one attempt"):
            trio.recover({}, listed, participants, **change)
    fewer = {name: trio.held["north"][name] for name in ("north", "south")}
    with pytest.raises(RecoveryRefused, match="do not belong to one attempt"):
        trio.reveal("north", survivors, THREE, bundles=fewer)
    with pytest.raises(RecoveryRefused, match="the shares notes of west are missing"):
        trio.list("north", bundles=fewer)


def test_a_reveal_for_another_list_tensor_attempt_or_sender_is_ignored_by_name(ten, silos):
    survivors = ten.list(*TEN[:9])
    blobs = ten.reveals(survivors)
    replayed = dict(blobs)
    replayed["silo-0"] = ten.reveal("silo-0", ten.list(*TEN))
    replayed["silo-1"] = ten.reveal("silo-1", ten.list(*TEN[:9], tensor="heads"))
    result = ten.recover(replayed, survivors)
    assert result.ignored == ("silo-0", "silo-1")
    assert result.unmasking == ten.recover(blobs, survivors).unmasking
    swapped = {**blobs, "silo-2": blobs["silo-3"], "silo-3": blobs["silo-2"]}
    assert ten.recover(swapped, survivors).ignored == ("silo-2", "silo-3")
    guests = {**blobs, "silo-9": blobs["silo-0"], "hub": blobs["silo-0"], "silo-4": b""}
    assert ten.recover(guests, survivors).ignored == ("hub", "silo-4", "silo-9")
    among_nine = ten.list(*TEN[:9], participants=TEN[:9])
    fewer = {**blobs, "silo-5": ten.reveal("silo-5", among_nine, TEN[:9])}
    assert ten.recover(fewer, survivors).ignored == ("silo-5",)
    stranger = dataclasses.replace(KEYS, group=b"h" * 32)
    others = {**blobs, "silo-6": ten.reveal("silo-6", survivors, keys=stranger)}
    others["silo-7"] = ten.reveal("silo-7", survivors, credential=ten.credentials["silo-8"])
    assert ten.recover(others, survivors).ignored == ("silo-6", "silo-7")


def test_who_was_dealt_another_note_cannot_be_combined_with(trio):
    """A dealer that signs two notes: those who hold different ones ignore each other, and blame nobody for a share."""
    second = trio.make("west")
    survivors = trio.list("north", "south", "west")
    blobs = trio.reveals(survivors)
    others = {**trio.held["south"], "west": trio.read(second, "west", "south")}
    unlike = trio.list(*survivors.names, bundles=others)
    blobs["south"] = trio.reveal("south", unlike, bundles=others)
    assert trio.recover(blobs, survivors).ignored == ("south",)
    # Even where the shares are the same.
    other = dataclasses.replace(trio.held["south"]["west"], digest=others["west"].digest)
    blobs["south"] = trio.reveal("south", unlike, bundles={**trio.held["south"], "west": other})
    assert trio.recover(blobs, survivors).ignored == ("south",)
    # So one of the two signs a list that the other's signature does not count for.
    assert unlike.to_sign() != survivors.to_sign()


def test_a_reveal_is_bound_to_all_that_it_is_for(trio):
    later = dataclasses.replace(trio.list("north", "south"), attempt=dataclasses.replace(trio.attempt, attempt=2))
    other = {**trio.held["north"], "west": dataclasses.replace(trio.held["north"]["west"], digest=b"")}
    contexts = {
        unmasking._reveal_context(trio.list("north", "south"), "north"),
        unmasking._reveal_context(trio.list("north", "south"), "south"),
        unmasking._reveal_context(trio.list(*THREE), "north"),
        unmasking._reveal_context(trio.list("north", "south", tensor="heads"), "north"),
        unmasking._reveal_context(later, "north"),
        unmasking._reveal_context(trio.list("north", "south", participants=("north", "south")), "north"),
        unmasking._reveal_context(trio.list("north", "south", bundles=other), "north"),
    }
    assert len(contexts) == 7


def test_a_dropped_silo_that_reveals_all_the_same_is_ignored(trio):
    """It holds the group key and its own shares, and signs and seals like a survivor."""
    survivors = trio.list("north", "south")
    held = [trio.held["west"][name] for name in THREE]
    shares = [held[at].shares[TENSOR, part] for at, part in enumerate(("own", "own", "key"))]
    context = unmasking._reveal_context(survivors, "west")
    pieces = [*shares, NOTHING.to_bytes()]
    plain = b"".join([*pieces, trio.credentials["west"].sign(unmasking._reveal_message(context, pieces))])
    blob = unmasking.seal_under(unmasking.derive(KEYS.group, context), plain, context, SystemEntropy())
    result = trio.recover({**trio.reveals(survivors), "west": blob}, survivors)
    assert result.ignored == ("west",)
    expected(trio, result.unmasking, survivors, THREE)


@pytest.mark.parametrize("part", ["own", "key"])
def test_a_wrong_share_is_ignored_and_its_revealer_listed(trio, part):
    survivors = trio.list("north", "south", "west") if part == "own" else trio.list("north", "south")
    blobs = trio.reveals(survivors)
    bundle = trio.held["south"]["west"]
    # Its share of the other secret, or a changed one, signed and sealed as the right one would be.
    right, other = (bundle.shares[TENSOR, name] for name in (("own", "key") if part == "own" else ("key", "own")))
    for wrong in (other, bytes(33), right[:-1] + bytes([right[-1] ^ 1])):
        lying = dataclasses.replace(bundle, shares={**bundle.shares, (TENSOR, part): wrong})
        blobs["south"] = trio.reveal("south", survivors, bundles={**trio.held["south"], "west": lying})
        if part == "own":
            result = trio.recover(blobs, survivors)
            assert result.ignored == ("south",)
            expected(trio, result.unmasking, survivors, THREE)
        else:
            with pytest.raises(RecoveryRefused, match=r"1 of the 2 reveals .* \(ignored: south\)"):
                trio.recover(blobs, survivors)


def test_if_too_few_reveals_are_of_use_who_has_signed_one_that_is_not_is_the_culprit(trio):
    survivors = trio.list("north", "south")
    blobs = {**trio.reveals(survivors), "south": b"of no use"}
    for answerable, culprit in (((), ""), (("north",), ""), (("north", "south", "west"), "south")):
        with pytest.raises(RecoveryRefused, match=r"1 of the 2 reveals .* \(ignored: south\)") as refused:
            trio.recover(blobs, survivors, answerable=answerable)
        assert refused.value.culprit == culprit
    both = {"north": b"of no use", "south": b"of no use"}
    with pytest.raises(RecoveryRefused, match="0 of the 2 reveals") as refused:
        trio.recover(both, survivors, answerable=("south", "north"))
    assert refused.value.culprit == "north"  # everybody says the same


def test_whoever_holds_the_same_notes_has_the_same_digest_of_them(trio):
    held = trio.held["north"]
    digest = notes_digest(held, THREE)
    assert digest == notes_digest(dict(reversed(held.items())), [*THREE, *reversed(THREE)])
    assert digest != notes_digest(held, THREE[:2])
    assert digest != notes_digest({**held, "west": held["south"]}, THREE)


def recovered_with(trio, note, owner, survivors, participants=THREE):
    """What the survivors recover when `owner` has dealt this note."""
    held = {me: {**trio.held[me], owner: trio.read(note, owner, me)} for me in THREE}
    survivors = dataclasses.replace(survivors, notes=notes_digest(held["north"], participants))
    blobs = {me: trio.reveal(me, survivors, participants, bundles=held[me]) for me in survivors.names}
    return trio.recover(blobs, survivors, participants, bundles=held[survivors.names[0]])


@pytest.mark.parametrize("names", [("north", "south", "west"), ("north", "south")])
def test_shares_that_do_not_combine_show_their_dealer(trio, forge, names):
    honest = unmasking.split

    def split(secret, needed, holders, entropy):
        """Every share of another polynomial: each fits its commitment, together they give nothing."""
        return [honest(secret, needed, holders, SystemEntropy())[i] for i in range(holders)]

    note = forge("west", split=split)
    with pytest.raises(RecoveryRefused, match="shares that 'west' dealt do not combine") as refused:
        recovered_with(trio, note, "west", trio.list(*names))
    assert refused.value.culprit == "west"


def test_shares_beyond_the_field_show_their_dealer(trio, forge):
    note = forge("west", split=lambda *_: [b"\xff" * 33] * 3)
    with pytest.raises(RecoveryRefused, match="do not combine") as refused:
        recovered_with(trio, note, "west", trio.list("north", "south"))
    assert refused.value.culprit == "west"


def test_shares_of_another_secret_show_their_dealer(trio, forge):
    honest = unmasking.split
    note = forge("west", split=lambda secret, *others: honest(b"z" * 32, *others))
    with pytest.raises(RecoveryRefused, match="do not combine") as refused:
        recovered_with(trio, note, "west", trio.list("north", "south"))
    assert refused.value.culprit == "west"


def test_a_deposit_of_other_seeds_or_under_another_key_shows_its_dealer(trio, forge):
    honest = unmasking.seal_under
    size = SEAL_BYTES + 2 * 32

    def seal_other(key, plain, bound, entropy):
        """One bit of the last seed."""
        return honest(key, plain[:-1] + bytes([plain[-1] ^ (len(plain) == 2 * 32)]), bound, entropy)

    def seal_apart(key, plain, bound, entropy):
        return honest(bytes(32) if len(plain) == 2 * 32 else key, plain, bound, entropy)

    assert len(trio.held["north"]["west"].deposits[TENSOR]) == size
    for seal in (seal_other, seal_apart):
        note = forge("west", seal_under=seal)
        with pytest.raises(RecoveryRefused, match="'west' deposited other pair seeds") as refused:
            recovered_with(trio, note, "west", trio.list("north", "south"))
        assert refused.value.culprit == "west"
        # As a survivor its deposit is not needed, and not opened.
        survivors = trio.list("north", "south", "west")
        expected(trio, recovered_with(trio, note, "west", survivors).unmasking, survivors, THREE)


def test_of_two_who_committed_to_different_seeds_it_lies_at_the_one_that_uploaded(trio):
    """West and south collude; north, who knows only its own seeds, sees that they differ."""
    survivors = trio.list("north", "south")
    blobs = trio.reveals(survivors)
    bundle = trio.held["north"]["south"]
    lying = dataclasses.replace(bundle, pairs={**bundle.pairs, TENSOR: {**bundle.pairs[TENSOR], "west": bytes(32)}})
    with pytest.raises(RecoveryRefused, match="'west' and 'south' committed to different seeds") as refused:
        trio.recover(blobs, survivors, bundles={**trio.held["north"], "south": lying})
    assert refused.value.culprit == "south"


def test_3000_mutated_reveals_are_ignored(trio):
    survivors = trio.list("north", "south", "west")
    blobs = {"north": trio.reveal("north", survivors), "west": trio.reveal("west", survivors)}
    other = trio.reveal("west", survivors)
    chance = random.Random(7)  # noqa: S311  # mutations that repeat
    for _ in range(3000):
        with pytest.raises(RecoveryRefused, match=r"1 of the 2 reveals .* \(ignored: west\)"):
            trio.recover({**blobs, "west": mutate(blobs["west"], other, chance)}, survivors)


def test_500_reveals_mutated_under_the_seal_are_ignored(trio):
    """By a silo that holds the group key, so the seal is right and what it covers is not."""
    survivors = trio.list("north", "south", "west")
    honest = trio.reveal("north", survivors)
    context = unmasking._reveal_context(survivors, "west")
    key = unmasking.derive(KEYS.group, context)
    plain = unmasking.open_under(key, trio.reveal("west", survivors), context, "reveal")
    other = unmasking.open_under(key, trio.reveal("west", survivors), context, "reveal")
    assert len(plain) > 3 * SHARE_BYTES
    chance = random.Random(8)  # noqa: S311  # mutations that repeat
    for _ in range(500):
        out, kind = bytearray(plain), chance.randrange(4)
        if kind == 0:
            del out[chance.randrange(len(out)) :]
        elif kind == 1:
            out += chance.randbytes(chance.randrange(1, 40))
        elif kind == 2:
            out[3 * SHARE_BYTES :] = other[3 * SHARE_BYTES :]
            out[:SHARE_BYTES], out[SHARE_BYTES : 2 * SHARE_BYTES] = (
                out[SHARE_BYTES : 2 * SHARE_BYTES],
                out[:SHARE_BYTES],
            )
        else:
            out[chance.randrange(len(out))] ^= chance.randrange(1, 256)
        blob = unmasking.seal_under(key, bytes(out), context, SystemEntropy())
        with pytest.raises(RecoveryRefused, match="ignored: west"):
            trio.recover({"north": honest, "west": blob}, survivors)


# --- words ---------------------------------------------------------------------------------------------------------
SAID = {name: Word(number, 4, 1, name.encode()) for number, name in enumerate(THREE, start=1)}


def test_every_reader_of_a_note_sees_the_same_words_and_nothing_of_who_was_not_heard(trio):
    note = trio.make("north", words={name: SAID[name] for name in ("north", "west")})
    for me in THREE:
        words = trio.read(note, "north", me).words
        assert words == {"north": SAID["north"], "south": NOTHING, "west": SAID["west"]}
        assert words["west"].signature == b"west"


def test_words_in_a_note_cannot_be_changed(trio):
    note = trio.make("north", words=SAID)
    other = note.replace(SAID["west"].to_bytes(), NOTHING.to_bytes())
    assert other != note
    with pytest.raises(RecoveryRefused, match="did not sign"):
        trio.read(other, "north", "south")


def test_a_reveal_brings_its_senders_word_even_if_too_few_came_to_open_anything(trio):
    survivors = trio.list("north", "south")
    blobs = {"south": trio.reveal("south", survivors, word=SAID["south"])}
    with pytest.raises(RecoveryRefused, match="1 of the 2 reveals"):
        trio.recover(blobs, survivors)
    given = trio.held["north"], survivors, THREE, trio.roster, KEYS, trio.trust
    words = unmasking.words_in_reveals({**blobs, "north": b"garbage", "nobody": b""}, *given)
    assert words == {"south": SAID["south"]}
    assert words["south"].signature == b"south"
