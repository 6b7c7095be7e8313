import os
import pickle
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from silo_agent.data.columns import ahead as ahead_module
from silo_agent.data.columns.ahead import WINDOW, WorkAhead


def doubled(key):
    if key < 0:
        raise KeyError(key)
    return 2 * key


def asked(ahead, keys):
    found = []
    for key in keys:
        try:
            found.append(ahead.get(key))
        except KeyError:
            found.append(None)
    return found


@given(st.lists(st.integers(-3, 30), max_size=40), st.lists(st.integers(-3, 30), max_size=40))
def test_each_result_is_that_of_its_key_whatever_was_expected(expected, keys):
    ahead = WorkAhead(doubled)
    ahead.expect(expected)
    alone = [None if key < 0 else 2 * key for key in keys]
    assert asked(ahead, keys) == alone
    ahead.expect(keys)
    assert asked(ahead, keys) == alone


def test_work_is_done_before_it_is_asked_for_and_no_more_of_it_than_may_wait():
    done, enough = [], threading.Event()

    def work(key):
        done.append(key)
        if len(done) == WINDOW:
            enough.set()
        return key

    ahead = WorkAhead(work)
    ahead.expect(range(1000))
    assert enough.wait(30)
    assert sorted(done) == list(range(WINDOW))
    assert (ahead.has(0), ahead.has(WINDOW)) == (True, False)
    assert [ahead.get(key) for key in range(1000)] == list(range(1000))
    assert sorted(done) == list(range(1000)), "each once"


def test_work_that_fails_beside_other_work_is_done_again_alone():
    """A file that takes all memory must not cost another patient's image its place."""
    going, lock, beside = [0], threading.Lock(), threading.Barrier(2)

    def work(key):
        with lock:
            going[0] += 1
        try:
            if threading.current_thread() is not threading.main_thread():
                beside.wait(30)
                raise MemoryError
            assert going[0] == 1, "nothing else is going on"
            if key == "large":
                raise MemoryError
            return key
        finally:
            with lock:
                going[0] -= 1

    ahead = WorkAhead(work)
    ahead.expect(["large", "small"])
    with pytest.raises(MemoryError):
        ahead.get("large")
    assert ahead.get("small") == "small"


def test_what_nobody_expects_any_more_is_waited_for_too():
    """It may be what took the memory."""
    begun, release, done = threading.Event(), threading.Event(), []

    def slow(key):
        begun.set()
        release.wait(30)
        done.append(key)

    dropped = WorkAhead(slow)
    dropped.expect(["dropped"])
    assert begun.wait(30)
    dropped.expect([])
    threading.Timer(0.2, release.set).start()

    def failing(key):
        if threading.current_thread() is not threading.main_thread():
            raise MemoryError
        return list(done)

    other = WorkAhead(failing)
    other.expect([1])
    assert other.get(1) == ["dropped"]


def test_it_goes_to_another_process_without_what_waits():
    ahead = WorkAhead(doubled)
    ahead.expect([1, 2])
    there = pickle.loads(pickle.dumps(ahead))  # noqa: S301  # our own
    assert (there.has(1), there.get(1)) == (False, 2)


def test_what_was_expected_before_makes_room_for_what_is_expected_now():
    ahead = WorkAhead(doubled)
    ahead.expect(range(WINDOW))
    ahead.expect(range(100, 100 + WINDOW))
    assert [ahead.has(key) for key in (0, WINDOW - 1, 100, 99 + WINDOW)] == [False, False, True, True]
    assert ahead.get(0) == 0


def test_a_process_has_one_pool_of_its_own(monkeypatch):
    seen, pool = [], ahead_module._pool
    monkeypatch.setattr(ahead_module, "_pool", lambda process: seen.append(process) or pool(process))
    ahead = WorkAhead(doubled)
    ahead.expect([1, 2])
    assert set(seen) == {os.getpid()}
    assert pool(os.getpid()) is pool(os.getpid())
