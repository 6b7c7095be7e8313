from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crypto.entropy import SystemEntropy
from crypto.errors import SealError
from crypto.secagg.dealt import shamir
from crypto.secagg.dealt.shamir import PRIME, combine, split
from support.entropy import SeededEntropy

SECRETS = st.binary(min_size=32, max_size=32)


class Given:
    """Hands out the numbers it was given, 33 bytes each."""

    def __init__(self, *numbers: int) -> None:
        self.numbers = list(numbers)

    def bytes(self, n: int) -> bytes:
        return self.numbers.pop(0).to_bytes(n)


def is_prime(n: int) -> bool:
    """Miller and Rabin, with more bases than any known composite survives."""
    odd, twos = n - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for base in (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71):
        powers = [pow(base, odd << i, n) for i in range(twos)]
        if powers[0] != 1 and n - 1 not in powers:
            return False
    return True


def interpolate(points: dict[int, int], at: int) -> int:
    """Lagrange's polynomial in rational numbers, taken to the field at the end: another way than the module's."""
    total = Fraction(0)
    for x, y in points.items():
        term = Fraction(y)
        for other in points:
            if other != x:
                term *= Fraction(at - other, x - other)
        total += term
    return total.numerator * pow(total.denominator, -1, PRIME) % PRIME


def test_p_is_the_first_prime_above_every_secret():
    assert [n for n in range(1 << 256, PRIME + 1) if n % 2 and n % 3 and is_prime(n)] == [PRIME]
    assert PRIME < 1 << (8 * shamir.SHARE_BYTES)


@settings(deadline=None, max_examples=60)
@given(SECRETS, st.data())
def test_any_threshold_shares_combine_as_fractions_say(secret, data):
    holders = data.draw(st.integers(1, 12))
    threshold = data.draw(st.integers(1, holders))
    shares = split(secret, threshold, holders, SeededEntropy(data.draw(st.integers(0, 99))))
    chosen = data.draw(st.permutations(range(1, holders + 1)))[: data.draw(st.integers(threshold, holders))]
    given_shares = {x: shares[x - 1] for x in chosen}
    assert combine(given_shares, threshold) == secret
    lowest = {x: int.from_bytes(shares[x - 1]) for x in sorted(chosen)[:threshold]}
    assert interpolate(lowest, 0).to_bytes(32) == secret
    assert {len(share) for share in shares} == {33}


@settings(deadline=None, max_examples=60)
@given(SECRETS, SECRETS, st.integers(2, 8), st.data())
def test_one_share_less_fits_every_secret(secret, other, threshold, data):
    """Through threshold - 1 shares and another secret goes a polynomial that could have been dealt just as well."""
    shares = split(secret, threshold, 8, SystemEntropy())
    seen = data.draw(st.permutations(range(1, 9)))[: threshold - 1]
    points = {0: int.from_bytes(other), **{x: int.from_bytes(shares[x - 1]) for x in seen}}
    forged = {x: interpolate(points, x).to_bytes(33) for x in range(1, 9)}
    assert all(forged[x] == shares[x - 1] for x in seen)
    for chosen in combinations(range(1, 9), threshold):
        assert combine({x: forged[x] for x in chosen}, threshold) == other
    with pytest.raises(SealError, match="collect more"):
        combine({x: shares[x - 1] for x in seen}, threshold)


def test_a_coefficient_is_uniform_because_misfits_are_redrawn():
    entropy = Given((1 << 264) - 1, PRIME, PRIME - 1, 7)
    shares = split(bytes(32), 3, 3, entropy)
    assert entropy.numbers == []
    expected = [((PRIME - 1) * x + 7 * x * x) % PRIME for x in (1, 2, 3)]
    assert [int.from_bytes(share) for share in shares] == expected


def test_only_the_top_bit_above_p_is_cut_off():
    assert split(bytes(32), 2, 1 + 1, Given((0b1010 << 260) + 5))[0] == (5).to_bytes(33)
    assert split(bytes(32), 2, 2, Given((1 << 256) + 5))[0] == ((1 << 256) + 5).to_bytes(33)


def test_the_largest_secret_and_the_smallest_come_back():
    for secret in (bytes(32), b"\xff" * 32):
        shares = split(secret, 2, 3, SeededEntropy(1))
        assert combine({2: shares[1], 3: shares[2]}, 2) == secret


def test_each_dealing_differs_and_wrong_shares_give_another_secret():
    first, second = (split(b"s" * 32, 3, 5, SystemEntropy()) for _ in range(2))
    assert set(first).isdisjoint(second)
    mixed = {1: first[0], 2: first[1], 3: second[2]}
    try:
        assert combine(mixed, 3) != b"s" * 32
    except SealError as fault:
        assert "do not come from one dealing" in str(fault)  # noqa: PT017  # both ends are right


def test_points_beyond_every_secret_are_refused():
    for point in (1 << 256, PRIME - 1):
        with pytest.raises(SealError, match="do not come from one dealing"):
            combine({1: point.to_bytes(33)}, 1)
    assert combine({1: ((1 << 256) - 1).to_bytes(33)}, 1) == b"\xff" * 32


@pytest.mark.parametrize(
    ("shares", "threshold"),
    [
        ({}, 1),
        ({}, 0),
        ({1: bytes(33)}, 2),
        ({1: bytes(33)}, 0),
        ({0: bytes(33)}, 1),
        ({-1: bytes(33), 1: bytes(33)}, 2),
        ({PRIME: bytes(33), 1: bytes(33)}, 2),
        ({PRIME + 2: bytes(33), 1: bytes(33)}, 2),
        ({1: bytes(32)}, 1),
        ({1: bytes(34)}, 1),
        ({1: PRIME.to_bytes(33)}, 1),
        ({1: b"\xff" * 33, 2: bytes(33)}, 2),
    ],
)
def test_malformed_shares_are_refused(shares, threshold):
    with pytest.raises(SealError, match="collect more"):
        combine(shares, threshold)


@pytest.mark.parametrize(("size", "threshold", "holders"), [(31, 1, 2), (33, 1, 2), (32, 0, 2), (32, 3, 2), (32, 1, 0)])
def test_a_dealing_that_makes_no_sense_is_refused(size, threshold, holders):
    with pytest.raises(SealError, match="threshold from 1"):
        split(bytes(size), threshold, holders, SystemEntropy())


def test_the_weights_of_a_set_of_holders_are_computed_once():
    shamir._weights.cache_clear()
    for secret in (b"1" * 32, b"2" * 32):
        shares = dict(enumerate(split(secret, 3, 5, SystemEntropy()), 1))
        assert combine(shares, 3) == secret
    assert shamir._weights.cache_info().misses == 1
