"""The same for many seeds, in parallel processes."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from deploy.local.simulate.engine import simulate
from deploy.local.simulate.errors import SimulationError
from deploy.local.simulate.outcome import Outcome, RunMetrics
from deploy.local.simulate.silos import Cohorts, Source
from policies.documents.study import Study
from silo_agent.learning.device import limit_threads

MOST_LOST: Final = 3
M_co = TypeVar("M_co", bound=RunMetrics, covariant=True)


class Run(Protocol[M_co]):
    """What is done for one seed: `engine.simulate`, `alone.alone`, or a function of a bench's own module."""

    def __call__(self, study: Study, cohorts: Cohorts, *, seed: int) -> M_co:
        """Measure one seed."""
        ...


class _Task(NamedTuple, Generic[M_co]):
    run: Run[M_co]
    study: Study
    source: Source


_TASKS: list[_Task[RunMetrics]] = []
"""What a worker's process works on, handed over once."""


def simulate_seeds(study: Study, source: Source, seeds: Sequence[int], *, workers: int = 1) -> tuple[Outcome, ...]:
    """The study's outcome for each seed, in their order (`each_seed`)."""
    return each_seed(simulate, study, source, seeds, workers=workers)


def each_seed(
    run: Run[M_co],
    study: Study,
    source: Source,
    seeds: Sequence[int],
    *,
    workers: int = 1,
    done: Callable[[], object] = lambda: None,
) -> tuple[M_co, ...]:
    """One result for each seed, in their order; the number of workers changes none of them.

    `source` gives the records of each seed. It is copied to every worker once, so it must be picklable, and so must
    `run`; with more than one worker a script that calls this needs the usual `if __name__ == "__main__"`. Each process
    uses one CPU thread: the matrices of a study are small, and threads would wait for each other. `done` is called
    after each seed, as soon as it is done. What a worker that was lost had to do is done again. Raises
    `SimulationError` if workers are lost `MOST_LOST` times without a result in between: the machine lacks memory.
    """
    task, found = _Task(run, study, source), list[M_co]()
    if workers <= 1 or len(seeds) <= 1:
        limit_threads(1)
        for seed in seeds:
            found.append(_work(task, seed))
            done()
        return tuple(found)
    results, lost = dict[int, RunMetrics](), 0
    while len(results) < len(seeds):
        before = len(results)
        _side_by_side(task, [seed for seed in seeds if seed not in results], workers, results, done)
        lost = 0 if len(results) > before else lost + 1
        if lost == MOST_LOST:
            left = [seed for seed in seeds if seed not in results]
            msg = (
                f"worker processes ended {lost} times before any of the {len(left)} seeds that are left was done; most"
                " likely the machine lacks memory: use fewer --workers, or fewer records"
            )
            raise SimulationError(msg)
    return tuple(results[seed] for seed in seeds)  # type: ignore[misc]  # what `run` gives


def _side_by_side(
    task: _Task[M_co], seeds: Sequence[int], workers: int, results: dict[int, RunMetrics], done: Callable[[], object]
) -> None:
    """Work on seeds until all are done, or a worker is lost, with which `concurrent.futures` ends all others."""
    # A fork would copy torch's threads in the middle of what they do.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(workers, len(seeds)), context, initializer=_begin, initargs=(task,)) as pool:
        begun = {pool.submit(_work_here, seed): seed for seed in seeds}
        try:
            for future in as_completed(begun):
                with suppress(BrokenProcessPool):
                    results[begun[future]] = future.result()
                    done()
        except BaseException:
            # Whoever ends a run by hand, or a seed that fails, waits for no seed that was not begun.
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _begin(task: _Task[RunMetrics]) -> None:
    limit_threads(1)
    _TASKS[:] = [task]


def _work_here(seed: int) -> RunMetrics:
    return _work(_TASKS[0], seed)


def _work(task: _Task[M_co], seed: int) -> M_co:
    return task.run(task.study, task.source.draw(task.study, seed), seed=seed)
