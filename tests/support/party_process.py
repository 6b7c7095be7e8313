"""What a process of the crash tests runs: a coordinator or a silo, from their own configurations.

Called as `python -m support.party_process coordinator|silo FOLDER CRASH`; the crash is pickled, in hexadecimal digits.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
from pathlib import Path

import structlog

from coordinator.config import CoordinatorConfig
from coordinator.server import Server
from silo_agent import assembly, logs
from silo_agent.config import AgentConfig
from silo_agent.learning.learner import Learner
from support import moving_clock
from support.crash_points import Crash, CrashPoints
from support.fork_server import ForkedPopen
from support.placed_entropy import PlacedEntropy
from support.task_points import TaskCrash


def _begin(folder: Path, crash: Crash | TaskCrash | None) -> None:
    log = os.open(folder / "log.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    sys.stdout, sys.stderr = os.fdopen(1, "w", 1), os.fdopen(2, "w", 1)
    structlog.reset_defaults()
    logs.configure()
    CrashPoints(folder / "writes", crash if isinstance(crash, Crash) else None).install()
    if isinstance(crash, TaskCrash):
        crash.install()


def coordinator(folder: Path, crash: Crash | None) -> None:
    _begin(folder, crash)
    moving_clock.install()
    server = Server(CoordinatorConfig.load(folder / "coordinator.yaml"))
    asked = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: asked.set())
    server.start()
    asked.wait()
    server.close()


def silo(folder: Path, crash: Crash | TaskCrash | None) -> None:
    _begin(folder, crash)
    entropy = PlacedEntropy(folder.name)
    Learner.contribution = entropy.during(  # type: ignore[method-assign]  # the same, its draws named
        Learner.contribution, lambda _, tensor, place, *__: f"{tensor} {place}"
    )
    Learner.train_personal = entropy.during(  # type: ignore[method-assign]  # the same, its draws named
        Learner.train_personal, lambda _, model: f"personal {model.round}"
    )
    assembly.SystemEntropy = lambda: entropy  # type: ignore[assignment,misc]  # predictable, for this process alone
    assembly.run_agent(AgentConfig.load(folder / "agent.yaml"), until_finished=True)


def start(party: str, folder: Path, crash: Crash | TaskCrash | None) -> subprocess.Popen[bytes]:
    """Start one as a process of its own, which dies where it is told to."""
    command = [sys.executable, "-m", "support.party_process", party, str(folder), pickle.dumps(crash).hex()]
    return ForkedPopen(command, stdin=subprocess.DEVNULL)


if __name__ == "__main__":
    {"coordinator": coordinator, "silo": silo}[sys.argv[1]](
        Path(sys.argv[2]),
        pickle.loads(bytes.fromhex(sys.argv[3])),  # noqa: S301  # what `start` has written
    )
