"""How long nobody serves when the active coordinator of two dies, freezes or stops, with the lease of the defaults.

Seconds from the signal until the other one says that it serves, of real processes on this machine. The database is
SQLite, or PostgreSQL by `--database`. A process that is frozen is woken afterwards, and must write nothing.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import socket
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import yaml

from bench.speed.round import POLICY, STUDY, write_patients
from bench.table import Criterion, judge
from deploy.local.federation import Federation
from deploy.local.parties import COORDINATOR
from deploy.local.processes import Parties

WANTED_SECONDS, STOP_SECONDS = 30.0, 10.0
RUNS: Final = 5
HOW: Final = {"killed": signal.SIGKILL, "frozen": signal.SIGSTOP, "stopped": signal.SIGTERM}
LONGEST: Final = 300.0


def main() -> int:
    """Measure each way to be away, and judge."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--runs", type=int, default=RUNS)
    arguments.add_argument("--database", help="URL of an empty PostgreSQL database; without it SQLite.")
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="fedward-takeover-") as folder:
        pair = CoordinatorPair(Path(folder), given.database)
        try:
            measured = {how: [pair.takeover(how) for _ in range(given.runs)] for how in HOW}
        finally:
            pair.parties.stop()
    figures = []
    for how, seconds in measured.items():
        wanted = STOP_SECONDS if how == "stopped" else WANTED_SECONDS
        told = f"{max(seconds):.1f} s at most, {statistics.median(seconds):.1f} s typically"
        figures.append(Criterion(f"the active one is {how}", f"< {wanted:g} s", told, max(seconds) < wanted))
    return judge("takeover", figures, measured)


class CoordinatorPair:
    """Two coordinators of one identity, database and spool."""

    def __init__(self, folder: Path, database: str | None) -> None:
        study = folder / "study.yaml"
        study.write_text(yaml.safe_dump(STUDY), encoding="utf-8")
        federation = Federation(folder / "federation", study, write_patients(folder), POLICY)
        federation.prepare()
        self.parties = Parties()
        first = federation.place.party(COORDINATOR)
        self._homes = (first, Path(shutil.copytree(first, first.with_name("standby"))))
        for home in self._homes:
            config: dict[str, Any] = {name: f"{name}.pem" for name in ("certificate", "key", "authority")}
            config |= {"port": _free_port(), "metrics_port": 0, "data": "data", "spool": str(folder / "spool")}
            config["database"] = database or f"sqlite:///{folder / 'shared.sqlite3'}"
            (home / "coordinator.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
        self._active = 0
        self._start(0)
        self._await(0, "serving", 1)
        self._start(1)
        self._await(1, "standing by", 1)

    def takeover(self, how: str) -> float:
        """Seconds until the one that stands by serves. Afterwards the other one stands by."""
        active, other = self._active, 1 - self._active
        served = len(self._events(other, "serving"))
        process = self.parties.processes[str(active)]
        began = time.monotonic()
        process.send_signal(HOW[how])
        self._await(other, "serving", served + 1)
        took = time.monotonic() - began
        stood = len(self._events(active, "standing by"))
        if how == "frozen":
            process.send_signal(signal.SIGCONT)
        else:
            process.wait()
            self._start(active)
        self._await(active, "standing by", stood + 1)
        self._active = other
        return took

    def _start(self, number: int) -> None:
        config = self._homes[number] / "coordinator.yaml"
        self.parties.start(str(number), self._log(number), "fedward-coordinator", "serve", "-c", config, threads=1)

    def _log(self, number: int) -> Path:
        return self._homes[number] / "log.jsonl"

    def _events(self, number: int, name: str) -> list[dict[str, Any]]:
        lines = self._log(number).read_text(encoding="utf-8").splitlines() if self._log(number).exists() else []
        entries = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]
        return [one for one in entries if one["event"] == name]

    def _await(self, number: int, name: str, times: int) -> None:
        until = time.monotonic() + LONGEST
        while len(self._events(number, name)) < times:
            if time.monotonic() > until:
                msg = f"{name} was not told within {LONGEST:g} s"
                raise TimeoutError(msg)
            time.sleep(0.02)


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


if __name__ == "__main__":
    sys.exit(main())
