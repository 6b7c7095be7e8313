"""Seeds in processes of this machine, side by side; or the silos of one seed, where there are fewer seeds."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

from deploy.local.simulate.engines.placed import place, taken
from deploy.local.simulate.engines.task import Done, SeedTask, until_done, work
from deploy.local.simulate.groups import FILES_IN, Founding, Group, Groups, T, memory_folder
from deploy.local.simulate.outcome import RunMetrics
from silo_agent.learning.device import limit_threads

_TASKS: list[SeedTask[RunMetrics]] = []
"""What a worker's process works on, handed over once."""
_GROUPS: list[Group] = []
"""The silos that a worker's process holds, of one seed."""


class Processes:
    """`workers` processes at most. Records are in memory once for all of them, so the task must be picklable.

    A script that calls this needs the usual `if __name__ == "__main__"`.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers

    def each(self, task: SeedTask[RunMetrics], seeds: Sequence[int], done: Done) -> None:
        """As `SeedEngine.each`."""
        until_done(seeds, done, partial(_at_once, task, self._workers))


def _at_once(task: SeedTask[RunMetrics], workers: int, seeds: Sequence[int], done: Done) -> None:
    """Work on seeds until all are done, or a worker is lost: its files are removed here, for it cannot."""
    with tempfile.TemporaryDirectory(prefix="fedward-simulate-", dir=memory_folder()) as root:
        spread = task.spreads(len(seeds), workers)
        (_silos_side_by_side if spread else _side_by_side)(task, workers, Path(root), seeds, done)


def _side_by_side(task: SeedTask[RunMetrics], workers: int, root: Path, seeds: Sequence[int], done: Done) -> None:
    """A worker that is lost takes all others with it, as `concurrent.futures` has it."""
    placed = root / "task"
    placed.mkdir()
    place(placed, task)
    with _pool(min(workers, len(seeds)), partial(_begin, root, placed)) as pool:
        begun = {pool.submit(_work_here, seed): seed for seed in seeds}
        try:
            for future in as_completed(begun):
                with suppress(BrokenProcessPool):
                    done(begun[future], future.result())
        except BaseException:
            # Whoever ends a run by hand, or a seed that fails, waits for no seed that was not begun.
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _silos_side_by_side(task: SeedTask[RunMetrics], workers: int, root: Path, seeds: Sequence[int], done: Done) -> None:
    """One seed after the other, its silos in as many processes as there are workers."""
    with suppress(BrokenProcessPool), ExitStack() as stack:
        pools = [stack.enter_context(_pool(1, partial(_keep_files_in, root))) for _ in range(workers)]
        for seed in seeds:
            done(seed, work(task.over(partial(_hosts, pools)), seed))


@contextmanager
def _hosts(pools: Sequence[ProcessPoolExecutor], founding: Founding) -> Iterator[Groups]:
    parts = founding.parts(len(pools))
    used = _Elsewhere(pools[: len(parts)])
    used.answers([pool.submit(_found, part) for pool, part in zip(pools, parts, strict=False)])
    yield used


class _Elsewhere:
    """Groups of silos, each in the one process of a pool."""

    def __init__(self, pools: Sequence[ProcessPoolExecutor]) -> None:
        self._pools = pools

    def ask(self, call: Callable[[Group], T]) -> list[T]:
        return self.answers([pool.submit(_asked, call) for pool in self._pools])

    @staticmethod
    def answers(begun: Sequence[Future[T]]) -> list[T]:
        return [future.result() for future in begun]


def _pool(workers: int, begin: Callable[[], object]) -> ProcessPoolExecutor:
    # A fork would copy torch's threads in the middle of what they do.
    return ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), initializer=begin)


def _begin(root: Path, placed: Path) -> None:
    _keep_files_in(root)
    _TASKS[:] = [taken(placed)]


def _keep_files_in(root: Path) -> None:
    os.environ[FILES_IN] = str(root)


def _work_here(seed: int) -> RunMetrics:
    return work(_TASKS[0], seed)


def _found(part: Founding) -> None:
    """Hold these silos, and no longer those of the seed before."""
    limit_threads(1)
    for group in _GROUPS:
        group.close()
    _GROUPS[:] = [Group(part)]


def _asked(call: Callable[[Group], T]) -> T:
    return call(_GROUPS[0])
