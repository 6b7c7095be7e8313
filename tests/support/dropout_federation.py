"""A federation of real processes: silos are killed at chosen tasks, and come back when the others have gone on."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from coordinator.errors import OperatorError
from protos.status import StudyStatus
from support import moving_clock
from support.crash_federation import HUB, SECONDS, CrashFederation
from support.task_points import TaskCrash

_SIGKILL = -9


@dataclass
class DropoutFederation(CrashFederation):
    """`falls` says who is killed and when; it comes back once the coordinator has given it up, or the attempt."""

    falls: dict[str, TaskCrash] = field(default_factory=dict)
    back: set[str] = field(default_factory=set)
    given_time: set[str] = field(default_factory=set)
    """Who has been waited for as long as the study allows, by the coordinator's clock."""
    metrics: str = ""
    """What the coordinator showed when all agents had ended."""

    def entries(self, name: str, event: str) -> list[dict[str, Any]]:
        """What a party logged under a name."""
        lines = (self.root / name / "log.jsonl").read_text().splitlines()
        found = [json.loads(line) for line in lines if line.startswith("{")]
        return [entry for entry in found if entry.get("event") == event]

    def given_up(self, silo: str) -> bool:
        """Whether the coordinator goes on without it, or has ended the attempt."""
        aside = any(silo in entry["silos"] for entry in self.entries(HUB, "silos set aside"))
        return aside or any(entry["outcome"] == "aborted" for entry in self.entries(HUB, "attempt over"))

    # --- inside ---------------------------------------------------------------------------------------------------
    def _start(self, name: str, crash: object = None) -> None:
        assert crash is None
        super()._start(name, None if name in self.processes else self.falls.get(name))

    def _revive(self) -> bool:
        waiting = [silo for silo in self.falls if silo not in self.back and self._exit_code(silo) == _SIGKILL]
        for silo in waiting:
            if self.given_up(silo):
                self.back.add(silo)
                self._bring_back(silo)
            elif silo not in self.given_time and self._status().waiting_for == (silo,):
                self.given_time.add(silo)
                moving_clock.jump(self.processes[HUB].pid)
        return bool(waiting)

    def _status(self) -> StudyStatus:
        operator = self._operator()
        try:
            return operator.status(self.study.digest)
        finally:
            operator.close()

    def _bring_back(self, silo: str) -> None:
        """Short rounds might be over before a process has started: the study stands still meanwhile."""
        operator = self._operator()
        try:
            operator.pause(self.study.digest)
        except OperatorError:
            self._start(silo)  # the study is over
        else:
            self._start(silo)
            self._await(lambda: "away" not in {m.state for m in operator.status(self.study.digest).members})
            operator.resume(self.study.digest)
        finally:
            operator.close()

    def _await(self, reached: Callable[[], bool]) -> None:
        end = time.monotonic() + SECONDS
        while not reached():
            assert time.monotonic() < end, self.log(HUB)
            time.sleep(0.05)

    def _follow(self) -> StudyStatus:
        status = super()._follow()
        port = self.entries(HUB, "serving")[0]["metrics_port"]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=300) as page:
            self.metrics = page.read().decode()
        return status
