"""What is computed for each seed, and who computes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from inspect import signature
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from deploy.local.simulate.errors import SimulationError
from deploy.local.simulate.groups import Hosts
from deploy.local.simulate.outcome import RunMetrics
from deploy.local.simulate.silos import Cohorts, Source
from policies.documents.study import Study
from silo_agent.learning.device import limit_threads

MOST_LOST: Final = 3
M_co = TypeVar("M_co", bound=RunMetrics, covariant=True)
Done = Callable[[int, RunMetrics], object]
"""Told of each result as soon as it is there, with its seed."""


class Run(Protocol[M_co]):
    """What is done for one seed: `engine.simulate`, `alone.alone`, or a function of a bench's own module.

    A run that can have its silos at several workers takes `hosts` too (`groups.Hosts`).
    """

    def __call__(self, study: Study, cohorts: Cohorts, *, seed: int) -> M_co:
        """Measure one seed."""
        ...


class SeedTask(NamedTuple, Generic[M_co]):
    """A run, and the records that each seed draws."""

    run: Run[M_co]
    study: Study
    source: Source

    def spreads(self, seeds: int, workers: int) -> bool:
        """Whether the silos of one seed should be at several workers, because so few seeds leave workers idle."""
        return 2 * seeds <= workers and "hosts" in signature(self.run).parameters

    def over(self, hosts: Hosts) -> SeedTask[M_co]:
        """The same, with the silos of a seed where `hosts` puts them."""
        there: Run[M_co] = partial(self.run, hosts=hosts)  # type: ignore[call-arg]  # `spreads` has looked
        return self._replace(run=there)


class SeedEngine(Protocol):
    """Who computes seeds. The results are the same whoever it is, on one type of processor."""

    def each(self, task: SeedTask[RunMetrics], seeds: Sequence[int], done: Done) -> None:
        """Compute all seeds, in whatever order. What a lost worker had to do is done again.

        Raises what a seed raises, and `SimulationError` if workers are lost again and again.
        """
        ...


class Here:
    """In this process, one seed after the other, and one silo after the other."""

    def each(self, task: SeedTask[RunMetrics], seeds: Sequence[int], done: Done) -> None:
        """Compute all seeds in their order."""
        for seed in seeds:
            done(seed, work(task, seed))


def work(task: SeedTask[M_co], seed: int) -> M_co:
    """Compute one seed. One CPU thread: a study's matrices are small, and threads would wait for each other."""
    limit_threads(1)
    return task.run(task.study, task.source.draw(task.study, seed), seed=seed)


class WorkersLost(Exception):  # noqa: N818  # stays among the engines: `until_done` makes a sentence of it
    """A seed lost its workers again and again."""


def until_done(seeds: Sequence[int], done: Done, at_once: Callable[[Sequence[int], Done], None]) -> None:
    """Have all seeds computed. `at_once` may end before all that it was given are done, if workers are lost.

    Raises `SimulationError` if it ends `MOST_LOST` times without a result, or raises `WorkersLost`.
    """
    left, in_vain = list(seeds), 0

    def taken(seed: int, result: RunMetrics) -> None:
        left.remove(seed)
        done(seed, result)

    while left:
        before = len(left)
        try:
            at_once(tuple(left), taken)
        except WorkersLost:
            in_vain = MOST_LOST
        else:
            in_vain = 0 if len(left) < before else in_vain + 1
        if in_vain == MOST_LOST:
            msg = (
                f"worker processes ended {in_vain} times before any of the {len(left)} seeds that are left was done;"
                " most likely the machine lacks memory: use fewer --workers, or fewer records"
            )
            raise SimulationError(msg)
