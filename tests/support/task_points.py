"""Kills the process of a silo at a chosen moment of a chosen task: what a dropout is to the others."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from protos.messages import Place, Task, Tensor, Work
from silo_agent.protocol.tasks import Duties, Running


@dataclass(frozen=True)
class TaskCrash:
    """Die when this task of this tensor in this round was asked, kept but not told, or told."""

    when: Literal["asked", "kept", "told"]
    task: Task
    tensor: Tensor
    round: int

    def install(self) -> None:
        """Stand between the agent and its duties, for the life of the process."""
        perform, report = Duties.perform, Duties.report
        Duties.perform = self._watched(perform, before="asked", after="kept")  # type: ignore[method-assign]  # the same, watched
        Duties.report = self._watched(report, before="", after="told")  # type: ignore[method-assign]  # the same, watched

    def _watched(
        self, half: Callable[[Duties, Running, Work, Place], None], *, before: str, after: str
    ) -> Callable[[Duties, Running, Work, Place], None]:
        def watched(duties: Duties, running: Running, work: Work, place: Place) -> None:
            due = (work.task, work.tensor, place.round) == (self.task, self.tensor, self.round)
            self._die(due and self.when == before)
            half(duties, running, work, place)
            self._die(due and self.when == after)

        return watched

    def _die(self, now: bool) -> None:
        if now:
            os.kill(os.getpid(), signal.SIGKILL)
