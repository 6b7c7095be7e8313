from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from crypto.canonical import canonical
from crypto.errors import SealError
from crypto.rings.ckks_public import DEGREE, PRIME, RESIDUES
from crypto.rings.rings import RINGS
from crypto.secagg.circle import Circle
from crypto.secagg.labels import SumLabel
from crypto.secagg.masks import Masks, Unmasking, apply
from crypto.stream import KeyStream
from support.mask_seeds import GROUP, Seeds

LABEL = SumLabel("study", "roster", "model", 1, 0, "encoder")
NAMES = ("elm", "ash", "oak", "fir", "yew")
MODULI = {"ckks": PRIME, "ring32": 1 << 32, "ring64": 1 << 64}
DTYPES = {"ckks": np.uint64, "ring32": np.dtype("<u4"), "ring64": np.dtype("<u8")}
KINDS = pytest.mark.parametrize("kind", RINGS)
INTEGERS = pytest.mark.parametrize("kind", ["ring32", "ring64"])
CHANGES = [{"model": "other"}, {"roster": "other"}, {"round": 2}, {"attempt": 1}, {"tensor": "heads"}]


def plain(kind, seed, size=50):
    words = np.random.default_rng(seed).integers(0, MODULI[kind], RESIDUES if kind == "ckks" else size, dtype=np.uint64)
    return words.astype(DTYPES[kind])


def covered(kind, words, masks, label=LABEL):
    words = words.copy()
    apply(RINGS[kind], words, masks.terms(label, kind))
    return words


def summed(kind, rows):
    total = rows[0].copy()
    for row in rows[1:]:
        RINGS[kind].add(total, row)
    return total


def opened(kind, total, unmasking, label=LABEL):
    total = total.copy()
    apply(RINGS[kind], total, unmasking.terms(label, kind))
    return total


def uniform(kind, words):
    words = words[:DEGREE] if kind == "ckks" else words
    return stats.kstest(words.astype(np.float64) / MODULI[kind], "uniform").pvalue > 1e-4


@KINDS
@settings(deadline=None, max_examples=40)
@given(st.permutations(NAMES), st.integers(2, 5), st.integers(2, 5), st.integers(0, 2**32))
def test_what_remains_of_the_survivors_sum_is_plain_bit_for_bit(kind, order, participants, staying, seed):
    names = order[:participants]
    survivors = names[: min(staying, participants)]
    seeds = Seeds(names, str(seed))
    rows = {name: plain(kind, seed + number) for number, name in enumerate(survivors)}
    total = summed(kind, [covered(kind, row, seeds.masks(name)) for name, row in rows.items()])
    np.testing.assert_array_equal(opened(kind, total, seeds.unmasking(survivors)), summed(kind, list(rows.values())))


@INTEGERS
def test_every_stream_is_where_the_protocol_has_it(kind):
    """One upload, its cover written out: who sorts first adds, one's own and the group's pad are added."""
    masks = Seeds(NAMES).masks("fir")
    zeros = np.zeros(9, DTYPES[kind])
    bits, draw = (32, KeyStream.words32) if kind == "ring32" else (64, KeyStream.words64)
    info = (kind, LABEL.canonical())
    cover = [
        (1, KeyStream(masks.own, canonical("self mask", *info))),
        (1, KeyStream(GROUP, canonical("group pad", kind, "fir", LABEL.canonical()))),
        *((-1, KeyStream(masks.pairs[other], canonical("pair mask", *info))) for other in ("elm", "ash")),
        *((+1, KeyStream(masks.pairs[other], canonical("pair mask", *info))) for other in ("oak", "yew")),
    ]
    drawn = [(sign, draw(stream, 9).tolist()) for sign, stream in cover]
    expected = [sum(sign * numbers[k] for sign, numbers in drawn) % 2**bits for k in range(9)]
    assert covered(kind, zeros, masks).tolist() == expected


def test_of_a_ciphertext_c0_alone_is_covered_without_a_group_pad():
    masks = Seeds(("ash", "elm")).masks("ash")
    words = plain("ckks", 1)
    streams = [
        KeyStream(masks.own, canonical("self mask", "ckks", LABEL.canonical())),
        KeyStream(masks.pairs["elm"], canonical("pair mask", "ckks", LABEL.canonical())),
    ]
    expected = words.astype(object)
    for stream in streams:
        expected[:DEGREE] = (expected[:DEGREE] + stream.uniform(PRIME, DEGREE).astype(object)) % PRIME
    assert covered("ckks", words, masks).tolist() == expected.tolist()


@KINDS
def test_frames_in_order_go_on_where_the_last_one_ended(kind):
    terms, again = (Seeds(NAMES).masks("oak").terms(LABEL, kind) for _ in range(2))
    size = RESIDUES if kind == "ckks" else 60
    first, second = np.zeros(size, DTYPES[kind]), np.zeros(size, DTYPES[kind])
    apply(RINGS[kind], first, terms)
    apply(RINGS[kind], second, terms)
    assert first.tolist()[:DEGREE] != second.tolist()[:DEGREE]
    if kind != "ckks":
        whole = np.zeros(2 * size, DTYPES[kind])
        apply(RINGS[kind], whole, again)
        np.testing.assert_array_equal(whole, np.concatenate([first, second]))


@KINDS
@pytest.mark.parametrize("silos", [2, 3, 5])
def test_one_upload_or_all_but_one_look_random(kind, silos):
    names = NAMES[:silos]
    seeds = Seeds(names)
    uploads = {name: covered(kind, np.zeros(RESIDUES, DTYPES[kind]), seeds.masks(name)) for name in names}
    assert all(uniform(kind, upload) for upload in uploads.values())
    part = summed(kind, [uploads[name] for name in names[:-1]])
    # Even with every seed that opens the sum of all.
    assert uniform(kind, opened(kind, part, seeds.unmasking(names)))
    if silos > 2:
        # With those for the survivors it is plain.
        assert not opened(kind, part, seeds.unmasking(names[:-1])).any()


@INTEGERS
def test_the_sum_is_hidden_by_a_group_pad_of_every_survivor(kind):
    seeds = Seeds(NAMES[:4])
    total = summed(kind, [covered(kind, np.zeros(50_000, DTYPES[kind]), seeds.masks(name)) for name in seeds.names])
    unmasking = seeds.unmasking(seeds.names)
    own, pads = np.split(np.array(unmasking.terms(LABEL, kind), object), 2)
    apply(RINGS[kind], total, own)
    assert uniform(kind, total)
    # Four equal pads would leave the two lowest bits of the sum in the clear.
    assert stats.chisquare(np.bincount((total % 4).astype(np.int64), minlength=4)).pvalue > 1e-4
    apply(RINGS[kind], total, pads)
    assert not total.any()


@KINDS
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: next(iter(change)))
def test_a_silo_that_was_shown_something_else_spoils_the_sum(kind, change):
    seeds = Seeds(NAMES[:3])
    labels = [LABEL, LABEL, dataclasses.replace(LABEL, **change)]
    zeros = np.zeros(RESIDUES, DTYPES[kind])
    uploads = [covered(kind, zeros, seeds.masks(name), label) for name, label in zip(seeds.names, labels, strict=True)]
    assert uniform(kind, opened(kind, summed(kind, uploads), seeds.unmasking(seeds.names)))


@KINDS
def test_a_silo_with_other_seeds_spoils_the_sum(kind):
    names = NAMES[:3]
    ours, theirs = Seeds(names), Seeds(names, "other")
    zeros = np.zeros(RESIDUES, DTYPES[kind])
    masks = [ours.masks("elm"), ours.masks("ash"), theirs.masks("oak")]
    total = summed(kind, [covered(kind, zeros, mask) for mask in masks])
    assert uniform(kind, opened(kind, total, ours.unmasking(names)))


def test_labels_rings_and_purposes_never_share_a_stream():
    seed = b"s" * 32
    alike = Masks("ash", seed, {"elm": seed}, seed)
    labels = [LABEL, *(dataclasses.replace(LABEL, **change) for change in CHANGES)]
    heads = [stream.bytes(32) for kind in RINGS for label in labels for _, stream in alike.terms(label, kind)]
    assert len(set(heads)) == len(heads) == 6 * (2 + 3 + 3)


@given(
    st.lists(st.tuples(st.text(max_size=3), st.integers(0, 3), st.integers(0, 3)), min_size=2, max_size=2, unique=True),
    st.sampled_from(list(RINGS)),
)
def test_two_labels_never_share_a_stream(pair, kind):
    masks = Seeds(NAMES).masks("oak")
    terms = [masks.terms(SumLabel("s", "r", "m", number, attempt, name), kind) for name, number, attempt in pair]
    heads = [stream.bytes(16) for row in terms for _, stream in row]
    assert len(set(heads)) == len(heads)


def test_subtracting_mod_the_prime_is_exact_at_its_ends():
    class Drawn:
        def __init__(self, number):
            self.number = number

        def uniform(self, q, n):
            assert (q, n) == (PRIME, DEGREE)
            return np.full(n, self.number, np.uint64)

    for begin in (0, 1, PRIME - 1):
        for mask in (0, 1, PRIME - 1):
            for adds, sign in ((True, 1), (False, -1)):
                words = np.full(RESIDUES, begin, np.uint64)
                apply(RINGS["ckks"], words, [(adds, Drawn(mask))])
                assert set(words[:DEGREE].tolist()) == {(begin + sign * mask) % PRIME}
                assert set(words[DEGREE:].tolist()) == {begin}


@pytest.mark.parametrize(
    "change",
    [
        {"me": "elm"},
        {"pairs": {}},
        {"pairs": {"elm": b"short"}},
        {"own": b"short"},
        {"own": b"s" * 33},
        {"group": b"short"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_masks_are_whole(change):
    with pytest.raises(SealError, match="masks need"):
        dataclasses.replace(Seeds(("ash", "elm")).masks("ash"), **change)


@pytest.mark.parametrize(
    "change",
    [
        {"own": {"ash": b"s" * 32}},
        {"own": {"ash": b"s" * 32, "elm": b"short"}},
        {"group": b"short"},
        {"dropped": {"elm": {"ash": b"s" * 32, "elm": b"s" * 32}}},
        {"dropped": {"oak": {"ash": b"s" * 32}}},
        {"dropped": {"oak": {"ash": b"s" * 32}}, "circle": Circle(("ash", "elm", "oak"), 1)},
        {"dropped": {"oak": {"ash": b"s" * 32, "elm": b"short"}}},
    ],
    ids=["one survivor", "own", "group", "both", "not with all", "not with all neighbours", "pair"],
)
def test_an_unmasking_is_whole(change):
    with pytest.raises(SealError, match="a sum opens only with"):
        dataclasses.replace(Seeds(("ash", "elm", "oak")).unmasking(("ash", "elm")), **change)


def test_seeds_with_others_than_survivors_are_left_aside():
    seeds = Seeds(NAMES)
    two = seeds.unmasking(("ash", "elm"))
    assert len(two.terms(LABEL, "ring32")) == 2 + 3 * 2 + 2
    assert len(two.terms(LABEL, "ckks")) == 2 + 3 * 2


def test_nothing_secret_prints_or_changes():
    seeds = Seeds(NAMES)
    for held in (seeds.masks("ash"), seeds.unmasking(("ash", "elm"))):
        with pytest.raises(dataclasses.FrozenInstanceError):
            held.group = b"s" * 32
    assert repr(seeds.masks("ash")) == "Masks(me='ash')"
    assert repr(seeds.unmasking(("ash", "elm"))) == "Unmasking()"
    assert isinstance(seeds.unmasking(NAMES), Unmasking)
