"""One certificate has few calls in flight, and takes none of another's."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from coordinator.door.seats import CALLS, LONG, LONG_CALLS, Seats

METHODS = [*sorted(LONG), "Heartbeat", "Confirm"]


def test_long_calls_of_one_method_are_fewer_than_all_calls():
    seats = Seats()
    assert [seats.take("silo/a", "Witness") for _ in range(4)] == [True] * LONG_CALLS + [False] * 2
    assert [seats.take("silo/a", "Heartbeat") for _ in range(9)].count(True) == CALLS - LONG_CALLS
    assert seats.taken("silo/a") == CALLS
    assert not seats.take("silo/a", "Confirm")
    assert seats.take("silo/b", "Witness"), "another certificate is not concerned"
    seats.leave("silo/a", "Witness")
    assert seats.take("silo/a", "Witness")


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(METHODS), st.booleans()), max_size=80))
def test_what_is_taken_is_never_above_the_limits_and_all_comes_back(steps):
    seats, held = Seats(), []
    for caller, method, comes in steps:
        if comes and seats.take(caller, method):
            held.append((caller, method))
        elif not comes and (caller, method) in held:
            held.remove((caller, method))
            seats.leave(caller, method)
        for one in "abc":
            mine = [name for other, name in held if other == one]
            assert seats.taken(one) == len(mine) <= CALLS
            assert all(mine.count(name) <= LONG_CALLS for name in LONG)
    for call in held:
        seats.leave(*call)
    assert not seats._taken, "who has no call left is not kept"
    assert not seats._by_method
    assert [seats.taken(caller) for caller in "abc"] == [0, 0, 0]
