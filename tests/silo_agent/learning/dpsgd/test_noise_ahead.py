import threading

import numpy as np
import pytest

from silo_agent.learning.dpsgd.noise_ahead import Ahead


def test_vectors_come_in_order_each_made_while_the_one_before_is_used():
    made, ready = [], threading.Event()

    def make():
        made.append(len(made))
        if len(made) == 2:
            ready.set()
        return np.array([made[-1]])

    with Ahead(make, 3) as ahead:
        assert ahead.take().tolist() == [0]
        assert ready.wait(30), "the second is made before anybody asks for it"
        assert made == [0, 1], "and the third is not"
        assert [ahead.take().tolist() for _ in range(2)] == [[1], [2]]
        with pytest.raises(LookupError, match="no more steps than were charged"):
            ahead.take()
    assert made == [0, 1, 2]


def test_what_making_raises_is_raised_by_who_takes():
    def make():
        raise MemoryError

    with Ahead(make, 2) as ahead, pytest.raises(MemoryError):
        ahead.take()


def test_a_training_that_ends_early_leaves_no_thread():
    before = threading.active_count()
    with pytest.raises(ZeroDivisionError), Ahead(lambda: np.zeros(1, np.int64), 9):
        raise ZeroDivisionError
    assert threading.active_count() == before
