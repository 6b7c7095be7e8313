import math

import pytest
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent
from dp_accounting.pld import PLDAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq

from policies.accounting import accountant
from policies.accounting.overlap import bound, epsilon, of_plan
from policies.errors import CostError
from policies.plan.cost import Cost

DELTA = 1e-5
HEADS = Cost("training", 1.0, 20.0, 6)
ENCODER = Cost("training", 0.02, 2.0, 100)
METRICS = Cost("evaluation", 1.0, 8.0, 1)
LEDGER = (HEADS, ENCODER, METRICS)

plain = st.builds(
    Cost, st.sampled_from(["training", "evaluation"]), st.just(1.0), st.floats(2, 100), st.integers(1, 20)
)


def test_one_sum_with_one_noise_moves_by_as_much_as_hospitals_have_the_patient():
    """Exactly: three hospitals in one noised sum are one release of three times the sensitivity."""
    shared = [(Cost("training", 1.0, 30.0, 4),)] * 3
    assert epsilon(shared, DELTA) == pytest.approx(accountant.gaussian_epsilon(3 * 2 / 30.0, DELTA), rel=1e-9)


def test_updates_with_noise_of_their_own_compose():
    three = epsilon([(ENCODER,)] * 3, DELTA)
    independent = PLDAccountant()
    event = SelfComposedDpEvent(PoissonSampledDpEvent(0.02, GaussianDpEvent(2.0)), 300)
    assert three == pytest.approx(independent.compose(event).get_epsilon(DELTA), rel=0.01)
    assert three == accountant.epsilon([Cost("training", 0.02, 2.0, 300)], DELTA)


def test_the_patient_may_train_here_and_be_held_out_there():
    train, evaluate = (Cost("training", 1.0, 10.0, 1),), (Cost("evaluation", 1.0, 5.0, 1),)
    both = (*train, *evaluate)
    assert accountant.epsilon(both, DELTA) == accountant.gaussian_epsilon(1 / 5, DELTA)
    assert epsilon([both, train], DELTA) == pytest.approx(accountant.gaussian_epsilon(1 / 5 + 1 / 10, DELTA))
    assert epsilon([both, both], DELTA) == pytest.approx(accountant.gaussian_epsilon(2 / 5, DELTA))


def test_a_statement_has_one_two_and_all():
    found = bound([LEDGER, LEDGER, (HEADS,)], DELTA)
    assert found.alone == tuple(accountant.epsilon(costs, DELTA) for costs in (LEDGER, LEDGER, (HEADS,)))
    assert found.two == epsilon([LEDGER, LEDGER], DELTA)
    assert found.all == epsilon([LEDGER, LEDGER, (HEADS,)], DELTA)
    assert max(found.alone) < found.two < found.all


def test_a_plan_is_priced_for_a_patient_of_two_and_of_three_of_its_hospitals():
    for silos, asked in ((2, {2}), (3, {2, 3}), (256, {2, 3})):
        assert of_plan(LEDGER, silos, DELTA) == {many: epsilon([LEDGER] * many, DELTA) for many in asked}


def test_who_has_released_nothing_adds_nothing():
    found = bound([LEDGER, ()], DELTA)
    assert found.alone[1] == 0.0
    assert found.all == pytest.approx(found.alone[0], rel=0.01)
    assert bound([(), ()], DELTA).all == 0.0


def test_public_data_without_noise_are_unbounded():
    assert math.isinf(bound([LEDGER, (Cost("training", 1.0, 0.0, 1),)], DELTA).all)


@given(st.lists(st.lists(plain, max_size=4), min_size=2, max_size=4))
@settings(max_examples=60, deadline=None)
def test_more_hospitals_never_cost_less_and_never_more_than_everything_at_once(ledgers):
    found = bound(ledgers, DELTA)
    assert max(found.alone) <= found.two * (1 + 1e-9) or found.two == found.all
    assert max(found.alone) <= found.all * (1 + 1e-9)
    assert found.two <= found.all
    mu = sum(math.sqrt(sum(c.count / c.noise**2 for c in costs)) for costs in ledgers)
    assert found.all <= (accountant.gaussian_epsilon(mu, DELTA) if mu else 0.0) * (1 + 1e-9)


def test_many_hospitals_are_priced_by_something_simpler_and_larger():
    ledgers = [(Cost("training", 1.0, 100.0 + i, 1), Cost("evaluation", 1.0, 90.0, 1)) for i in range(40)]
    found = bound(ledgers, DELTA)
    assert found.two == found.all
    chosen = accountant.gaussian_epsilon(sum(1 / 90.0 for _ in ledgers), DELTA)
    together = sum(math.sqrt(1 / (100.0 + i) ** 2 + 1 / 90.0**2) for i in range(40))
    assert chosen < found.all == pytest.approx(accountant.gaussian_epsilon(together, DELTA))


@pytest.mark.parametrize("count", [0, 1, 257])
def test_a_statement_is_of_two_to_256_hospitals(count):
    with pytest.raises(CostError, match="give those of 2 to 256 hospitals"):
        bound([LEDGER] * count, DELTA)


@pytest.mark.parametrize(("hospitals", "share"), [(2, 1.82), (3, 1.16)])
def test_a_target_for_all_divides_mu_and_not_epsilon(hospitals, share):
    """The figures of docs/privacy.md: a target of 4 at delta 1e-5."""

    def together(each: float) -> float:
        noise = brentq(lambda noise: accountant.epsilon([Cost("training", 1.0, noise, 1)], 1e-5) - each, 0.5, 50)
        return bound([[Cost("training", 1.0, noise, 1)]] * hospitals, 1e-5).all

    assert 3.97 < together(share) <= 4 < together(share + 0.02)
    assert together(4 / hospitals) > 4.38


def test_a_sum_beyond_floats_is_without_bound():
    loud = [Cost("training", 1.0, 1e-154, 1), Cost("training", 1.0, 1.01e-154, 1)]
    assert bound([loud, LEDGER], DELTA).all == math.inf
