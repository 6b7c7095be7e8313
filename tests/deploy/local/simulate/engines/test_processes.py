"""Seeds in processes of this machine."""

import os
import sys
from concurrent.futures import Future
from operator import attrgetter
from pathlib import Path

import pytest

from deploy.local.simulate.engines import processes
from deploy.local.simulate.engines.processes import Processes
from deploy.local.simulate.engines.task import SeedTask
from deploy.local.simulate.errors import SimulationError
from deploy.local.simulate.groups import FILES_IN, Founding
from deploy.local.simulate.many import each_seed, simulate_seeds
from support.simulated import SOURCE, Dying, Falling, failing, guess
from support.studies import tiny_study


class Here:
    """Workers in this process, one after the other."""

    made = ()

    def __init__(self, workers, context, *, initializer):
        assert context.get_start_method() == "spawn"
        Here.made = (*Here.made, workers)
        initializer()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        processes._TASKS.clear()

    def shutdown(self, **how):
        Here.made = (*Here.made, how)

    def submit(self, work, given):
        future = Future()
        future.set_result(work(given))
        return future


@pytest.fixture
def here(monkeypatch):
    monkeypatch.setattr(processes, "ProcessPoolExecutor", Here)
    monkeypatch.setattr(Here, "made", ())
    monkeypatch.setenv(FILES_IN, "nowhere")  # and as it was afterwards
    monkeypatch.setattr(processes, "_GROUPS", [])


@pytest.mark.parametrize(("workers", "seeds", "made"), [(2, (5, 3, 4), 2), (8, (5, 3), 2), (1, (5,), 1)])
@pytest.mark.usefixtures("here")
def test_no_more_workers_are_made_than_there_are_seeds(workers, seeds, made):
    found = each_seed(guess, tiny_study(), SOURCE, seeds, engine=Processes(workers))
    assert [run.seed for run in found] == list(seeds)
    assert Here.made == (made,)


@pytest.mark.usefixtures("here")
def test_where_there_are_few_seeds_the_silos_of_one_are_side_by_side(monkeypatch):
    """One process for each worker; it holds the silos of one seed at a time, and its files are removed with the run."""
    held, study = [], tiny_study()
    found = processes._found

    def noted(part):
        found(part)
        root = Path(os.environ[FILES_IN])
        held.append((list(part.silos), len(processes._GROUPS) * len(list(root.iterdir())), root))

    monkeypatch.setattr(processes, "_found", noted)
    there = each_seed(whole, study, SOURCE, (1, 2), engine=Processes(4))
    assert Here.made == (1, 1, 1, 1)
    assert [names for names, _, _ in held] == [["north"], ["south"], ["west"]] * 2
    assert {count for _, count, _ in held} == {1}
    (root,) = {root for _, _, root in held}
    assert root.name.startswith("fedward-simulate-")
    assert not root.exists()
    assert [run.seed for run in there] == [1, 2]


@pytest.mark.usefixtures("here")
def test_groups_answer_what_they_are_asked():
    answers = []

    def one_silo(study, cohorts, *, seed, hosts):
        silos = {"north": cohorts.silos["north"]}
        with hosts(Founding(study, silos, seed, "cpu", 1)) as groups:
            answers.append(groups.ask(attrgetter("_leads")))
        return guess(study, cohorts, seed=seed)

    each_seed(one_silo, tiny_study(), SOURCE, (1,), engine=Processes(2))
    assert answers == [[True]]


@pytest.mark.parametrize("raised", [KeyboardInterrupt, ValueError])
@pytest.mark.usefixtures("here")
def test_whoever_ends_a_run_waits_for_no_seed_that_was_not_begun(raised):
    def ends(_seed, _result):
        raise raised

    with pytest.raises(raised):
        Processes(2).each(SeedTask(guess, tiny_study(), SOURCE), (1, 2, 3), ends)
    assert Here.made == (2, {"wait": False, "cancel_futures": True})


def whole(study, cohorts, *, seed, hosts):
    """Founds its groups, and no more."""
    with hosts(Founding(study, cohorts.silos, seed, "cpu", len(cohorts.silos))):
        return guess(study, cohorts, seed=seed)


@pytest.fixture
def main(monkeypatch, tmp_path):
    """A worker imports the main script again, and some scripts that start pytest would begin the tests again."""
    (tmp_path / "main.py").touch()
    main = sys.modules["__main__"]
    monkeypatch.setattr(main, "__file__", str(tmp_path / "main.py"), raising=False)
    monkeypatch.setattr(main, "__spec__", None)


@pytest.mark.slow
@pytest.mark.usefixtures("main")
def test_what_a_worker_that_is_lost_had_to_do_is_done_again(tmp_path):
    heard, seeds = [], (4, 2, 9, 7)
    run = Dying(tmp_path, {2: 2, 7: 1})
    found = each_seed(run, tiny_study(), SOURCE, seeds, workers=2, done=lambda: heard.append(1))
    alone = each_seed(Dying(tmp_path, {}), tiny_study(), SOURCE, seeds)
    assert [one.seed for one in found] == list(seeds)
    assert [one.exact for one in found] == [one.exact for one in alone]
    assert len(heard) == 4, "each is told once"
    assert len(list(tmp_path.glob("[27] [01]"))) == 3


@pytest.mark.slow
@pytest.mark.usefixtures("main")
def test_workers_that_are_lost_again_and_again_end_the_run_with_a_sentence(tmp_path):
    with pytest.raises(SimulationError, match=r"ended 3 times before any of the 2 seeds that are left.*fewer --work"):
        each_seed(Dying(tmp_path, {1: 9, 2: 9}), tiny_study(), SOURCE, (1, 2), workers=2)


@pytest.mark.slow
@pytest.mark.usefixtures("main")
def test_a_seed_that_fails_ends_the_run():
    with pytest.raises(ValueError, match=r"1|2"):
        each_seed(failing, tiny_study(), SOURCE, (1, 2), workers=2)


@pytest.mark.slow
@pytest.mark.usefixtures("main")
@pytest.mark.parametrize("seeds", [(1, 2, 3), (1,)], ids=["seeds", "silos"])
def test_workers_change_no_bit_whether_seeds_or_silos_are_side_by_side(seeds):
    study = tiny_study()
    one, two = (simulate_seeds(study, SOURCE, seeds, workers=workers) for workers in (1, 2))
    assert [run.model.digest for run in one] == [run.model.digest for run in two]
    assert [run.exact for run in one] == [run.exact for run in two]


@pytest.mark.slow
@pytest.mark.usefixtures("main")
def test_a_seed_whose_silos_are_lost_with_their_worker_begins_again(monkeypatch, tmp_path):
    monkeypatch.setattr(processes, "memory_folder", lambda: tmp_path)
    (tmp_path / "marks").mkdir()
    run = Falling(tmp_path / "marks", {2})
    found = each_seed(run, tiny_study(), SOURCE, (1, 2), engine=Processes(4))
    assert [one.model.digest for one in found] == [
        one.model.digest for one in simulate_seeds(tiny_study(), SOURCE, (1, 2))
    ]
    assert [path.name for path in (tmp_path / "marks").iterdir()] == ["silos of 2"]
    assert not list(tmp_path.glob("fedward-*")), "no file of the lost worker is left"
