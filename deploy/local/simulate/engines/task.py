"""What is computed for each seed, and who computes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from deploy.local.simulate.errors import SimulationError
from deploy.local.simulate.outcome import RunMetrics
from deploy.local.simulate.silos import Cohorts, Source
from policies.documents.study import Study
from silo_agent.learning.device import limit_threads

MOST_LOST: Final = 3
M_co = TypeVar("M_co", bound=RunMetrics, covariant=True)
Done = Callable[[int, RunMetrics], object]
"""Told of each result as soon as it is there, with its seed."""


class Run(Protocol[M_co]):
    """What is done for one seed: `engine.simulate`, `alone.alone`, or a function of a bench's own module."""

    def __call__(self, study: Study, cohorts: Cohorts, *, seed: int) -> M_co:
        """Measure one seed."""
        ...


class SeedTask(NamedTuple, Generic[M_co]):
    """A run, and the records that each seed draws."""

    run: Run[M_co]
    study: Study
    source: Source


class SeedEngine(Protocol):
    """Who computes seeds. The results are the same whoever it is, on one type of processor."""

    def each(self, task: SeedTask[RunMetrics], seeds: Sequence[int], done: Done) -> None:
        """Compute all seeds, in whatever order. What a lost worker had to do is done again.

        Raises what a seed raises, and `SimulationError` if workers are lost again and again.
        """
        ...


class Here:
    """In this process, one seed after the other."""

    def each(self, task: SeedTask[RunMetrics], seeds: Sequence[int], done: Done) -> None:
        """Compute all seeds in their order."""
        for seed in seeds:
            done(seed, work(task, seed))


def work(task: SeedTask[M_co], seed: int) -> M_co:
    """Compute one seed. One CPU thread: a study's matrices are small, and threads would wait for each other."""
    limit_threads(1)
    return task.run(task.study, task.source.draw(task.study, seed), seed=seed)


def lost(times: int, left: int) -> SimulationError:
    """What to say where workers are lost again and again."""
    return SimulationError(
        f"worker processes ended {times} times before any of the {left} seeds that are left was done; most likely the"
        " machine lacks memory: use fewer --workers, or fewer records"
    )
