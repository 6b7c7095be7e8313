"""Seeds on a cluster of Dask workers, on this machine or on many (`distributed`), over TLS alone.

The scheduler places the records at every worker once, gives seeds to workers that are free, and gives those of a lost
worker to others. Where there are fewer seeds than workers, the silos of one seed are at all workers, as Dask's actors.
Dask's own tools start schedulers and workers, also under Slurm and Kubernetes.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from deploy.local.simulate.engines.task import MOST_LOST, Done, SeedTask, WorkersLost, until_done, work
from deploy.local.simulate.errors import SimulationError
from deploy.local.simulate.groups import FILES_IN, Founding, Group, Groups, T, memory_folder
from deploy.local.simulate.outcome import RunMetrics

if TYPE_CHECKING:
    from distributed import Client
    from distributed.security import Security

_TLS: Final = "tls://"
_ENVIRONMENT: Final = "distributed.nanny.pre-spawn-environ"
_ONE_THREAD: Final = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), 1)
"""In place of what Dask gives its workers, which also has glibc give memory back at once: that takes a study 2.7 times
as long."""
FILES: Final = ("ca.pem", "cert.pem", "key.pem")
"""Of a folder with what a cluster's members show each other."""


class DaskCluster:
    """Workers at a scheduler, or `workers` processes of this machine where none is named.

    Raises `SimulationError` if `distributed` is not installed, if a scheduler would be talked to in the clear, or if
    the files for TLS are not there.
    """

    def __init__(self, workers: int, scheduler: str | None = None, tls: Path | None = None) -> None:
        faults = list(_faults(scheduler, tls))
        if faults:
            raise SimulationError("; ".join(faults))
        self._workers, self._scheduler, self._tls = workers, scheduler, tls

    def each(self, task: SeedTask[RunMetrics], seeds: Sequence[int], done: Done) -> None:
        """As `SeedEngine.each`."""
        with self._client() as client:
            until_done(seeds, done, partial(_at_once, client, task))

    @contextmanager
    def _client(self) -> Iterator[Client]:
        import dask
        from distributed import Client, LocalCluster

        # A seed whose worker was lost so often is the reason itself, most likely by its memory.
        with dask.config.set({"distributed.scheduler.allowed-failures": MOST_LOST - 1, _ENVIRONMENT: _ONE_THREAD}):
            if self._scheduler is not None:
                with Client(self._scheduler, security=_security(self._tls)) as client:
                    yield client
                return
            # What a lost worker means is said in the end; Dask's own lines would break the progress bar.
            quiet = {"silence_logs": logging.CRITICAL, "dashboard_address": None}
            with tempfile.TemporaryDirectory(prefix="fedward-simulate-", dir=memory_folder()) as root:
                own = {"threads_per_worker": 1, "security": True, "env": {FILES_IN: root}}
                options: dict[str, Any] = {"n_workers": self._workers, "protocol": _TLS, **own, **quiet}
                with LocalCluster(**options) as cluster, Client(cluster) as client:
                    yield client


def _at_once(client: Client, task: SeedTask[RunMetrics], seeds: Sequence[int], done: Done) -> None:
    """Work on seeds until all are done, or a worker is lost that holds silos."""
    workers = list(client.scheduler_info(n_workers=-1)["workers"])
    if not task.spreads(len(seeds), len(workers)):
        _side_by_side(client, task, seeds, done)
        return
    with suppress(_SilosLost):
        for seed in seeds:
            done(seed, work(task.over(partial(_hosts, client, workers)), seed))


def _side_by_side(client: Client, task: SeedTask[RunMetrics], seeds: Sequence[int], done: Done) -> None:
    """Place the task at every worker, and give out seeds. Those that are lost with all workers are not done."""
    from distributed import KilledWorker, as_completed

    (placed,) = client.scatter([task], broadcast=True)  # in a list: the parts of a tuple would be placed one by one
    begun = {client.submit(work, placed, seed, pure=False): seed for seed in seeds}
    for future in as_completed(begun):
        try:
            result = future.result()
        except KilledWorker:
            raise WorkersLost from None
        except CancelledError:
            continue
        done(begun[future], result)


@contextmanager
def _hosts(client: Client, workers: Sequence[str], founding: Founding) -> Iterator[Groups]:
    with _lost():
        seats = [
            client.submit(_Seat, client.scatter([part], workers=[worker])[0], workers=[worker], actor=True, pure=False)
            for part, worker in zip(founding.parts(len(workers)), workers, strict=False)
        ]
        groups = _Elsewhere([seat.result() for seat in seats])
    yield groups


class _Seat:
    """A group of silos at a worker. What its silos raise is an answer, too: what Dask raises means a lost worker."""

    def __init__(self, part: Founding) -> None:
        self._part = part
        self._group: Group | None = None

    def ask(self, call: Callable[[Group], T]) -> tuple[T | None, Exception | None]:
        try:
            self._group = self._group or Group(self._part)
            return call(self._group), None
        except Exception as error:  # noqa: BLE001  # raised again where the answer is read
            return None, error


class _Elsewhere:
    """The groups of one seed, each at a worker."""

    def __init__(self, seats: Sequence[Any]) -> None:
        self._seats = seats

    def ask(self, call: Callable[[Group], T]) -> list[T]:
        with _lost():
            begun = [seat.ask(call) for seat in self._seats]
            found = [future.result() for future in begun]
        for _, error in found:
            if error is not None:
                raise error
        return [answer for answer, _ in found]


class _SilosLost(Exception):  # noqa: N818  # stays in this file
    """A worker was lost with the silos of a seed, so the seed has to begin again."""


@contextmanager
def _lost() -> Iterator[None]:
    from distributed import KilledWorker

    try:
        yield
    except (RuntimeError, ValueError, OSError, KilledWorker, CancelledError):
        raise _SilosLost from None


def _faults(scheduler: str | None, tls: Path | None) -> Iterator[str]:
    if find_spec("distributed") is None:
        yield "--engine dask needs distributed; install requirements-research.txt of the release"
    if scheduler is None and tls is not None:
        yield "--tls is for a cluster that --scheduler names; leave it out for workers of this machine"
    if scheduler is not None and not scheduler.startswith(_TLS):
        yield f"--scheduler {scheduler} would be talked to in the clear; give one that begins with {_TLS}"
    if scheduler is not None:
        missing = [name for name in FILES if tls is None or not (tls / name).is_file()]
        if missing:
            where = "give --tls, a folder with" if tls is None else f"{tls} lacks"
            yield f"--scheduler talks TLS alone: {where} {', '.join(missing)}"


def _security(folder: Path | None) -> Security:
    from distributed.security import Security

    authority, certificate, key = (str((folder or Path()) / name) for name in FILES)
    return Security(tls_ca_file=authority, tls_client_cert=certificate, tls_client_key=key, require_encryption=True)
