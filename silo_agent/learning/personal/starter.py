"""Has personal models trained by processes of their own, which the agent never waits for and never listens to.

Guarantees: `want` neither waits nor raises, whatever a training does. A training that crashed, was killed or was cut
off by the agent's end is tried again: after the next finished round, or when an agent starts. What is wanted stands in
the study's folder (`StudyFolder.personal_wanted`). Only `finish` waits, after the agent has said its last word.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import structlog

from policies.documents.study import Study
from silo_agent.learning.personal.process import LOWEST, Job, want_round, wanted_round
from silo_agent.storage.folders import StudyFolder

log = structlog.get_logger()
_STOP_SECONDS: Final = 5.0
_LOOK_SECONDS: Final = 0.1
_SAY_SECONDS: Final = 30.0
"""How often the log says that the end of a training is waited for: a busy machine may take many minutes."""
_LOG: Final = 2
"""The agent's standard error, where its log goes. Warnings to the hospital go there: the agent itself hears nothing."""


class PersonalStarter:
    """The processes of one agent, at most one for each study. `job` says what a study's training reads."""

    def __init__(self, job: Callable[[Study], Job]) -> None:
        self._job = job
        self._wanted: dict[str, int] = {}
        self._jobs: dict[str, Job] = {}
        self._trained: set[str] = set()
        """Studies with a personal model."""
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def want(self, study: Study, round_number: int) -> None:
        """Have the personal model of a study trained up to a finished round. Asking again changes nothing."""
        if self._wanted.get(study.digest, 0) >= round_number:
            return
        self._wanted[study.digest] = round_number
        try:
            job = self._jobs[study.digest] = self._job(study)
            if study.personal is not None:
                self._trained.add(study.digest)
            want_round(StudyFolder(Path(job.folder)), round_number)
            self._wake(study.digest)
        except Exception as fault:  # noqa: BLE001  # nothing outside may depend on the personal model
            log.error("the personal model's training cannot be started", fault=type(fault).__name__)  # noqa: TRY400

    def finish(self, stop: threading.Event) -> None:
        """Wait until every personal model is trained, or failed twice, or the agent is told to stop.

        Nobody waits for warnings alone. What was not looked at is looked at when an agent starts.
        """
        for digest in self._trained:
            for _ in range(2):
                process = self._processes.pop(digest, None)
                if process is not None:
                    _leave(process, stop, digest)
                if stop.is_set() or not self._left(digest):
                    break
                self._processes[digest] = _start(self._jobs[digest])

    def stop(self) -> None:
        """End all processes. What they have not trained stays wanted."""
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            _close(process)
        self._processes.clear()

    def _left(self, digest: str) -> int:
        return wanted_round(StudyFolder(Path(self._jobs[digest].folder)))

    def _wake(self, digest: str) -> None:
        process = self._processes.get(digest)
        if process is not None and process.poll() is None and process.stdin is not None:
            try:
                process.stdin.write(b"\n")
            except BrokenPipeError:
                pass  # it has just ended
            else:
                return
        if process is not None:
            _close(process)
        self._processes[digest] = _start(self._jobs[digest])


def _start(job: Job) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-P", "-m", "silo_agent.learning.personal.process", job.text()]
    said = os.open(StudyFolder(Path(job.folder)).personal_log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        process = subprocess.Popen(  # noqa: S603  # our own module
            command, stdin=subprocess.PIPE, stdout=_LOG, stderr=said, bufsize=0, start_new_session=True
        )
    finally:
        os.close(said)
    with suppress(OSError):  # it has just ended
        if process.stdin is not None:
            process.stdin.write(job.told())  # fits into the pipe, so that nobody waits
        os.setpriority(os.PRIO_PROCESS, process.pid, LOWEST)  # at once: to load its libraries takes seconds
        # Where Linux shares the processor among sessions, a priority counts inside its own session alone.
        Path(f"/proc/{process.pid}/autogroup").write_text(str(LOWEST), encoding="ascii")
    return process


def _leave(process: subprocess.Popen[bytes], stop: threading.Event, study: str) -> None:
    """Let a process end by itself, or end it if the agent is told to stop. The log says what is waited for."""
    _close(process)
    began = said = time.monotonic()
    while process.poll() is None:
        if stop.wait(_LOOK_SECONDS):
            process.terminate()
            process.wait()
        elif (now := time.monotonic()) - said >= _SAY_SECONDS:
            said = now
            log.info(
                "waiting for the personal model's training, which has the lowest priority on this machine",
                study=study[:12], seconds=round(now - began),
                fix="wait, or end the agent: the training goes on when an agent starts",
            )  # fmt: skip


def _close(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        process.stdin.close()
