"""Seeds in processes of this machine, side by side."""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from functools import partial

from deploy.local.simulate.engines.task import Done, SeedTask, until_done, work
from deploy.local.simulate.outcome import RunMetrics

_TASKS: list[SeedTask[RunMetrics]] = []
"""What a worker's process works on, handed over once."""


class Processes:
    """`workers` processes at most. The task is copied to each of them once, so it must be picklable.

    A script that calls this needs the usual `if __name__ == "__main__"`.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers

    def each(self, task: SeedTask[RunMetrics], seeds: Sequence[int], done: Done) -> None:
        """As `SeedEngine.each`."""
        until_done(seeds, done, partial(self._side_by_side, task))

    def _side_by_side(self, task: SeedTask[RunMetrics], seeds: Sequence[int], done: Done) -> None:
        """Work on seeds until all are done, or a worker is lost, with which `concurrent.futures` ends all others."""
        # A fork would copy torch's threads in the middle of what they do.
        context = multiprocessing.get_context("spawn")
        workers = min(self._workers, len(seeds))
        with ProcessPoolExecutor(workers, context, initializer=_begin, initargs=(task,)) as pool:
            begun = {pool.submit(_work_here, seed): seed for seed in seeds}
            try:
                for future in as_completed(begun):
                    with suppress(BrokenProcessPool):
                        done(begun[future], future.result())
            except BaseException:
                # Whoever ends a run by hand, or a seed that fails, waits for no seed that was not begun.
                pool.shutdown(wait=False, cancel_futures=True)
                raise


def _begin(task: SeedTask[RunMetrics]) -> None:
    _TASKS[:] = [task]


def _work_here(seed: int) -> RunMetrics:
    return work(_TASKS[0], seed)
