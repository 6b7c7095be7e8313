"""FedWard's programs as child processes: commands that run to their end, and parties that run until they are stopped.

This module ends only the processes that it has started, by their ids.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

START_SECONDS = 180.0
STOP_SECONDS = 20.0


class FederationError(Exception):
    """A process of the federation failed. The text names the process and shows the end of its log."""


def script(program: str) -> str:
    """The path of a console script in the environment that runs this code."""
    return str(Path(sys.executable).parent / program)


def run(program: str, *arguments: str | Path, env: Mapping[str, str] | None = None) -> str:
    """Run a command to its end and return what it printed. Raises `FederationError`, with its stderr, if it fails."""
    done = subprocess.run(
        [script(program), *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **(env or {})},
    )
    if done.returncode != 0:
        msg = f"{program} {' '.join(map(str, arguments))} ended with code {done.returncode}:\n{done.stderr.strip()}"
        raise FederationError(msg)
    return done.stdout


class Parties:
    """The running parties by name. Each writes its log to a file of its own."""

    def __init__(self) -> None:
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._logs: dict[str, Path] = {}

    def start(self, name: str, log: Path, program: str, *arguments: str | Path, threads: int | None) -> None:
        """Start a party that appends to `log`. `threads` limits its CPU threads; with None the party chooses."""
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        if threads is not None:
            # All parties share one machine. Without this limit each would start a thread for each core.
            environment |= dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))
        self._logs[name] = log
        with log.open("ab") as file:
            self.processes[name] = subprocess.Popen(
                [script(program), *map(str, arguments)],
                stdout=file,
                stderr=file,
                stdin=subprocess.DEVNULL,
                env=environment,
            )

    def check(self) -> None:
        """Raise `FederationError` if a party has failed. A party that ends with code 0 has not failed."""
        for name, process in self.processes.items():
            if process.poll():
                msg = f"{name} ended with code {process.returncode}:\n{log_tail(self._logs[name])}"
                raise FederationError(msg)

    def wait(self, name: str, seconds: float) -> None:
        """Wait until a party has ended by itself. Raises `FederationError` if it has not within `seconds`."""
        try:
            self.processes[name].wait(seconds)
        except subprocess.TimeoutExpired:
            msg = f"{name} has not ended {seconds:g} s after the study:\n{log_tail(self._logs[name])}"
            raise FederationError(msg) from None

    def await_event(self, name: str, log: Path, event: str) -> dict[str, Any]:
        """Wait for the first entry of a party's log with this `event`, and return it.

        Raises `FederationError` if a party fails, or if the entry does not come within `START_SECONDS`.
        """
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until:
            for line in log.read_text(encoding="utf-8").splitlines():
                with contextlib.suppress(json.JSONDecodeError):
                    entry = json.loads(line)
                    if entry.get("event") == event:
                        return dict(entry)
            self.check()
            time.sleep(0.05)
        msg = f"{name} did not start within {START_SECONDS:g} s:\n{log_tail(log)}"
        raise FederationError(msg)

    def stop(self) -> None:
        """End every running party: ask it to end, and kill it if it still runs after `STOP_SECONDS`."""
        for process in self.processes.values():
            if process.poll() is None:
                process.terminate()
        for process in self.processes.values():
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.processes.clear()


def log_tail(log: Path, lines: int = 15) -> str:
    """The last `lines` lines of a log."""
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])
