"""When the silos of one seed are spread over workers."""

from functools import partial

import pytest

from deploy.local.simulate.alone import alone
from deploy.local.simulate.engine import simulate
from deploy.local.simulate.engines import task
from deploy.local.simulate.engines.task import Here, SeedTask, WorkersLost, until_done
from deploy.local.simulate.errors import SimulationError
from support.simulated import SOURCE, guess
from support.studies import tiny_study


@pytest.mark.parametrize(
    ("seeds", "workers", "spread"),
    [(1, 1, False), (1, 2, True), (2, 3, False), (2, 4, True), (20, 4, False), (1, 0, False)],
)
def test_silos_are_spread_where_half_of_the_workers_would_have_no_seed(seeds, workers, spread):
    for run in (simulate, partial(simulate, ensemble=True)):
        assert SeedTask(run, tiny_study(), SOURCE).spreads(seeds, workers) is spread
    for run in (alone, guess):
        assert not SeedTask(run, tiny_study(), SOURCE).spreads(seeds, workers)


def test_here_seeds_are_done_in_their_order(monkeypatch):
    monkeypatch.setattr(task, "limit_threads", lambda _: None)
    done = []
    Here().each(SeedTask(guess, tiny_study(), SOURCE), (3, 1), lambda seed, result: done.append((seed, result.seed)))
    assert done == [(3, 3), (1, 1)]


def ending(*plan):
    """An engine that does these seeds at each call, and raises what stands there in their place."""
    calls = iter(plan)

    def at_once(seeds, done):
        asked.append(seeds)
        for seed in next(calls):
            if isinstance(seed, int):
                done(seed, f"result {seed}")
            else:
                raise seed

    asked = []
    return at_once, asked


def test_what_was_lost_is_done_again_until_all_is_done():
    at_once, asked = ending([2], [], [], [3], [], [], [1])
    done = []
    until_done((1, 2, 3), lambda *told: done.append(told), at_once)
    assert done == [(2, "result 2"), (3, "result 3"), (1, "result 1")]
    assert asked == [(1, 2, 3), (1, 3), (1, 3), (1, 3), (1,), (1,), (1,)]


@pytest.mark.parametrize("plan", [([2], [], [], []), ([2], [WorkersLost()])], ids=["in vain", "told"])
def test_workers_that_are_lost_in_vain_end_the_run(plan):
    at_once, asked = ending(*plan)
    with pytest.raises(
        SimulationError, match=r"ended 3 times before any of the 1 seeds that are left.*--workers"
    ) as told:
        until_done((1, 2), lambda *_: None, at_once)
    assert len(asked) == len(plan)
    assert told.value.__cause__ is None


def test_what_a_seed_raises_ends_the_run():
    at_once, _ = ending([LookupError()])
    with pytest.raises(LookupError):
        until_done((1,), lambda *_: None, at_once)


def test_a_spread_run_is_told_where_its_silos_are():
    told = []
    there = SeedTask(lambda *_, **named: told.append(named), tiny_study(), SOURCE).over("there")
    there.run(seed=3)
    assert told == [{"hosts": "there", "seed": 3}]
