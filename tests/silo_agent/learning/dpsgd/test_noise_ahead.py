import threading
import time
from itertools import count

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from silo_agent.learning.dpsgd import noise_ahead
from silo_agent.learning.dpsgd.noise_ahead import Ahead
from silo_agent.learning.dpsgd.rounded_gaussian import _CHUNK


def taken(ahead, values):
    return np.concatenate([np.zeros(0, np.int64), *ahead.take(values)]).tolist()


def test_vectors_come_in_order_each_made_while_the_one_before_is_used():
    made, ready = [], threading.Event()

    def make(values):
        made.append(len(made))
        if len(made) == 2:
            ready.set()
        return np.full(values, made[-1])

    with Ahead(make, 1, 3) as ahead:
        assert taken(ahead, 1) == [0]
        assert ready.wait(30), "the second is made before anybody asks for it"
        assert made == [0, 1], "and the third is not"
        assert [taken(ahead, 1) for _ in range(2)] == [[1], [2]]
        with pytest.raises(LookupError, match="no more steps than were charged"):
            ahead.take(1)
    assert made == [0, 1, 2]


@given(st.integers(0, 40), st.integers(0, 4), st.data())
def test_whatever_is_taken_at_once_the_values_are_those_that_were_made(values, vectors, data):
    numbers, sizes = count(), []

    def make(size):
        sizes.append(size)
        return np.array([next(numbers) for _ in range(size)])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(noise_ahead, "PIECE", 8)
        patch.setattr(noise_ahead, "READY", 16)
        with Ahead(make, values, vectors) as ahead:
            found = []
            while len(found) < values * vectors:
                some = data.draw(st.integers(1, values * vectors - len(found)))
                found += taken(ahead, some)
                ready = sum(sizes) - len(found)
                assert ready <= min(16, values) + 2 * min(8, values), "little more than may lie ready"
    assert found == list(range(values * vectors))
    assert sizes == [min(8, values - begin) for _ in range(vectors) for begin in range(0, values, 8)]


def test_one_piece_is_made_at_a_time_because_all_come_from_one_stream(monkeypatch):
    monkeypatch.setattr(noise_ahead, "PIECE", 1)
    making = threading.Lock()

    def make(size):
        assert making.acquire(blocking=False)
        time.sleep(0.001)
        making.release()
        return np.zeros(size, np.int64)

    with Ahead(make, 20, 2) as ahead:
        assert taken(ahead, 40) == [0] * 40


def test_what_nobody_will_take_is_not_made(monkeypatch):
    monkeypatch.setattr(noise_ahead, "PIECE", 1)
    made, goes_on = [], threading.Event()

    def make(size):
        made.append(size)
        goes_on.wait(30)
        return np.zeros(size, np.int64)

    threading.Timer(0.2, goes_on.set).start()
    with pytest.raises(ZeroDivisionError), Ahead(make, 9, 1):
        raise ZeroDivisionError
    assert len(made) <= 1, "eight more were asked for"


def test_pieces_are_whole_chunks_of_the_sampler():
    assert noise_ahead.PIECE % _CHUNK == 0, "else a long vector would have other values than one that is drawn at once"


def test_what_making_raises_is_raised_by_who_takes():
    def make(_):
        raise MemoryError

    with Ahead(make, 1, 2) as ahead, pytest.raises(MemoryError):
        taken(ahead, 1)


def test_a_training_that_ends_early_leaves_no_thread():
    before = threading.active_count()
    with pytest.raises(ZeroDivisionError), Ahead(lambda values: np.zeros(values, np.int64), 1, 9):
        raise ZeroDivisionError
    assert threading.active_count() == before
