"""Seeds on a cluster of Dask workers, on this machine or on many (`distributed`), over TLS alone.

The scheduler places the records at every worker once, gives seeds to workers that are free, and gives those of a lost
worker to others. Dask's own tools start schedulers and workers, also under Slurm and Kubernetes.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from deploy.local.simulate.engines.task import MOST_LOST, Done, SeedTask, WorkersLost, until_done, work
from deploy.local.simulate.errors import SimulationError
from deploy.local.simulate.outcome import RunMetrics

if TYPE_CHECKING:
    from distributed import Client
    from distributed.security import Security

_TLS: Final = "tls://"
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
        with dask.config.set({"distributed.scheduler.allowed-failures": MOST_LOST - 1}):
            if self._scheduler is not None:
                with Client(self._scheduler, security=_security(self._tls)) as client:
                    yield client
                return
            # What a lost worker means is said in the end; Dask's own lines would break the progress bar.
            quiet = {"silence_logs": logging.CRITICAL, "dashboard_address": None}
            options: dict[str, Any] = {"threads_per_worker": 1, "security": True, **quiet}
            with LocalCluster(n_workers=self._workers, protocol=_TLS, **options) as cluster, Client(cluster) as client:
                yield client


def _at_once(client: Client, task: SeedTask[RunMetrics], seeds: Sequence[int], done: Done) -> None:
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
