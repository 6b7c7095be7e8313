"""When the silos of one seed are spread over workers."""

from functools import partial

import pytest

from deploy.local.simulate.alone import alone
from deploy.local.simulate.engine import simulate
from deploy.local.simulate.engines.task import SeedTask
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


def test_a_spread_run_is_told_where_its_silos_are():
    told = []
    task = SeedTask(lambda *_, **named: told.append(named), tiny_study(), SOURCE).over("there")
    task.run(seed=3)
    assert told == [{"hosts": "there", "seed": 3}]
