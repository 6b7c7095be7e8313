"""One study with many seeds, in parallel processes."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple

from deploy.local.simulate.engine import simulate
from deploy.local.simulate.outcome import Outcome
from deploy.local.simulate.silos import Source
from policies.documents.study import Study
from silo_agent.learning.device import limit_threads


class _Task(NamedTuple):
    study: Study
    source: Source
    device: str


_TASKS: list[_Task] = []
"""What a worker's process works on, handed over once."""


def simulate_seeds(
    study: Study,
    source: Source,
    seeds: Sequence[int],
    *,
    workers: int = 1,
    device: str = "cpu",
    done: Callable[[], object] = lambda: None,
) -> tuple[Outcome, ...]:
    """One outcome for each seed, in their order; the number of workers changes none of them.

    `source` gives the records of each seed; it is copied to every worker once, so it must be picklable. With more than
    one worker a script that calls this needs the usual `if __name__ == "__main__"`. Each process uses one CPU thread:
    the matrices of a study are small, and threads would wait for each other. `done` is called after each seed.
    """
    if workers <= 1 or len(seeds) <= 1:
        limit_threads(1)
        outcomes = []
        for seed in seeds:
            outcomes.append(_run(_Task(study, source, device), seed))
            done()
        return tuple(outcomes)
    # A fork would copy torch's threads in the middle of what they do.
    context = multiprocessing.get_context("spawn")
    workers = min(workers, len(seeds))
    with ProcessPoolExecutor(workers, context, initializer=_begin, initargs=(_Task(study, source, device),)) as pool:
        outcomes = []
        for outcome in pool.map(_run_here, seeds):
            outcomes.append(outcome)
            done()
    return tuple(outcomes)


def _begin(task: _Task) -> None:
    limit_threads(1)
    _TASKS[:] = [task]


def _run_here(seed: int) -> Outcome:
    return _run(_TASKS[0], seed)


def _run(task: _Task, seed: int) -> Outcome:
    return simulate(task.study, task.source.draw(task.study, seed), seed=seed, device=task.device)
