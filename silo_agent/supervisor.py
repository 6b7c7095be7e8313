"""Several silos of one institution, started by one command, each in a process of its own.

Guarantees: silos share no process, no state, no certificate and no port, so nothing that happens to one is felt by
another. One that ends is started again after a pause that grows, and the others go on. When the supervisor is told to
stop, all end as if each had been told.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import structlog

from silo_agent import logs
from silo_agent.config import AgentConfig
from silo_agent.errors import SiloError

log = structlog.get_logger()
PAUSES = (1.0, 5.0, 30.0, 120.0, 600.0)
"""Seconds before a silo that ended is started again, by how often it ended at once."""
STEADY_SECONDS = 600.0
"""A silo that ran so long did not end at once."""
STOP_SECONDS = 60.0
LOOK_SECONDS = 0.2

Command = Callable[[Path], Sequence[str]]


def require_apart(configs: Mapping[Path, AgentConfig]) -> None:
    """Raise `SiloError` if two configurations share what belongs to one silo; it names all of it."""
    faults = []
    for what in ("state", "key", "certificate", "policy"):
        seen: dict[Path, Path] = {}
        for path, config in configs.items():
            other = seen.setdefault(Path(getattr(config, what)).resolve(), path)
            if other != path:
                faults.append(f"{other} and {path} have the same {what}")
    states = {path: config.state.resolve() for path, config in configs.items()}
    faults += [
        f"the state of {inner} lies in the state of {outer}"
        for outer, above in states.items()
        for inner, below in states.items()
        if above in below.parents
    ]
    ports: dict[tuple[str, int], Path] = {}
    for path, config in configs.items():
        other = ports.setdefault((config.metrics_host, config.metrics_port), path)
        if other != path and config.metrics_port:
            faults.append(f"{other} and {path} have the same metrics_port")
    if faults:
        msg = f"each silo needs its own: {'; '.join(faults)}"
        raise SiloError(msg)


def agent(config: Path) -> Sequence[str]:
    """Return the command of one silo's agent."""
    return (sys.executable, "-P", "-m", "silo_agent.cli", "run", "-c", str(config))


class Supervisor:
    """Starts one agent for each configuration and keeps it running."""

    def __init__(self, configs: Sequence[Path], *, command: Command = agent, pauses: Sequence[float] = PAUSES) -> None:
        """`command` gives what to start for a configuration."""
        self._configs, self._command, self._pauses = configs, command, pauses

    def run(self, stop: threading.Event) -> None:
        """Keep all agents running until told to stop, then end them."""
        threads = [threading.Thread(target=self._keep, args=(path, stop), name=str(path)) for path in self._configs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _keep(self, path: Path, stop: threading.Event) -> None:
        failures = 0
        while not stop.is_set():
            began = time.monotonic()
            # Whoever waits for this service to be ready waits for the supervisor.
            environment = {**os.environ, "NOTIFY_SOCKET": "", logs.SILO_VARIABLE: str(path)}
            command = self._command(path)
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, env=environment)  # noqa: S603  # our own words
            log.info("silo started", config=str(path), pid=process.pid)
            _wait(process, stop)
            if stop.is_set():
                return
            failures = 0 if time.monotonic() - began >= STEADY_SECONDS else failures + 1
            pause = self._pauses[min(max(failures, 1), len(self._pauses)) - 1]
            log.error("silo ended", config=str(path), code=process.returncode, again_in_seconds=pause)
            stop.wait(pause)


def _wait(process: subprocess.Popen[bytes], stop: threading.Event) -> None:
    """Wait until the process ends; end it if told to stop."""
    while process.poll() is None and not stop.wait(LOOK_SECONDS):
        pass
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
