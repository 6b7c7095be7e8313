"""Many seeds, one after the other or side by side."""

import sys

import numpy as np
import pytest

from deploy.local.simulate import many
from deploy.local.simulate.made_up_records import MadeUp
from deploy.local.simulate.many import each_seed, simulate_seeds
from deploy.local.simulate.outcome import RunMetrics, measure
from support.studies import tiny_study

SOURCE = MadeUp(patients=40, test=200)


def guess(study, cohorts, *, seed):
    """Says one half of everybody."""
    return RunMetrics(study, seed, *measure(study, cohorts.measured, [np.full((200, 2), 0.5)]))


def test_every_seed_gives_a_result_in_its_order():
    heard = []
    found = each_seed(guess, tiny_study(), SOURCE, (5, 3), done=lambda: heard.append(len(heard)))
    assert [run.seed for run in found] == [5, 3]
    assert heard == [0, 1]
    assert {run.mean for run in found} == {0.5}


class Here:
    """Workers in this process, one after the other."""

    made = ()

    def __init__(self, workers, context, *, initializer, initargs):
        assert context.get_start_method() == "spawn"
        Here.made = (*Here.made, workers)
        initializer(*initargs)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        many._TASKS.clear()

    def map(self, work, seeds):
        return map(work, seeds)


@pytest.mark.parametrize(
    ("workers", "seeds", "made"), [(2, (5, 3, 4), 2), (8, (5, 3), 2), (2, (5,), None), (1, (5, 3), None)]
)
def test_no_more_workers_are_made_than_there_are_seeds_and_none_for_one(monkeypatch, workers, seeds, made):
    threads, heard = [], []
    monkeypatch.setattr(many, "ProcessPoolExecutor", Here)
    monkeypatch.setattr(many, "limit_threads", threads.append)
    monkeypatch.setattr(Here, "made", ())
    found = each_seed(guess, tiny_study(), SOURCE, seeds, workers=workers, done=lambda: heard.append(len(heard)))
    assert tuple(run.seed for run in found) == seeds
    assert Here.made == (() if made is None else (made,))
    assert (threads, heard) == ([1], list(range(len(seeds))))


@pytest.mark.slow
def test_workers_change_no_bit(monkeypatch, tmp_path):
    # A worker imports the main script again, and some scripts that start pytest would begin the tests again.
    (tmp_path / "main.py").touch()
    main = sys.modules["__main__"]
    monkeypatch.setattr(main, "__file__", str(tmp_path / "main.py"), raising=False)
    monkeypatch.setattr(main, "__spec__", None)
    study = tiny_study()
    one, two = (simulate_seeds(study, SOURCE, (1, 2, 3), workers=workers) for workers in (1, 2))
    assert [run.model.digest for run in one] == [run.model.digest for run in two]
    assert [run.exact for run in one] == [run.exact for run in two]
