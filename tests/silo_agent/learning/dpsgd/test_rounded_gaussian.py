"""The sampler of the encoder's noise against the law of floor(X), X normal: its table, its decisions, its draws."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from crypto.stream import KeyStream
from silo_agent.learning.dpsgd import rounded_gaussian
from silo_agent.learning.dpsgd.rounded_gaussian import MOST_SIGMA, RoundedGaussian
from silo_agent.learning.noise.gaussian import discrete_gaussian

RARE = 1e-6


def stream(seed=0):
    return KeyStream(seed.to_bytes(32, "big"), b"test")


def fits(draws, cells, chances):
    """Chi-square of draws in cells [cells[i], cells[i + 1]) against their exact chances; eight are expected in each."""
    found = np.histogram(draws, cells)[0]
    keep = chances * len(draws) > 8
    rest = len(draws) - found[keep].sum()
    expected = np.append(chances[keep], 1 - chances[keep].sum()) * len(draws)
    found = np.append(found[keep], rest)
    if expected[-1] < 8:
        expected, found = np.append(expected[:-2], expected[-2:].sum()), np.append(found[:-2], found[-2:].sum())
    return stats.chisquare(found, expected).pvalue > RARE


def exact(sigma, cells):
    """Chances that floor(X) lies in [cells[i], cells[i + 1]), from the normal's own tails."""
    below, above = stats.norm.cdf(cells / sigma), stats.norm.sf(cells / sigma)
    return np.where(cells[:-1] < 0, below[1:] - below[:-1], above[:-1] - above[1:])


@pytest.mark.parametrize("sigma", [1.0, 1.7, 33.3, 64.0, 1000.25, 2.0**20, 3.7 * 2.0**20, MOST_SIGMA])
def test_draws_follow_the_law(sigma):
    draws = RoundedGaussian(sigma).draw(stream(), 200_000)
    cells = np.unique(np.round(np.linspace(-5, 5, 201) * sigma))
    assert fits(draws, cells, exact(sigma, cells))
    assert not fits(draws, cells, exact(sigma * 1.03, cells))
    if sigma >= 1000:
        odd = stats.binomtest(int((draws & 1).sum()), len(draws))
        assert odd.pvalue > RARE, "the lowest bit is fair"


@pytest.mark.parametrize("sigma", [1.0, 5.5, 64.0, 100.0, 2.0**20, 2.0**22 * 1.3, MOST_SIGMA])
def test_the_table_is_an_envelope_and_every_bucket_gets_its_own_mass(sigma):
    """All of it in integers and rational bounds, so the law of a kept draw is the density's, at any distance."""
    table = rounded_gaussian._table(sigma)
    assert int(table.masses.sum()) == rounded_gaussian._MASSES
    assert table.masses.min() >= 1
    owned = dict.fromkeys(range(rounded_gaussian._BUCKETS), 0)
    begins = table.choices >> rounded_gaussian._KEEP_BITS
    buckets = (begins >> table.shift) + rounded_gaussian._HALF
    for column in range(rounded_gaussian._BUCKETS):
        own = (int(table.thresholds[column]) - (column << 52)) >> 34
        owned[int(buckets[column])] += (1 << 18) - own
        owned[int(buckets[rounded_gaussian._BUCKETS + column])] += own
    assert list(owned.values()) == table.masses.tolist()
    assert (table.choices[rounded_gaussian._BUCKETS :] >> rounded_gaussian._KEEP_BITS >> table.shift).tolist() == list(
        range(-2048, 2048)
    )
    width, variance = 1 << table.shift, Fraction(sigma) ** 2
    assert 2048 * width >= 32 * sigma
    for at in (0, 1, 7, 64, 130, 191, 257, 389, 2047):
        for bucket, near in ((rounded_gaussian._HALF + at, at * width), (rounded_gaussian._HALF - 1 - at, at * width)):
            mass = int(table.masses[bucket])
            highest = Fraction(table.scale, mass) * rounded_gaussian.exp_bounds(near**2 / (2 * variance), 200)[1]
            lowest = (
                Fraction(table.scale, mass) * rounded_gaussian.exp_bounds((near + width) ** 2 / (2 * variance), 200)[0]
            )
            assert highest <= 1, "the density lies below the table"
            certain = int(table.choices[rounded_gaussian._BUCKETS + bucket]) & rounded_gaussian._KEEP
            assert Fraction(certain, 1 << 12) <= max(lowest, 0), "what is kept for certain would be kept anyway"


class Rigged:
    """A stream whose first words land in one bucket; place and last bits are free."""

    def __init__(self, law, bucket):
        self._rest = stream(9)
        table, column = law._table, bucket
        own = (int(table.thresholds[column]) - (column << 52)) >> 34
        assert own, "the column's own bucket is never drawn"
        self._top = np.uint64(column << 52)
        self._first = True

    def fill(self, words):
        self._rest.fill(words)
        if self._first:
            words &= np.uint64((1 << 34) - 1)
            words |= self._top
            self._first = False

    def words64(self, n):
        return self._rest.words64(n)


@pytest.mark.parametrize("sigma", [100.0, 1.5 * 2.0**20])
@pytest.mark.parametrize("sigmas", [-6, -5, -4, 0, 4, 5, 6])
def test_in_every_bucket_the_share_that_is_kept_is_the_densitys(sigma, sigmas, monkeypatch):
    law = RoundedGaussian(sigma)
    table, n = law._table, rounded_gaussian._CHUNK
    bucket = rounded_gaussian._HALF + math.floor(sigmas * sigma / (1 << table.shift))
    kept = []
    decide = RoundedGaussian._is_kept
    monkeypatch.setattr(RoundedGaussian, "_is_kept", lambda self, *given: kept.append(decide(self, *given)) or kept[-1])
    law._fill(Rigged(law, bucket), np.empty(n, np.int64))
    ends = (np.array([bucket, bucket + 1]) - rounded_gaussian._HALF) * float(1 << table.shift) / sigma
    density = abs(stats.norm.cdf(-abs(ends[1])) - stats.norm.cdf(-abs(ends[0]))) * math.sqrt(2 * math.pi) * sigma
    share = table.scale / int(table.masses[bucket]) * density / (1 << table.shift)
    assert stats.binomtest(n - int((~kept[0]).sum()), n, share).pvalue > RARE


def cut(draws, sigma, limit, draw):
    """What a sampler gives that leaves out what lies beyond `limit` sigma."""
    far = np.flatnonzero(np.abs(draws) > limit * sigma)
    draws[far] = draw(len(far))
    return draws


SAMPLERS = {
    "rounded": lambda seed, sigma, n: RoundedGaussian(sigma).draw(stream(seed), n),
    "discrete": lambda seed, sigma, n: discrete_gaussian(stream(seed), sigma, n),
}
SIGMA = 1000.0


def tail_fits(draws, sigmas):
    """Two-sided, exact: how many lie beyond."""
    return stats.binomtest(int((np.abs(draws + 0.5) > sigmas * SIGMA).sum()), len(draws), chance(sigmas)).pvalue > RARE


def chance(sigmas):
    return 2 * stats.norm.sf(sigmas)


@pytest.mark.parametrize(("name", "n"), [("rounded", 1_000_000), ("discrete", 600_000)])
def test_four_sigma_are_exceeded_as_often_as_they_should(name, n):
    draws = SAMPLERS[name](11, SIGMA, n)
    assert tail_fits(draws, 3)
    assert tail_fits(draws, 4)
    again = cut(draws, SIGMA, 4, lambda m: SAMPLERS[name](12, SIGMA, m))
    assert not tail_fits(again, 4), "a sampler that is cut at 4 sigma is found"


@pytest.mark.slow
@pytest.mark.parametrize(("name", "n"), [("rounded", 60_000_000), ("discrete", 40_000_000)])
def test_five_sigma_are_exceeded_as_often_as_they_should(name, n):
    counts = np.zeros(2, int)
    for part in range(20):
        draws = SAMPLERS[name](20 + part, SIGMA, n // 20)
        counts += [(np.abs(draws + 0.5) > far * SIGMA).sum() for far in (4, 5)]
    for far, count in zip((4, 5), counts.tolist(), strict=True):
        assert stats.binomtest(count, n, chance(far)).pvalue > RARE
    assert stats.binomtest(0, n, chance(5)).pvalue < RARE, "a sampler that is cut at 5 sigma would be found"


def test_what_float64_cannot_decide_is_decided_by_rational_bounds(monkeypatch):
    """With the margin at its widest every draw that twelve bits leave open takes the exact way; the law stays."""
    law = RoundedGaussian(20.0)
    monkeypatch.setattr(rounded_gaussian, "_FINE", 2.0)
    asked = []
    below = RoundedGaussian._is_below
    monkeypatch.setattr(RoundedGaussian, "_is_below", lambda *given: asked.append(below(*given)) or asked[-1])
    draws = law.draw(stream(3), 4000)
    cells = np.arange(-80.0, 81.0, 4.0)
    assert fits(draws, cells, exact(20.0, cells))
    assert set(asked) == {True, False}


def test_the_same_stream_gives_the_same_values_in_one_piece_or_whole_chunks():
    law = RoundedGaussian(5000.0)
    whole = law.draw(stream(4), 3 * rounded_gaussian._CHUNK)
    again = stream(4)
    assert np.array_equal(whole, np.concatenate([law.draw(again, rounded_gaussian._CHUNK) for _ in range(3)]))
    assert not np.array_equal(whole, law.draw(stream(5), len(whole)))
    assert law.draw(stream(), 0).shape == (0,)


@pytest.mark.parametrize("sigma", [0.0, 0.999, -5.0, 2.0**27 * 1.001, float("nan"), float("inf")])
def test_another_sigma_is_refused(sigma):
    with pytest.raises(ValueError, match="sigma"):
        RoundedGaussian(sigma)
