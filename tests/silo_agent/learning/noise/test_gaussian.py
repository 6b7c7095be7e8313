import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from crypto.stream import KeyStream
from silo_agent.learning.noise import gaussian as noise
from silo_agent.learning.noise.gaussian import discrete_gaussian, gaussian

FIVE_SIGMA = 5.7e-7


def stream(seed=0):
    return KeyStream(seed.to_bytes(32, "big"), b"test")


def pmf(sigma, reach):
    """Exact probabilities of -reach..reach, from the definition."""
    weights = np.array([math.exp(-(x**2) / (2 * sigma**2)) for x in range(-reach, reach + 1)])
    return weights / weights.sum()


def fits(draws, sigma):
    """Chi-square against the exact law; rare values, up to ten expected, share one cell with the rarest other."""
    reach = math.ceil(12 * sigma)
    observed = np.bincount(draws + reach, minlength=2 * reach + 1)
    expected = len(draws) * pmf(sigma, reach)
    order = np.argsort(expected)
    first = int(np.searchsorted(np.cumsum(expected[order]), 10.0)) + 1
    cells = [observed[order][:first].sum(), *observed[order][first:]]
    wanted = [expected[order][:first].sum(), *expected[order][first:]]
    return stats.chisquare(cells, wanted).pvalue > FIVE_SIGMA


@pytest.mark.parametrize("sigma", [0.3, 0.9, 1.0, 2.5, 4.0])
def test_a_small_sigma_gives_the_exact_law(sigma):
    draws = discrete_gaussian(stream(), sigma, 60_000)
    assert fits(draws, sigma)
    assert not fits(draws, sigma * 1.05)


@pytest.mark.parametrize(("far", "proposals"), [(4, 2**17), (5, 2**20), (6, 2**23)])
def test_the_tails_are_those_of_the_law(far, proposals, monkeypatch):
    """P(x) is how often x is proposed times how often it is accepted. Each is common enough to be counted alone."""
    sigma, scale = 100.5, 101
    x = round(far * sigma)
    proposed = np.abs(noise._discrete_laplace(stream(6), scale, 400_000))
    beyond = len(proposed) * 2 * math.exp(-x / scale) / (1 + math.exp(-1 / scale))
    assert abs((proposed >= x).sum() - beyond) < 5 * math.sqrt(beyond)
    once = iter([np.full(proposals, x)])
    monkeypatch.setattr(noise, "_discrete_laplace", lambda *_: next(once))
    counted = []
    trials = noise._bernoulli_exp

    def counting(*given):
        counted.append(trials(*given))
        return counted[-1]

    monkeypatch.setattr(noise, "_bernoulli_exp", counting)
    assert discrete_gaussian(stream(7), sigma, 1).tolist() == [x]
    expected = proposals * math.exp(-((x - sigma**2 / scale) ** 2) / (2 * sigma**2))
    assert abs(counted[0].sum() - expected) < 5 * math.sqrt(expected)


def test_a_large_sigma_looks_normal():
    draws = discrete_gaussian(stream(6), 5000.25, 100_000)
    assert stats.kstest(draws, "norm", (0, 5000.25)).pvalue > FIVE_SIGMA


@pytest.mark.parametrize("sigma", [3.0, 1000.5, 123_456.789])
def test_the_standard_deviation_is_sigma_and_the_mean_zero(sigma):
    n = 100_000
    draws = discrete_gaussian(stream(1), sigma, n)
    assert abs(draws.std() / sigma - 1) < 5 / math.sqrt(2 * n)
    assert abs(draws.mean()) < 5 * sigma / math.sqrt(n)


def test_the_exact_branch_alone_gives_the_same_law(monkeypatch):
    monkeypatch.setattr(noise, "_UNDECIDED", 2.0)
    assert fits(discrete_gaussian(stream(2), 1.5, 4000), 1.5)


@given(st.integers(0, 2**64 - 1), st.fractions(0, 40))
@settings(max_examples=200)
def test_float_and_exact_decisions_agree_where_floats_may_decide(word, gamma):
    distance = word * 2.0**-64 - math.exp(-float(gamma))
    if abs(distance) > noise._UNDECIDED:
        assert noise._is_below(stream(), word, gamma) == (distance < 0)


def test_a_uniform_at_the_threshold_is_decided_by_more_bits():
    threshold = int(Fraction("0.36787944117144232159552377016146086744581113103177") * 2**64)
    decisions = {noise._is_below(stream(seed), threshold, Fraction(1)) for seed in range(40)}
    assert decisions == {True, False}
    assert noise._is_below(stream(), threshold - 1, Fraction(1))
    assert not noise._is_below(stream(), threshold + 1, Fraction(1))
    assert noise._is_below(stream(), 2**64 - 1, Fraction(0))


def test_continuous_noise_is_standard_normal():
    n = 200_000
    draws = gaussian(stream(3), (n,))
    assert abs(draws.std() - 1) < 5 / math.sqrt(2 * n)
    assert abs(draws.mean()) < 5 / math.sqrt(n)
    assert stats.kstest(draws, "norm").pvalue > FIVE_SIGMA
    assert np.isfinite(draws).all()
    assert len(np.unique(draws)) == n


def test_extreme_words_give_finite_normals():
    class Words:
        def words64(self, n):
            return np.resize(np.array([0, 1, 2**64 - 1, 2**64 - 2], np.uint64), n)

    draws = gaussian(Words(), (4,))
    assert np.isfinite(draws).all()
    assert np.abs(draws).max() < 2 * 8.5


def test_the_same_stream_gives_the_same_noise_and_another_another():
    assert np.array_equal(discrete_gaussian(stream(4), 50.0, 100), discrete_gaussian(stream(4), 50.0, 100))
    assert not np.array_equal(discrete_gaussian(stream(4), 50.0, 100), discrete_gaussian(stream(5), 50.0, 100))
    assert np.array_equal(gaussian(stream(4), (3, 5)), gaussian(stream(4), (3, 5)))


def test_nothing_is_asked_and_nothing_given():
    assert discrete_gaussian(stream(), 3.0, 0).shape == (0,)
    assert gaussian(stream(), (0, 4)).shape == (0, 4)


@pytest.mark.parametrize("sigma", [0.0, -1.0, math.nan, math.inf, 2.0**41])
def test_a_sigma_that_is_no_noise_is_refused(sigma):
    with pytest.raises(ValueError, match="sigma"):
        discrete_gaussian(stream(), sigma, 1)
