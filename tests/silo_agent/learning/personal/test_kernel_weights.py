import numpy as np
import torch

from silo_agent.learning.personal.kernel_weights import Mixtures, _pooled, choose
from silo_agent.learning.terms.losses.mk_mmd import compare, kernel_weights, power_problem
from silo_agent.learning.terms.term import LayerPair, Seen


def seen(number, n=12, layers=1):
    drawn = torch.Generator().manual_seed(number)
    own, constant = torch.randn(n, 4, generator=drawn), torch.randn(n, 4, generator=drawn) + 0.5
    deeper = tuple(LayerPair(own**2, constant) for _ in range(layers - 1))
    return Seen(None, own, reference=constant, deeper=deeper)


def look(numbers):
    return seen(int(numbers[0]), len(numbers))


def batch(number, n=12):
    return np.full(n, number)


def statistics(one):
    return compare(one.phi, one.reference).statistics()


def test_of_one_batch_they_are_the_batchs_own_weights_for_each_layer():
    found = choose([seen(1, layers=2)])
    assert found.shape == (2, 19)
    np.testing.assert_allclose(found[0], kernel_weights(statistics(seen(1))), atol=1e-9)


def test_the_batches_moments_together_are_those_of_all_their_pairs():
    batches = [seen(number, n) for number, n in ((1, 12), (2, 7), (3, 2))]
    pairs = torch.cat([statistics(one).flatten(1) for one in batches], dim=1)[:, :, None]
    parts = [(len(one.phi) ** 2, *power_problem(statistics(one))) for one in batches]
    for found, wanted in zip(_pooled(parts), power_problem(pairs), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-12)


def test_at_every_step_nothing_is_kept():
    every = Mixtures(1, look, None)
    assert every.at(seen(1)) is None
    every.taken(batch(1))
    every.finish()
    assert every.weights is None


def test_they_stay_fixed_for_so_many_steps_and_are_chosen_on_the_batches_of_those_steps():
    schedule = Mixtures(3, look, None)
    first = schedule.at(seen(1))
    np.testing.assert_array_equal(first, choose([seen(1)]))
    for number in (1, 2):
        schedule.taken(batch(number))
        assert schedule.at(seen(number + 1)) is first
    schedule.taken(batch(3))
    second = schedule.at(seen(4))
    np.testing.assert_array_equal(second, choose([seen(number) for number in (1, 2, 3)]))
    schedule.taken(batch(4))
    schedule.finish()
    np.testing.assert_array_equal(schedule.weights, choose([seen(number) for number in (2, 3, 4)]))


def test_a_round_goes_on_with_the_weights_it_was_given_and_a_single_record_counts_for_nothing():
    known = np.full((1, 19), 1 / 19)
    schedule = Mixtures(2, look, known)
    assert schedule.at(seen(1)) is known
    schedule.taken(batch(1, n=1))
    schedule.finish()
    assert schedule.weights is known
    alone = Mixtures(2, look, None)
    assert alone.at(seen(1, n=1)) is None
    assert alone.weights is None
