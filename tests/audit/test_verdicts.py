import numpy as np
import pytest
from scipy.stats import binom

from audit.verdicts import Verdict, all_of, distributed_as, near, noise_like, uniform

RNG = np.random.default_rng


def test_all_hold_or_none_does():
    good, bad = Verdict(True, "a"), Verdict(False, "b")
    assert all_of([good, good]) == Verdict(True, "a; a")
    assert all_of([good, bad]) == Verdict(False, "a; b")


@pytest.mark.parametrize(("value", "holds"), [(1.0, True), (1.49, True), (0.51, True), (1.51, False), (0.49, False)])
def test_near_is_two_sided_at_five_sigma(value, holds):
    assert near("x", value, 1.0, 0.1).holds is holds


def test_what_is_not_a_number_never_holds():
    assert not near("x", float("nan"), 1.0, 0.1).holds
    assert not noise_like("x", np.zeros(100), 1.0).holds


@pytest.mark.parametrize(
    ("factor", "shift", "holds"), [(1, 0, True), (0.983, 0, False), (1.017, 0, False), (1, 0.03, False)]
)
def test_noise_that_is_a_hundredth_off_is_found(factor, shift, holds):
    draws = RNG(1).normal(size=100_000) * 3.0 * factor + 3.0 * shift
    assert noise_like("x", draws, 3.0).holds is holds


@pytest.mark.parametrize("seed", range(5))
def test_binomial_draws_pass_and_their_neighbours_do_not(seed):
    law = binom(400, 0.05)
    assert distributed_as("x", RNG(seed).binomial(400, 0.05, 1000), law).holds
    assert not distributed_as("x", RNG(seed).binomial(400, 0.06, 1000), law).holds
    assert not distributed_as("x", np.full(1000, 20), law).holds
    assert not distributed_as("x", RNG(seed).binomial(40, 0.5, 1000), law).holds, "mean of 20, variance halved"


def test_residues_are_uniform_or_not():
    draws = RNG(2).integers(0, 16, 10_000)
    assert uniform("x", draws, 16).holds
    assert not uniform("x", draws // 2 * 2, 16).holds
    assert not uniform("x", np.zeros(100, np.int64), 16).holds
