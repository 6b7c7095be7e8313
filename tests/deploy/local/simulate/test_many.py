"""Many seeds, one after the other or side by side."""

import pytest

from deploy.local.simulate import many
from deploy.local.simulate.engine import simulate
from deploy.local.simulate.engines import task
from deploy.local.simulate.many import each_seed, simulate_seeds
from support.simulated import SOURCE, guess
from support.studies import tiny_study


def test_every_seed_gives_a_result_in_its_order(monkeypatch):
    heard, threads = [], []
    monkeypatch.setattr(task, "limit_threads", threads.append)
    found = each_seed(guess, tiny_study(), SOURCE, (5, 3), done=lambda: heard.append(len(heard)))
    assert [run.seed for run in found] == [5, 3]
    assert (heard, threads) == ([0, 1], [1, 1])
    assert {run.mean for run in found} == {0.5}


def test_a_study_is_simulated_for_each_seed():
    study = tiny_study()
    (found,) = simulate_seeds(study, SOURCE, (4,))
    assert found.model.digest == simulate(study, SOURCE.draw(study, 4), seed=4).model.digest


class Backwards:
    """An engine that is done with the last seed first."""

    def each(self, asked, seeds, done):
        for seed in reversed(seeds):
            done(seed, task.work(asked, seed))


def test_results_are_in_the_order_of_the_seeds_whoever_is_done_first():
    heard = []
    found = each_seed(guess, tiny_study(), SOURCE, (5, 3, 4), engine=Backwards(), done=lambda: heard.append(1))
    assert [run.seed for run in found] == [5, 3, 4]
    assert len(heard) == 3


@pytest.mark.parametrize(("workers", "seeds", "made"), [(2, (5, 3), [2]), (2, (5,), [2]), (1, (5, 3), [])])
def test_processes_are_for_several_workers(monkeypatch, workers, seeds, made):
    asked = []
    monkeypatch.setattr(many, "Processes", lambda count: asked.append(count) or Backwards())
    found = each_seed(guess, tiny_study(), SOURCE, seeds, workers=workers)
    assert [run.seed for run in found] == list(seeds)
    assert asked == made
