"""Low bits of a released update: with noise in floating point they told a patient's presence in 99 of 100 runs."""

import numpy as np
import pytest
from scipy.stats import binom

from audit.low_bits import PATIENTS, Attacker, cohort, released
from audit.scenes import study
from policies.accounting import accountant
from policies.plan.release import encoder_release

RUNS = 400


def attacked(ring):
    """One step that everybody enters; learning rate / batch size is .5, which keeps every bit of a first step."""
    return study(
        inputs=3,
        model={"hidden": [128], "representation": 4, "gain": 1.0},
        encoder={
            "steps": 1,
            "sampling_rate": 1.0,
            "batch_size": 16,
            "learning_rate": 8.0,
            "noise": 4.0,
            "max_update": 4.0,
            "sealing": ring,
        },
    )


def outcomes(made, runs=RUNS):
    """(told right by the low bits, wrong, undecided, told right by bits or else by size)."""
    attacker, everybody = Attacker.of(made), cohort(made)
    fewer = everybody.of_patients(np.arange(PATIENTS) < PATIENTS - 1)
    coins = np.random.default_rng(1).integers(0, 2, runs)
    right = wrong = undecided = told = 0
    for seed, coin in enumerate(coins.tolist()):
        seen = released(made, everybody if coin else fewer, seed + 1)
        guess = attacker.by_bits(seen)
        right, wrong, undecided = right + (guess == coin), wrong + (guess == 1 - coin), undecided + (guess is None)
        told += (attacker.by_size(seen) if guess is None else guess) == coin
    return right, wrong, undecided, told


@pytest.mark.slow
@pytest.mark.parametrize("ring", ["ring32", "ring64", "ckks"])
def test_a_patients_presence_is_told_no_more_often_than_the_charged_epsilon_allows(ring):
    made = attacked(ring)
    delta = made.privacy.delta
    epsilon = accountant.epsilon([encoder_release(made).cost], delta)
    allowed = (np.exp(epsilon) + delta) / (1.0 + np.exp(epsilon))
    right, wrong, undecided, told = outcomes(made)
    by_bits = right if right + wrong else 0
    for guesses, hits in ((RUNS, told), (right + wrong, by_bits)):
        assert binom.sf(hits - 1, guesses, allowed) >= 0.01, (epsilon, right, wrong, undecided, told)
