"""The same for many seeds, wherever they are computed (`engines`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from deploy.local.simulate.engine import simulate
from deploy.local.simulate.engines.processes import Processes
from deploy.local.simulate.engines.task import Here, M_co, Run, SeedEngine, SeedTask
from deploy.local.simulate.keeping import KeptResults
from deploy.local.simulate.outcome import Outcome, RunMetrics
from deploy.local.simulate.silos import Source
from policies.documents.study import Study


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
    engine: SeedEngine | None = None,
    done: Callable[[], object] = lambda: None,
    kept: KeptResults | None = None,
) -> tuple[M_co, ...]:
    """One result for each seed, in their order; neither engine nor number of workers changes any of them.

    `source` gives the records of each seed. By default `workers` processes of this machine compute them. `done` is
    called after each seed, as soon as it is done. What `kept` has is not computed again, and it is given what is.
    Raises what `SeedEngine.each` and `KeptResults` raise.
    """
    if engine is None:
        engine = Here() if workers <= 1 else Processes(workers)
    results = {} if kept is None else kept.of_all(seeds)
    for _ in results:
        done()

    def keep(seed: int, result: RunMetrics) -> None:
        if kept is not None:
            kept.keep(seed, result)
        results[seed] = result
        done()

    if left := [seed for seed in seeds if seed not in results]:
        engine.each(SeedTask(run, study, source), left, keep)
    return tuple(results[seed] for seed in seeds)  # type: ignore[misc]  # what `run` gives
