"""Kills the process of a silo at a chosen moment of a chosen task: what a dropout is to the others."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeVar

from protos.messages import Tensor
from protos.steps import Task
from silo_agent.protocol.attempt import Attempt
from silo_agent.protocol.tasks import Tasks

R = TypeVar("R")


@dataclass(frozen=True)
class TaskCrash:
    """Die when this task of this tensor in this round was asked, kept but not told, or told."""

    when: Literal["asked", "kept", "told"]
    task: Task
    tensor: Tensor
    round: int

    def install(self) -> None:
        """Stand between the agent and its tasks, for the life of the process."""
        perform, report = Tasks.perform, Tasks.report
        Tasks.perform = self._watched(perform, before="asked", after="kept")  # type: ignore[method-assign]  # the same, watched
        Tasks.report = self._watched(report, before="", after="told")  # type: ignore[method-assign]  # the same, watched

    def _watched(
        self, half: Callable[[Tasks, Attempt], R], *, before: str, after: str
    ) -> Callable[[Tasks, Attempt], R]:
        def watched(tasks: Tasks, attempt: Attempt) -> R:
            work, place = attempt.work, attempt.place
            due = (work.task, work.tensor, place.round) == (self.task, self.tensor, self.round)
            self._die(due and self.when == before)
            done = half(tasks, attempt)
            self._die(due and self.when == after)
            return done

        return watched

    def _die(self, now: bool) -> None:
        if now:
            os.kill(os.getpid(), signal.SIGKILL)
