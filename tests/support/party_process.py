"""What a process of `support.party_federation` runs: a coordinator or a silo, from their own configurations.

Called as `python -m support.party_process coordinator|silo FOLDER DOOM`; the doom is pickled, in hexadecimal digits.
A silo trains its personal model itself. If it is told to (`APART`), it has that done by a process of its own, as every
agent does: `python -m support.party_process personal FOLDER CRASH JOB`.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import structlog

from coordinator import cosigning
from coordinator.config import CoordinatorConfig
from policies.documents.study import Study
from silo_agent import assembly, logs
from silo_agent.config import AgentConfig
from silo_agent.data.records import Records
from silo_agent.learning.learner import Learner
from silo_agent.learning.noise.draws import FreshDraws
from silo_agent.learning.personal import process as personal_process
from silo_agent.learning.personal import starter
from silo_agent.learning.personal.process import Job, train_up_to
from silo_agent.storage.folders import StudyFolder
from support import moving_clock
from support.crash_points import Crash, CrashPoints
from support.databases import server_of
from support.fork_server import TESTS, ForkedPopen
from support.placed_entropy import PlacedEntropy
from support.spoiling import Spoiling
from support.starving import Starving
from support.task_points import TaskCrash

Doom = Crash | TaskCrash | Starving | Spoiling
"""What is done to a process: it is killed at a durable write or at a task, has no files for a while, or is hostile."""
PATIENCE = "patience"
"""File beside the coordinator's configuration: seconds until a second silo is asked to cosign a ledger."""
APART = "apart"
"""File beside an agent's configuration: a process of its own trains the personal model. The file has the crash of the
first such process, which takes the agent with it."""
PERSONAL_WRITES = "personal-writes"
"""File beside an agent's configuration: the durable writes of that process."""


def _begin(folder: Path, doom: Doom | None) -> None:
    log = os.open(folder / "log.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    sys.stdout, sys.stderr = os.fdopen(1, "w", 1), os.fdopen(2, "w", 1)
    structlog.reset_defaults()
    logs.configure()
    if not isinstance(doom, Starving):  # its notes would be what cannot be opened
        CrashPoints(folder / "writes", doom if isinstance(doom, Crash) else None).install()
    if doom is not None and not isinstance(doom, Crash):
        doom.install()


def coordinator(folder: Path, doom: Doom | None) -> None:
    _begin(folder, doom)
    moving_clock.install()
    patience = folder / PATIENCE
    if patience.exists():
        cosigning.PATIENCE_SECONDS = float(patience.read_text())
    server = server_of(CoordinatorConfig.load(folder / "coordinator.yaml"))
    asked = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: asked.set())
    server.start()
    asked.wait()
    server.close()


def silo(folder: Path, doom: Doom | None) -> None:
    _begin(folder, doom)
    entropy = PlacedEntropy(folder.name)
    Learner.contribution = entropy.during(  # type: ignore[method-assign]  # the same, its draws named
        Learner.contribution, lambda _, tensor, place, *__: f"{tensor} {place}"
    )
    _name_personal_draws(entropy)

    class Here:
        """Trains the personal model at once, in this very process, which dies where it is told to."""

        def __init__(self, job: Callable[[Study], Job]) -> None:
            self._job = job

        def want(self, study: Study, round_number: int) -> None:
            job = self._job(study)

            def training() -> Records:
                return job.data_set.cohorts(study.data)[0]

            train_up_to(StudyFolder(Path(job.folder)), round_number, training, entropy=entropy, device=job.device)

        def finish(self, _stop: threading.Event) -> None:
            return

        def stop(self) -> None:
            return

    if (folder / APART).exists():
        starter._start = lambda job: _start_personal(folder, job)  # the same, its draws named
    else:
        assembly.PersonalStarter = Here  # type: ignore[assignment,misc]  # as the entropy
    assembly.KeyedDraws = lambda _: FreshDraws(entropy)  # type: ignore[assignment,misc]  # as they are named
    assembly.SystemEntropy = lambda: entropy  # type: ignore[assignment,misc]  # predictable, for this process alone
    assembly.run_agent(AgentConfig.load(folder / "agent.yaml"), until_finished=True)


def personal(folder: Path, crash: Crash | None, job: str) -> None:
    """The personal model's process, which dies where it is told to, and the agent with it, as in a power cut."""
    CrashPoints(folder / PERSONAL_WRITES, crash, with_parent=True).install()
    entropy = PlacedEntropy(folder.name)
    _name_personal_draws(entropy)
    personal_process.SystemEntropy = lambda: entropy  # type: ignore[assignment,misc]  # as the agent's
    personal_process.main(job)


def _name_personal_draws(entropy: PlacedEntropy) -> None:
    personal_process.train_round = entropy.during(  # the same, its draws named
        personal_process.train_round, lambda _, model, *__: f"personal {model.round}"
    )
    personal_process.choose = entropy.during(personal_process.choose, lambda *_: "choice")  # the same


def _start_personal(folder: Path, job: Job) -> subprocess.Popen[bytes]:
    crash = (folder / APART).read_text()
    (folder / APART).write_text(pickle.dumps(None).hex())
    command = [sys.executable, "-m", "support.party_process", "personal", str(folder), crash, job.text()]
    search = os.pathsep.join([str(TESTS.parent), str(TESTS)])
    with StudyFolder(Path(job.folder)).personal_log.open("ab") as said:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=said,
            stderr=said,
            bufsize=0,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": search},
        )
    assert process.stdin is not None
    process.stdin.write(job.told())
    return process


def start(party: str, folder: Path, doom: Doom | None) -> subprocess.Popen[bytes]:
    """Start one as a process of its own, which dies where it is told to."""
    command = [sys.executable, "-m", "support.party_process", party, str(folder), pickle.dumps(doom).hex()]
    return ForkedPopen(command, stdin=subprocess.DEVNULL)


if __name__ == "__main__":
    {"coordinator": coordinator, "silo": silo, "personal": personal}[sys.argv[1]](
        Path(sys.argv[2]),
        pickle.loads(bytes.fromhex(sys.argv[3])),  # noqa: S301  # what `start` has written
        *sys.argv[4:],
    )
