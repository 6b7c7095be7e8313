"""Many seeds, one after the other or side by side."""

import os
import signal
import sys
from concurrent.futures import Future

import numpy as np
import pytest

from deploy.local.simulate import many
from deploy.local.simulate.errors import SimulationError
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

    def submit(self, work, seed):
        future = Future()
        future.set_result(work(seed))
        return future

    def shutdown(self, **_):
        pass


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


@pytest.fixture
def main(monkeypatch, tmp_path):
    """A worker imports the main script again, and some scripts that start pytest would begin the tests again."""
    (tmp_path / "main.py").touch()
    main = sys.modules["__main__"]
    monkeypatch.setattr(main, "__file__", str(tmp_path / "main.py"), raising=False)
    monkeypatch.setattr(main, "__spec__", None)


class Dying:
    """A run in which the worker that comes first to some seeds is killed, as the system does where memory lacks.

    `often` says how many times for each of these seeds.
    """

    def __init__(self, folder, often):
        self.folder, self.often = folder, often

    def __call__(self, study, cohorts, *, seed):
        for time in range(self.often.get(seed, 0)):
            mark = self.folder / f"{seed} {time}"
            if not mark.exists():
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)
        return RunMetrics(study, seed, *measure(study, cohorts.measured, [np.full((200, 2), 1 / (1 + seed))]))


@pytest.mark.slow
def test_what_a_worker_that_is_lost_had_to_do_is_done_again(main, tmp_path):
    heard, seeds = [], (4, 2, 9, 7)
    run = Dying(tmp_path, {2: 2, 7: 1})
    found = each_seed(run, tiny_study(), SOURCE, seeds, workers=2, done=lambda: heard.append(1))
    alone = each_seed(Dying(tmp_path, {}), tiny_study(), SOURCE, seeds)
    assert [one.seed for one in found] == list(seeds)
    assert [one.exact for one in found] == [one.exact for one in alone]
    assert len(heard) == 4, "each is told once"
    assert len(list(tmp_path.glob("[27] [01]"))) == 3


@pytest.mark.slow
def test_workers_that_are_lost_again_and_again_end_the_run_with_a_sentence(main, tmp_path):
    with pytest.raises(
        SimulationError, match=r"ended 3 times before any of the 2 seeds that are left.*fewer --workers"
    ):
        each_seed(Dying(tmp_path, {1: 9, 2: 9}), tiny_study(), SOURCE, (1, 2), workers=2)


def failing(study, cohorts, *, seed):
    raise ValueError(seed)


@pytest.mark.slow
def test_a_seed_that_fails_ends_the_run(main):
    with pytest.raises(ValueError, match=r"1|2"):
        each_seed(failing, tiny_study(), SOURCE, (1, 2), workers=2)


@pytest.mark.slow
def test_workers_change_no_bit(main):
    study = tiny_study()
    one, two = (simulate_seeds(study, SOURCE, (1, 2, 3), workers=workers) for workers in (1, 2))
    assert [run.model.digest for run in one] == [run.model.digest for run in two]
    assert [run.exact for run in one] == [run.exact for run in two]
