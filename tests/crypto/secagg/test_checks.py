from __future__ import annotations

import dataclasses
import itertools
import struct
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crypto.canonical import canonical
from crypto.errors import OpeningRefused, SealError
from crypto.rings.rings import RINGS
from crypto.secagg.checks import LinearChecks
from crypto.secagg.labels import SumLabel
from crypto.secagg.layout import CHECKS, LIMBS
from crypto.stream import KeyStream

KEY = bytes(range(32))
LABEL = SumLabel("study", "roster", "model", 1, 0, "encoder")
INT64 = st.integers(-(1 << 47), 1 << 47)
VECTORS = st.lists(INT64, max_size=40)


def checks_of(values, key=KEY, kind="ring32", label=LABEL):
    checks = LinearChecks(key, kind, label)
    checks.update(np.array(values, np.int64))
    return checks


def by_hand(values, key=KEY, kind="ring32", label=LABEL):
    """The definition in Python's own integers."""
    stream = KeyStream(key, canonical("linear check", kind, label.canonical()))
    words = struct.unpack(f"<{len(values) + 3}I", stream.bytes(4 * (len(values) + 3)))
    return [sum(words[k + c] * value for k, value in enumerate(values)) % 2**64 for c in range(4)]


def as_numbers(limbs):
    rows = limbs.reshape(CHECKS, LIMBS).tolist()
    return [sum(limb << (16 * place) for place, limb in enumerate(row)) for row in rows]


@given(VECTORS)
def test_checks_are_the_definition(values):
    limbs = checks_of(values).limbs()
    assert (limbs.dtype, limbs.shape) == (np.int64, (16,))
    assert ((limbs >= 0) & (limbs < 1 << 16)).all()
    assert as_numbers(limbs) == by_hand(values)


@given(VECTORS, st.lists(st.integers(0, 40), max_size=5))
def test_they_are_the_same_however_a_vector_is_cut(values, cuts):
    checks = LinearChecks(KEY, "ring32", LABEL)
    for part in np.split(np.array(values, np.int64), sorted(cuts)):
        checks.update(part)
        checks.limbs()
    np.testing.assert_array_equal(checks.limbs(), checks_of(values).limbs())


@given(st.integers(1, 10), st.integers(0, 30), st.integers(0, 2**32))
def test_the_checks_of_a_sum_are_the_sums_of_the_checks(silos, size, seed):
    values = np.random.default_rng(seed).integers(-(1 << 40), 1 << 40, (silos, size))
    limbs = sum(checks_of(row).limbs() for row in values)
    checks_of(values.sum(axis=0)).require(limbs)


@given(VECTORS.filter(len), st.data())
def test_any_other_value_is_refused(values, data):
    limbs = checks_of(values).limbs()
    place = data.draw(st.integers(0, len(values) - 1))
    values[place] += data.draw(INT64.filter(bool) | st.sampled_from([1, -1, 1 << 32, 1 << 47]))
    with pytest.raises(OpeningRefused, match="check values do not fit"):
        checks_of(values).require(limbs)


@given(VECTORS, st.integers(0, 15), st.sampled_from([1, -1, 1 << 15]))
def test_any_other_limb_is_refused(values, place, change):
    limbs = checks_of(values).limbs()
    limbs[place] += change
    with pytest.raises(OpeningRefused):
        checks_of(values).require(limbs)


def test_values_cannot_change_places():
    for values in itertools.permutations([0, 1, 2, 3]):
        if values != (0, 1, 2, 3):
            with pytest.raises(OpeningRefused):
                checks_of([0, 1, 2, 3]).require(checks_of(values).limbs())


@pytest.mark.parametrize(
    "other",
    [
        {"key": bytes(32)},
        {"kind": "ckks"},
        {"label": dataclasses.replace(LABEL, round=2)},
        {"label": dataclasses.replace(LABEL, attempt=1)},
        {"label": dataclasses.replace(LABEL, tensor="heads")},
        {"label": dataclasses.replace(LABEL, model="other")},
    ],
    ids=lambda change: next(iter(change)),
)
def test_another_key_kind_or_label_has_other_checks(other):
    values = [5, -3, 7]
    limbs = checks_of(values, **other).limbs()
    assert as_numbers(limbs) == by_hand(values, **other)
    with pytest.raises(OpeningRefused):
        checks_of(values).require(limbs)


def test_the_bound_of_the_proof_holds_in_a_world_small_enough_to_count():
    """Words of 4 bits, sums mod 2^7, two checks of two values: every word, every difference, every change of checks."""
    word, modulus, places, checks = 4, 7, 2, 2
    a = np.array(list(itertools.product(range(1 << word), repeat=places + checks - 1)))
    for d in itertools.product(range(-(1 << 5), (1 << 5) + 1, 1), repeat=places):
        if not any(d):
            continue
        hashed = [sum(a[:, k + c] * d[k] for k in range(places)) % (1 << modulus) for c in range(checks)]
        most = np.bincount(hashed[0] << modulus | hashed[1]).max()
        last = [number for number in d if number][-1]
        z = (last & -last).bit_length() - 1
        assert most / len(a) <= 2.0 ** (-checks * min(word, modulus - z)), d


@pytest.mark.parametrize(("kind", "bits"), [("ring32", 128), ("ckks", 112), ("ring64", 68)])
def test_the_rings_ranges_give_the_bits_that_are_claimed(kind, bits):
    largest = 2 * RINGS[kind].max_sum
    z = largest.bit_length() - 1
    assert CHECKS * min(32, 64 - z) == bits > 64


def test_the_weakest_difference_of_the_widest_ring_is_caught_as_often_as_claimed():
    """A difference of 2^47 escapes one check with a probability of 2^-17: of no more than that many keys."""
    words = KeyStream(KEY, b"words").words32(1 << 20).astype(np.uint64)
    escapes = Counter(((words << np.uint64(47)) >> np.uint64(47)).tolist())
    assert max(escapes.values()) < 40  # 8 are expected
    assert len(escapes) > 2**17 * 0.99


def test_a_short_key_is_refused_and_nothing_is_printed():
    with pytest.raises(SealError, match="32 bytes"):
        LinearChecks(b"short", "ring32", LABEL)
    assert repr(checks_of([1])) == "LinearChecks(secret)"
