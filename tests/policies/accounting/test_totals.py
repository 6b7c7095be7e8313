from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from policies.accounting.totals import beyond, largest, merged
from policies.plan.cost import MAX_COUNT, Cost

costs = st.lists(
    st.builds(
        Cost,
        st.sampled_from(["training", "evaluation"]),
        st.sampled_from([1.0, 0.1]),
        st.sampled_from([2.0, 5.0]),
        st.integers(1, 4),
    ),
    max_size=6,
)


def count(held, kind):
    return sum(cost.count for cost in held if (cost.cohort, cost.sampling_rate, cost.noise) == kind)


def kinds(*lists):
    return {(cost.cohort, cost.sampling_rate, cost.noise) for held in lists for cost in held}


@given(costs)
def test_merging_keeps_every_release_and_knows_no_order(held):
    found = merged(held)
    assert all(count(found, kind) == count(held, kind) for kind in kinds(held, found))
    assert len(found) == len(kinds(held))
    assert merged(reversed(held)) == merged(found) == found


@given(costs, costs)
def test_beyond_is_exactly_what_is_missing(more, less):
    missing = beyond(more, less)
    for kind in kinds(more, less, missing):
        assert count(missing, kind) == max(0, count(more, kind) - count(less, kind))


@given(costs, costs)
def test_the_largest_covers_both_and_no_more(one, other):
    most = largest((one, other))
    for kind in kinds(one, other, most):
        assert count(most, kind) == max(count(one, kind), count(other, kind))


def test_more_releases_than_one_cost_may_hold_are_kept():
    found = merged([Cost("training", 1.0, 9.0, MAX_COUNT), Cost("training", 1.0, 9.0, 5)])
    assert [cost.count for cost in found] == [MAX_COUNT, 5]
